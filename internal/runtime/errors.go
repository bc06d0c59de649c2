package runtime

import (
	"errors"
	"fmt"

	"unwind/teardown"
)

// Unroutable is the error for a record that names nothing exactly.
func Unroutable(format string, args ...any) *teardown.Error {
	return &teardown.Error{Code: teardown.CodeRuntimeUnroutable, Message: fmt.Sprintf(format, args...)}
}

// Contradiction is the error for a record that what is there contradicts.
func Contradiction(format string, args ...any) *teardown.Error {
	return &teardown.Error{Code: teardown.CodeRuntimeIdentity, Message: fmt.Sprintf(format, args...)}
}

// Unreachable is the retryable error for what could not be told.
func Unreachable(cause error, format string, args ...any) *teardown.Error {
	return &teardown.Error{Code: teardown.CodeRuntimeUnreachable, Retryable: true,
		Message: fmt.Sprintf(format, args...), Cause: cause}
}

// StillAlive is the retryable error for a runtime that did not go.
func StillAlive(details []string, format string, args ...any) *teardown.Error {
	return &teardown.Error{Code: teardown.CodeRuntimeStillAlive, Retryable: true,
		Message: fmt.Sprintf(format, args...), Details: details}
}

// Retryable reports whether err says that the same call may succeed later.
func Retryable(err error) bool {
	var e *teardown.Error
	return errors.As(err, &e) && e.Retryable
}
