package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/podman"
	"pinfold.dev/pinfold/templates"
)

const imageLong = `Make, list and remove the images that sandboxes start from. Pinfold's own image
is made once, on this machine, from the distribution's packages; templates may
name any other OCI image, or "host" for the programs of this machine.`

func imageCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "image", Short: "Make, list and remove sandbox images", Long: imageLong,
		Example: examples("pinfold image build", "pinfold image list", "pinfold image prune"),
		Args:    args(cobra.NoArgs, "image needs a verb: build, list or prune"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(imageBuildCommand(a), imageListCommand(a), imagePruneCommand(a))
	return cmd
}

// withEngine runs f with an engine of this process alone.
func (a *app) withEngine(level slog.Level, f func(e *podman.Engine, owner string) error) error {
	log, _, err := newLog(a.stderr, level, "")
	if err != nil {
		return err
	}
	i, err := newInstance()
	if err != nil {
		return err
	}
	e, err := openEngine(i, log)
	if err != nil {
		return errors.Join(err, i.Close())
	}
	return errors.Join(f(e, i.id), e.Close(), i.Close())
}

func imageBuildCommand(a *app) *cobra.Command {
	var base string
	cmd := &cobra.Command{
		Use: "build", Short: "Make Pinfold's own image",
		Long: `Make Pinfold's own image, unless it is there: a few minutes and some gigabytes.
On Debian and Ubuntu it comes from the distribution's packages; elsewhere, or
with --base, it is built on a base image.`,
		Example: examples("pinfold image build", "pinfold image build --base registry.example/debian:12"),
		Args:    args(cobra.NoArgs, "image build takes no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			recipe, err := templates.ImageRecipe()
			if err != nil {
				return err
			}
			recipe.Base = base
			return a.withEngine(slog.LevelWarn, func(e *podman.Engine, _ string) error {
				return a.buildImage(cmd.Context(), e, recipe)
			})
		},
	}
	cmd.Flags().StringVar(&base, "base", "", "base image to build on, instead of the distribution's packages")
	return cmd
}

func (a *app) buildImage(ctx context.Context, e *podman.Engine, recipe sandbox.Recipe) error {
	p := newProgress(a.stderr)
	began := time.Now()
	// The tools below take their time to stop, and silence makes people press Ctrl-C again.
	unwatch := context.AfterFunc(ctx, func() {
		fmt.Fprintln(a.stderr, "\nStopping, and removing the half-made image; that takes up to half a minute.")
	})
	ref, digest, err := e.BuildImage(ctx, recipe, func(stage string, percent int, line string) {
		if ctx.Err() == nil { // or it would run on after we said that it stops
			p.report(stage, percent, line)
		}
	})
	unwatch()
	p.end()
	if err != nil {
		return firstCause(ctx, err)
	}
	_, err = fmt.Fprintf(a.stdout, "%s\n%s\nready after %s\n", ref, digest, time.Since(began).Round(time.Second))
	return err
}

func imageListCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List Pinfold's images",
		Example: examples("pinfold image list", "pinfold image list --json"),
		Args:    args(cobra.NoArgs, "image list takes no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			recipe, err := templates.ImageRecipe()
			if err != nil {
				return err
			}
			return a.withEngine(slog.LevelWarn, func(e *podman.Engine, _ string) error {
				list, err := e.Images(cmd.Context(), recipe.Reference())
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(a.stdout, list)
				}
				if len(list) == 0 {
					fmt.Fprintln(a.stderr, "There is no image yet; 'pinfold image build' makes it.")
					return nil
				}
				return printImages(a.stdout, list)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printImages(w io.Writer, list []sandbox.ImageInfo) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "IMAGE\tSIZE\tMADE\tSTATE")
	for _, i := range list {
		var state []string
		if i.Current {
			state = append(state, "current")
		}
		if i.InUse {
			state = append(state, "in use")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", i.Reference, megabytes(i.Bytes), i.Created, strings.Join(state, ", "))
	}
	return t.Flush()
}

func megabytes(n int64) string { return fmt.Sprintf("%d MB", (n+500_000)/1_000_000) }

func imagePruneCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "prune", Short: "Remove images of earlier versions",
		Long:    "Remove Pinfold's images that this version does not use and no sandbox holds.",
		Example: examples("pinfold image prune"),
		Args:    args(cobra.NoArgs, "image prune takes no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			recipe, err := templates.ImageRecipe()
			if err != nil {
				return err
			}
			return a.withEngine(slog.LevelWarn, func(e *podman.Engine, _ string) error {
				gone, err := e.PruneImages(cmd.Context(), []string{recipe.Reference()})
				for _, i := range gone {
					fmt.Fprintf(a.stdout, "removed %s, %s\n", i.Reference, megabytes(i.Bytes))
				}
				if err == nil && len(gone) == 0 {
					fmt.Fprintln(a.stderr, "There was nothing to remove.")
				}
				return err
			})
		},
	}
}

// progress shows how far a long work is: one line that changes on a terminal,
// plain lines elsewhere, at least one every twenty seconds.
type progress struct {
	w        io.Writer
	terminal bool
	width    int
	began    time.Time
	stage    string
	said     time.Time
	percent  int
}

const progressEvery = 20 * time.Second

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, began: time.Now(), percent: -1}
	if f, ok := w.(interface{ Fd() uintptr }); ok && term.IsTerminal(int(f.Fd())) {
		p.terminal = true
		if p.width, _, _ = term.GetSize(int(f.Fd())); p.width < 20 {
			p.width = 80
		}
	}
	return p
}

// report is called one at a time.
func (p *progress) report(stage string, percent int, line string) {
	if p.terminal {
		text := fmt.Sprintf("%3d %%  %s  %s", percent, stage, printable(line))
		if r := []rune(text); len(r) >= p.width {
			text = string(r[:p.width-1])
		}
		fmt.Fprintf(p.w, "\r\x1b[K%s", text)
		return
	}
	now := time.Now()
	if stage == p.stage && now.Sub(p.said) < progressEvery && percent < p.percent+10 {
		return
	}
	p.stage, p.said, p.percent = stage, now, percent
	fmt.Fprintf(p.w, "%4ds %3d %%  %s\n", int(now.Sub(p.began).Seconds()), percent, stage)
}

func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// printable takes control characters out of a line that another program wrote.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, s)
}

// printableLines is printable for a text of several lines.
func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = printable(l)
	}
	return strings.Join(lines, "\n")
}
