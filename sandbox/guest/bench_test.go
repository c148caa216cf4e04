//go:build linux

package guest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/sandbox/guest"
	"pinfold.dev/pinfold/sandbox/guest/guesttest"
)

// BenchmarkCall measures one call over both transports: what the link costs
// alone, and a command.
func BenchmarkCall(b *testing.B) {
	for _, link := range []sandbox.Link{sandbox.LinkUnix, sandbox.LinkStdio} {
		g := guesttest.Start(b, guesttest.Options{Config: guest.Config{Link: link}})
		for name, call := range map[string]func() error{
			"nothing": func() error {
				_, err := g.Output(context.Background(), sandbox.OutputRequest{Process: "p1", Since: new(int64)})
				return err
			},
			"true": func() error {
				_, err := g.Exec(context.Background(), sandbox.ExecRequest{Argv: []string{"true"}}, nil)
				return err
			},
			"sh": func() error {
				_, err := g.Exec(context.Background(), sandbox.ExecRequest{Argv: []string{"sh", "-c", "true"}}, nil)
				return err
			},
			"bash -lc": func() error {
				_, err := g.Exec(context.Background(), sandbox.ExecRequest{Command: "true"}, nil)
				return err
			},
		} {
			b.Run(string(link)+"/"+name, func(b *testing.B) {
				if _, err := g.Exec(context.Background(), sandbox.ExecRequest{Argv: []string{"true"}}, nil); err != nil {
					b.Fatal(err)
				}
				var took []time.Duration
				for b.Loop() {
					began := time.Now()
					if err := call(); err != nil && name != "nothing" {
						b.Fatal(err)
					}
					took = append(took, time.Since(began))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "median-µs")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			})
		}
	}
}
