package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"pinfold.dev/pinfold/sandbox"
)

func TestErrorsAreTwoSentences(t *testing.T) {
	typed := sandbox.Errorf(sandbox.Unavailable, "Ask the user to run `pinfold image build`.", "the image is not there")
	typed.Cause = errors.New("exit status 125")
	cases := map[string]struct {
		err  error
		what string
		next string
	}{
		"our own":                             {fail("Do that.", "this happened"), "this happened.", "Do that."},
		"our own, wrapped":                    {fmt.Errorf("starting: %w", fail("Do that.", "this happened")), "this happened.", "Do that."},
		"typed, whose cause stays in the log": {fmt.Errorf("launching: opening: %w", typed), "the image is not there.", "Run `pinfold image build`."},
		"a path":                              {fmt.Errorf("reading: %w", &fs.PathError{Op: "open", Path: "/x", Err: syscall.EACCES}), "/x cannot be used (open): permission denied.", "Check the path and its permissions."},
		"a cancel":                            {fmt.Errorf("waiting: %w", context.Canceled), "Cancelled.", ""},
		"a signal":                            {signalled{syscall.SIGTERM}, "Ended by signal terminated.", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			what, next := explain(c.err)
			assert.Equal(t, c.what, what)
			assert.Equal(t, c.next, next)
		})
	}
}

func TestExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code int
		says bool
	}{
		"nothing":             {nil, 0, false},
		"a failure":           {fail("x.", "y"), exitFailure, true},
		"usage":               {&failure{what: "y", code: exitUsage}, exitUsage, true},
		"any error":           {errors.New("y"), exitFailure, true},
		"a command's own":     {exitCode(42), 42, false},
		"joined with another": {errors.Join(exitCode(42), errors.New("cleaning up")), 42, false},
	} {
		t.Run(name, func(t *testing.T) {
			var errs bytes.Buffer
			assert.Equal(t, c.code, (&app{stderr: &errs}).report(c.err))
			assert.Equal(t, c.says, errs.Len() > 0)
			assert.LessOrEqual(t, strings.Count(errs.String(), "\n"), 2)
		})
	}
}

func TestRunHasItsOwnCodesForFaults(t *testing.T) {
	code := func(err error) int { return (&app{stderr: &bytes.Buffer{}}).report(runFailed(err)) }
	assert.Equal(t, exitRunFailed, code(errors.New("no engine")))
	assert.Equal(t, exitRunFailed, code(fail("x.", "y")))
	assert.Equal(t, exitUsage, code(&failure{what: "y", code: exitUsage}))
	assert.Equal(t, 130, code(signalled{syscall.SIGINT}))
	assert.Equal(t, 143, code(fmt.Errorf("starting: %w", signalled{syscall.SIGTERM})))
	assert.Equal(t, exitNoCommand, code(commandFailure("x", sandbox.Errorf(sandbox.NotFound, "", "no x"))))
	assert.Equal(t, exitCannotRun, code(commandFailure("x", sandbox.Errorf(sandbox.FailedPrecondition, "", "not executable"))))
	assert.Equal(t, exitRunFailed, code(commandFailure("x", sandbox.Lost(nil))))
	assert.Equal(t, 139, outcome{signal: "SIGSEGV"}.code())
	assert.Equal(t, exitRunFailed, outcome{}.code(), "an end that nobody knows is none of the command's")
}

func TestProgressHasPlainLinesWhereThereIsNoTerminal(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	for i := range 100 {
		p.report("installing", i, "a line of \x1b[31mcolour")
	}
	p.report("importing", 100, "")
	p.end()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	assert.LessOrEqual(t, len(lines), 12, "a line for each tenth and stage")
	assert.Contains(t, lines[len(lines)-1], "importing")
	assert.NotContains(t, out.String(), "\x1b")
}

func TestMessagesCannotMoveTheCursor(t *testing.T) {
	var errs bytes.Buffer
	(&app{stderr: &errs}).report(fail("Next\x1b]0;x\x07.", "the image said \x1b[2Jhello\u202e and\nmore"))
	assert.Equal(t, "pinfold: the image said  [2Jhello  and\nmore.\nNext ]0;x .\n", errs.String())
}

func TestHintsForModelsSpeakToPeopleToo(t *testing.T) {
	assert.Equal(t, "Run `pinfold image build` once, or use a template with `image: host`.",
		forPeople("Ask the user to run `pinfold image build` once, or to use a template with `image: host`."))
	assert.Equal(t, "Give an absolute path.", forPeople("Give an absolute path."))
}
