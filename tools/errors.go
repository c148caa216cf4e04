package tools

import (
	"context"
	"errors"

	"pinfold.dev/pinfold/sandbox"
)

// Error is what a model sees when a call could not do its job: two sentences,
// what happened and what to do next.
type Error struct {
	Code      sandbox.Code   `json:"code"`
	Reason    string         `json:"reason,omitempty"`
	Message   string         `json:"message"`
	Hint      string         `json:"hint,omitempty"`
	Retryable bool           `json:"retryable"`
	Details   map[string]any `json:"details,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// typed is met by the error types of sandbox and browser.
type typed interface {
	error
	Typed() (code, reason, message, hint string, retryable bool, details map[string]any)
}

// AsError words any error for the edge. What has no type of ours is internal:
// its text stays in the log under the call id.
func AsError(err error, callID string) *Error {
	if err == nil {
		return nil
	}
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	var t typed
	if errors.As(err, &t) {
		code, reason, message, hint, retry, details := t.Typed()
		return &Error{Code: sandbox.Code(code), Reason: reason, Message: message, Hint: hint, Retryable: retry, Details: details}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Code: sandbox.DeadlineExceeded, Message: "the call did not end in its time", Retryable: true,
			Hint: "Run it in the background, or raise timeout_ms."}
	case errors.Is(err, context.Canceled):
		return &Error{Code: sandbox.Canceled, Message: "the call was cancelled", Retryable: true}
	}
	return &Error{Code: sandbox.Internal, Message: "Pinfold failed to do this; the cause is in its log under call " + callID}
}

// invalid is an invalid_argument error that names the field.
func invalid(field, hint, message string) *Error {
	return &Error{Code: sandbox.InvalidArgument, Message: field + ": " + message, Hint: hint, Details: map[string]any{"field": field}}
}
