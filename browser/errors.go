package browser

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Codes are those of the tools' contract; reasons are finer names.
const (
	invalidArgument    = "invalid_argument"
	notFound           = "not_found"
	failedPrecondition = "failed_precondition"
	permissionDenied   = "permission_denied"
	deadlineExceeded   = "deadline_exceeded"
	canceled           = "canceled"
	resourceExhausted  = "resource_exhausted"
	unavailable        = "unavailable"
	internal           = "internal"
)

// Error is a failure with what to do about it.
type Error struct {
	Code    string         // of the shared set
	Reason  string         // stale_ref, covered, dialog_open, …
	Message string         // what happened; may quote cleaned page text
	Hint    string         // the next step
	Retry   bool           // the same call may succeed
	Details map[string]any // candidates, the covering node
	Cause   error          // for our log only
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%s: %v", e.Message, e.Cause)
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Typed returns the parts of the error for the edge, which words it for a model.
func (e *Error) Typed() (code, reason, message, hint string, retryable bool, details map[string]any) {
	return e.Code, e.Reason, e.Message, e.Hint, e.Retry, e.Details
}

// reasonCode gives the shared code of each reason.
var reasonCode = map[string]string{
	"stale_ref":          failedPrecondition,
	"not_found":          notFound,
	"ambiguous":          invalidArgument,
	"not_visible":        failedPrecondition,
	"unstable":           failedPrecondition,
	"disabled":           failedPrecondition,
	"covered":            failedPrecondition,
	"dialog_open":        failedPrecondition,
	"wrong_element":      failedPrecondition,
	"expectation_failed": failedPrecondition,
	"image_lacks":        failedPrecondition,
	"navigation_failed":  unavailable,
	"blocked_by_policy":  permissionDenied,
	"timeout":            deadlineExceeded,
	"tab_hung":           deadlineExceeded,
	"tab_closed":         notFound,
	"tab_crashed":        unavailable,
	"browser_gone":       unavailable,
	"too_many_tabs":      resourceExhausted,
	"file_missing":       notFound,

	"file_outside_workspace": permissionDenied,

	"unsupported_arg": invalidArgument,
	"bad_value":       invalidArgument,
}

// fail makes an Error from a reason.
func fail(reason, hint, format string, args ...any) *Error {
	code := reasonCode[reason]
	return &Error{Code: code, Reason: reason, Message: fmt.Sprintf(format, args...), Hint: hint,
		Retry: code == unavailable || code == deadlineExceeded}
}

func (e *Error) with(key string, v any) *Error {
	e.detail(key, v)
	return e
}

func (e *Error) detail(key string, v any) {
	if e.Details == nil {
		e.Details = map[string]any{}
	}
	e.Details[key] = v
}

func (e *Error) because(err error) *Error { e.Cause = err; return e }

// isReason tells whether err is an Error with that reason.
func isReason(err error, reason string) bool {
	var e *Error
	return errors.As(err, &e) && e.Reason == reason
}

// typedError tells whether the error is already worded, here or by a Host.
func typedError(err error) bool {
	var t interface {
		error
		Typed() (code, reason, message, hint string, retryable bool, details map[string]any)
	}
	return errors.As(err, &t)
}

// word gives any error of the protocol a type. what names the step.
func word(err error, what string) error {
	switch {
	case err == nil:
		return nil
	case typedError(err):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fail("timeout", "Try again, or raise timeout_ms.", "%s took too long", what).because(err)
	case errors.Is(err, context.Canceled):
		return &Error{Code: canceled, Message: what + " was cancelled", Retry: true, Cause: err}
	}
	return &Error{Code: internal, Reason: "protocol", Message: fmt.Sprintf("%s: Chromium answered: %s", what, cut(cleanText(err.Error()), 200)),
		Hint: "Take a new browser_snapshot and try again.", Retry: true, Cause: err}
}

// lackChromium is the error of an image without a browser.
func lackChromium(stderr string) *Error {
	return fail("image_lacks", "Use the default image (pinfold image build), or install chromium-headless-shell or chromium in this one.",
		"the image has no Chromium: none of %s is on its PATH", strings.Join(browsers, ", ")).with("lacks", []string{"chromium"})
}
