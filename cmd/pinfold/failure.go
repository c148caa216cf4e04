package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"pinfold.dev/pinfold/sandbox"
)

// Exit codes; those of run are in run.go.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// failure is an error for people: what happened and what to do next.
type failure struct {
	what, next string
	code       int
	cause      error
}

func (f *failure) Error() string { return f.what }
func (f *failure) Unwrap() error { return f.cause }

// fail returns a failure; next is a whole sentence.
func fail(next, format string, args ...any) *failure {
	return &failure{what: fmt.Sprintf(format, args...), next: next, code: exitFailure}
}

// usage is a fault of the command line.
func usage(cmd *cobra.Command, what string) error {
	return &failure{what: what, next: fmt.Sprintf("See '%s --help'.", cmd.CommandPath()), code: exitUsage}
}

// exitCode ends the program with a code and no word: the verb has said it all.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// report says an error in two sentences and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return exitOK
	}
	var code exitCode
	if errors.As(err, &code) {
		return int(code)
	}
	what, next := explain(err)
	// A message may quote what an image or a sandbox said.
	fmt.Fprintf(a.stderr, "pinfold: %s\n", printableLines(what))
	if next != "" {
		fmt.Fprintln(a.stderr, printableLines(next))
	}
	var f *failure
	if errors.As(err, &f) {
		return f.code
	}
	if strings.HasPrefix(err.Error(), "unknown command") {
		return exitUsage
	}
	return exitFailure
}

// explain words any error for people: what happened, what to do next. The
// chain of operations in between is for logs.
func explain(err error) (what, next string) {
	var f *failure
	if errors.As(err, &f) {
		return sentence(f.what), f.next
	}
	var t interface {
		Typed() (code, reason, message, hint string, retryable bool, details map[string]any)
	}
	if errors.As(err, &t) {
		_, _, message, hint, _, _ := t.Typed()
		return sentence(message), forPeople(hint)
	}
	var y yaml.Error
	if errors.As(err, &y) {
		return err.Error(), "Correct the file; nothing was started."
	}
	var s signalled
	if errors.As(err, &s) {
		return "Ended by signal " + s.signal.String() + ".", ""
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		return sentence(fmt.Sprintf("%s cannot be used (%s): %v", p.Path, p.Op, p.Err)), "Check the path and its permissions."
	}
	if strings.HasPrefix(err.Error(), "unknown command") {
		line, _, _ := strings.Cut(err.Error(), "\n")
		return sentence(line), "See 'pinfold --help'."
	}
	if errors.Is(err, context.Canceled) {
		return "Cancelled.", ""
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return sentence(err.Error()), "Run 'pinfold doctor' to see what this machine lacks."
	}
	return sentence(err.Error()), "Run 'pinfold doctor' to see what this machine lacks."
}

// forPeople turns a hint that speaks to a model into one for its user.
func forPeople(hint string) string {
	if rest, ok := strings.CutPrefix(hint, "Ask the user to "); ok && rest != "" {
		return strings.ReplaceAll(strings.ToUpper(rest[:1])+rest[1:], ", or to ", ", or ")
	}
	return hint
}

// sentence gives a text a capital-free, closed form.
func sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" || strings.ContainsRune(".!?", rune(s[len(s)-1])) {
		return s
	}
	return s + "."
}

// codeOf is the code of a typed error, for verbs that branch on it.
func codeOf(err error) sandbox.Code { return sandbox.CodeOf(err) }
