package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"pinfold.dev/pinfold/templates"
)

const initLong = `Look at a project and at this machine, and propose how to use Pinfold here:
a template, a workspace mode, and the client's settings.

Nothing is written unless --write is given; a file that is there is never
overwritten without --force, and then only Pinfold's own settings files are.`

// proposal is what init found and what it proposes.
type proposal struct {
	Project   string     `json:"project"`
	Languages []language `json:"languages"`
	Git       bool       `json:"git"`
	Host      hostFacts  `json:"host"`
	Template  string     `json:"template"`
	Workspace string     `json:"workspace"`
	Why       []string   `json:"why"`
	Client    string     `json:"client"`
	File      string     `json:"file,omitempty"` // of the project, that the snippet goes into
	Snippet   string     `json:"snippet"`
	Written   bool       `json:"written"`

	client  client
	command string
	args    []string
}

func initCommand(a *app) *cobra.Command {
	var o struct {
		client             string
		write, force, json bool
	}
	cmd := &cobra.Command{
		Use:     "init [DIR]",
		Short:   "Propose how to use Pinfold in a project",
		Long:    initLong,
		Example: examples("pinfold init", "pinfold init ~/src/shop --client claude-code --write"),
		Args:    args(cobra.MaximumNArgs(1), "init takes one folder at most"),
		RunE: func(cmd *cobra.Command, given []string) error {
			dir := "."
			if len(given) == 1 {
				dir = given[0]
			}
			p, err := propose(dir, o.client)
			if err != nil {
				return err
			}
			if o.write {
				if err := p.write(o.force); err != nil {
					return err
				}
			}
			if o.json {
				return writeJSON(a.stdout, p)
			}
			return a.printProposal(p)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.client, "client", "", "client to write the settings of (default: the one found here)")
	f.BoolVar(&o.write, "write", false, "write the client's settings file of the project")
	f.BoolVar(&o.force, "force", false, "with --write: replace the file if it is there")
	f.BoolVar(&o.json, "json", false, "print JSON")
	completeWords(cmd, "client", clientNames()...)
	return cmd
}

func propose(dir, clientName string) (*proposal, error) {
	abs, err := absolute(dir)
	if err != nil {
		return nil, fail("Give an absolute path.", "the folder %s cannot be resolved", dir)
	}
	abs, err = templates.Source(abs)
	if err != nil {
		return nil, err
	}
	p := &proposal{Project: abs, Languages: detectLanguages(abs), Git: exists(filepath.Join(abs, ".git"))}
	p.Template, p.Workspace = "project", "overlay"
	p.because("the agent sees the whole folder, and what it writes stays in a layer of its own: the folder is left as it is")
	if !p.Git {
		p.because("there is no git repository here, so nothing else would show or undo what an agent changed")
	}
	p.Host = detectHost(p.Languages)
	p.chooseTemplate()
	if p.Host.GVisor != "" {
		p.because("an overlay shares your user's files, so a process that broke out would be you; gVisor is here: a template of your own with isolation: gvisor puts a kernel between")
	}
	if p.Host.Podman == "" {
		p.because("there is no Podman on this machine yet: 'make setup' installs it, and 'pinfold doctor' says what else is missing")
	}
	found := installedClients(os.Getenv("HOME"), abs)
	switch {
	case clientName != "":
		p.Client = clientName
	case len(found) > 0:
		p.Client = found[0]
		for _, c := range found {
			// A client with settings in the project itself is the one used here.
			if c, err := findClient(c); err == nil && c.project != "" && exists(filepath.Join(abs, c.project)) {
				p.Client = c.name
			}
		}
	default:
		p.Client = "json"
	}
	if p.client, err = findClient(p.Client); err != nil {
		return nil, err
	}
	if p.command, err = selfPath(); err != nil {
		return nil, err
	}
	p.args = []string{"serve", "--template", p.Template, "--workspace", abs + ":" + p.Workspace}
	p.Snippet = p.client.snippet(p.command, p.args)
	if p.client.project != "" {
		p.File = filepath.Join(abs, p.client.project)
	}
	return p, nil
}

// chooseTemplate takes the machine's own tools where the image has none for the
// project and the machine does.
func (p *proposal) chooseTemplate() {
	missing := missingFromImage(p.Languages)
	if len(missing) == 0 {
		return
	}
	names := strings.Join(missing, ", ")
	if len(p.Host.Tools) == 0 {
		p.because("neither Pinfold's image nor this machine has tools for %s; the agent can still read and edit", names)
		return
	}
	p.Template = "host-tools"
	p.because("Pinfold's image has no tools for %s; this machine has (%s), and the template uses its programs, read-only", names, strings.Join(p.Host.Tools, ", "))
}

func (p *proposal) because(format string, args ...any) {
	p.Why = append(p.Why, fmt.Sprintf(format, args...))
}

// write makes the client's settings file of the project. An existing one may
// hold more than ours, so it is replaced on demand only.
func (p *proposal) write(force bool) error {
	if p.File == "" {
		return fail("Put the snippet into the client's settings yourself; 'pinfold config "+p.Client+"' says where.", "%s keeps no settings in a project", p.client.title)
	}
	if err := os.MkdirAll(filepath.Dir(p.File), 0o755); err != nil {
		return err
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if force {
		if err := os.Remove(p.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	f, err := os.OpenFile(p.File, flags, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fail("Add the snippet to it yourself (run without --write to see it), or replace the file with --force.", "%s is there already, and may hold other settings", p.File)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(p.Snippet)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	p.Written = true
	return nil
}

func (a *app) printProposal(p *proposal) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Project    %s\n", p.Project)
	names := make([]string, len(p.Languages))
	for i, l := range p.Languages {
		names[i] = fmt.Sprintf("%s (%s)", l.Name, l.By)
	}
	if len(names) == 0 {
		names = []string{"none recognised"}
	}
	fmt.Fprintf(&b, "Languages  %s\n", strings.Join(names, ", "))
	fmt.Fprintf(&b, "Template   %s\nWorkspace  %s\n", p.Template, p.Workspace)
	for _, w := range p.Why {
		fmt.Fprintf(&b, "           - %s\n", w)
	}
	fmt.Fprintf(&b, "Client     %s\n\n", p.client.title)
	if p.Written {
		fmt.Fprintf(&b, "Wrote %s:\n\n%s", p.File, p.Snippet)
	} else {
		fmt.Fprintf(&b, "Put this into %s:\n\n%s", orDefault(p.File, p.client.where()), p.Snippet)
	}
	fmt.Fprintf(&b, "\nThe client's own shell:\n%s\n", p.client.shell)
	_, err := a.stdout.Write([]byte(b.String()))
	return err
}
