package worktree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"unwind/teardown"
)

// halt is a verdict after which there is nothing more to look at.
type halt struct {
	disposition teardown.Disposition
	finding     Finding
}

func refuse(code teardown.Code, path, format string, args ...any) *halt {
	return &halt{teardown.DispositionRefused, finding(code, fmt.Sprintf(format, args...), path)}
}

func keep(code teardown.Code, path, format string, args ...any) *halt {
	return &halt{teardown.DispositionPreserved, finding(code, fmt.Sprintf(format, args...), path)}
}

func gone(code teardown.Code, path, format string, args ...any) *halt {
	return &halt{teardown.DispositionAlreadyGone, finding(code, fmt.Sprintf(format, args...), path)}
}

func fail(err error, path, format string, args ...any) *halt {
	f := finding(errnoCode(err), fmt.Sprintf(format, args...)+": "+err.Error(), path)
	return &halt{teardown.DispositionFailed, f}
}

// checkTarget is step 1 of the policy: it answers the canonical path of
// something that could be a worktree of ours, or of nothing.
func (e *Engine) checkTarget(path string) (string, *halt) {
	if err := checkSpelling(path); err != nil {
		return "", refuse(teardown.CodeUnsafeTarget, path, "%v", err)
	}
	resolved, err := canonical(path)
	if err != nil {
		return "", fail(err, path, "the path cannot be resolved")
	}
	info, err := os.Lstat(resolved)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", fail(err, path, "the path cannot be looked at")
	case info.Mode()&fs.ModeSymlink != 0:
		return "", refuse(teardown.CodeUnsafeTarget, path, "it is a symbolic link; name the directory it points to")
	case !info.IsDir():
		return "", refuse(teardown.CodeUnsafeTarget, path, "it is not a directory")
	}
	if resolved == "/" || e.aboveHome(resolved, info) {
		return "", refuse(teardown.CodeUnsafeTarget, path, "it is the root directory or a home directory, or contains one")
	}
	if !e.insideRoots(resolved) {
		return "", refuse(teardown.CodeOutsideRoots, path, "it does not lie below one of the allowed roots; add its parent to UNWIND_ROOTS if it should")
	}
	return resolved, nil
}

// aboveHome compares by file identity too, for a home can be reached by several
// names.
func (e *Engine) aboveHome(path string, info fs.FileInfo) bool {
	home := e.Home
	if home == "" {
		home, _ = os.UserHomeDir()
	}
	if home == "" {
		return false
	}
	home, err := canonicalDirectory(home)
	if err != nil {
		return false
	}
	if within(home, path) {
		return true
	}
	for ; info != nil; home = filepath.Dir(home) {
		if above, err := os.Stat(home); err == nil && os.SameFile(above, info) {
			return true
		}
		if home == "/" {
			break
		}
	}
	return false
}

func (e *Engine) insideRoots(path string) bool {
	inside := false
	for _, root := range e.Roots {
		root, err := canonicalDirectory(root)
		if err != nil {
			continue
		}
		if within(root, path) {
			return false
		}
		inside = inside || below(path, root)
	}
	return inside
}

func canonicalDirectory(dir string) (string, error) {
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		return filepath.Abs(resolved)
	}
	return canonical(dir)
}
