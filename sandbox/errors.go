package sandbox

import (
	"errors"
	"fmt"
)

// Code is the kind of an [Error]; the set is closed and shared with the tools'
// contract.
type Code string

const (
	InvalidArgument    Code = "invalid_argument"
	NotFound           Code = "not_found"
	AlreadyExists      Code = "already_exists"
	FailedPrecondition Code = "failed_precondition"
	PermissionDenied   Code = "permission_denied"
	ApprovalDeclined   Code = "approval_declined"
	DeadlineExceeded   Code = "deadline_exceeded"
	Canceled           Code = "canceled"
	ResourceExhausted  Code = "resource_exhausted"
	Unavailable        Code = "unavailable"
	Internal           Code = "internal"
)

// Error is a failure with what to do about it. Message says what happened and
// names the path, limit or host; Hint is the next step; Reason is a finer
// name ("sandbox_lost", "no_space"). Cause stays on our side of the wire.
type Error struct {
	Code    Code           `json:"code"`
	Reason  string         `json:"reason,omitempty"`
	Message string         `json:"message"`
	Hint    string         `json:"hint,omitempty"`
	Retry   bool           `json:"retryable,omitempty"`
	Details map[string]any `json:"details,omitempty"`
	Cause   error          `json:"-"`
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
	return string(e.Code), e.Reason, e.Message, e.Hint, e.Retry, e.Details
}

// Errorf returns an Error with a message and a hint.
func Errorf(code Code, hint, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Hint: hint, Retry: code == Unavailable || code == DeadlineExceeded}
}

// Lost is the error of every call on a sandbox whose guest is gone.
func Lost(cause error) *Error {
	return &Error{
		Code: Unavailable, Reason: "sandbox_lost", Retry: true, Cause: cause,
		Message: "the sandbox of this session has ended; its processes and what was not in a kept workspace are gone",
		Hint:    "Call session_open for a new session.",
	}
}

// CodeOf returns the code of the first Error in err's chain, or Internal.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}
