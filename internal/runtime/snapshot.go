package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"unwind/teardown"
)

// WriteSnapshot puts content into the file name in dir, which is made if
// missing, and returns its path. An older snapshot of that name is replaced at
// once or not at all.
func WriteSnapshot(dir, name string, content []byte, identity *teardown.RuntimeIdentity) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", snapshotError(err, dir)
	}
	canonical, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", snapshotError(err, dir)
	}
	if identity != nil && identity.Worktree != "" && inside(canonical, identity.Worktree) {
		return "", &teardown.Error{Code: teardown.CodeUnsafeTarget, Message: fmt.Sprintf(
			"The snapshot directory %s lies in the worktree and would go with it; choose one elsewhere.", dir)}
	}
	temporary, err := os.CreateTemp(canonical, "."+name+".") // mode 0600
	if err != nil {
		return "", snapshotError(err, dir)
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(content)
	if closed := temporary.Close(); err == nil {
		err = closed
	}
	path := filepath.Join(canonical, name)
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return "", snapshotError(err, dir)
	}
	return path, nil
}

func inside(path, dir string) bool {
	if canonical, err := filepath.EvalSymlinks(dir); err == nil {
		dir = canonical
	}
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

func snapshotError(cause error, dir string) error {
	return &teardown.Error{Code: teardown.CodeIOError, Retryable: true, Cause: cause,
		Message: fmt.Sprintf("The snapshot could not be written in %s", dir)}
}
