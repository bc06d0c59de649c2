package worktree

import (
	"context"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"unwind/teardown"
)

// errnoCode maps an error of the operating system to one of the retryable
// codes.
func errnoCode(err error) teardown.Code {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return teardown.CodeTimeout
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return teardown.CodePermissionDenied
	}
	return teardown.CodeIOError
}

// stopped is the error of a call whose context ended.
func stopped(err error) error {
	return &teardown.Error{Code: teardown.CodeTimeout, Retryable: true, Cause: err,
		Message: "the time for this worktree was over before it was finished; try again"}
}
