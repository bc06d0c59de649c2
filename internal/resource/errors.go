package resource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"unwind/teardown"
)

func refused(code teardown.Code, path, why string) error {
	return &teardown.Error{Code: code, Details: []string{path},
		Message: fmt.Sprintf("%s is not removed: %s", path, why)}
}

// failed maps what the system said. An Error is passed on as it is.
func failed(path string, err error) error {
	if teardown.CodeOf(err) != "" {
		return err
	}
	e := &teardown.Error{Code: teardown.CodeIOError, Retryable: true, Details: []string{path}, Cause: err,
		Message: fmt.Sprintf("%s could not be removed", path)}
	switch {
	case errors.Is(err, fs.ErrPermission):
		e.Code = teardown.CodePermissionDenied
		e.Message += "; let this user write to it and to the directory that holds it"
	case errors.Is(err, syscall.ENAMETOOLONG):
		e.Code, e.Retryable = teardown.CodeInvalidManifest, false
		e.Message = fmt.Sprintf("%s cannot be there: a name in it is longer than the file system allows; correct the path", path)
	case errors.Is(err, syscall.EBUSY):
		return refused(teardown.CodeMountPoint, path, "something is mounted there; unmount it")
	}
	return e
}

func noRoot(root string, err error) error {
	return &teardown.Error{Code: teardown.CodeIOError, Retryable: true, Details: []string{root}, Cause: err,
		Message: fmt.Sprintf("the root %s cannot be opened, so nobody can tell what is in it; mount it or make it again", root)}
}

func outOfTime(ctx context.Context, path string) error {
	return &teardown.Error{Code: teardown.CodeTimeout, Retryable: true, Details: []string{path}, Cause: context.Cause(ctx),
		Message: fmt.Sprintf("the time was up when it was the turn of %s", path)}
}
