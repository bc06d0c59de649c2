package worktree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"unwind/teardown"
)

// CanonicalPath resolves all links in path except its last element, so that it
// also works when the directory is gone: the name by which a worktree is locked
// and registered. Errors have the code unsafe_target (relative, with NUL, "."
// or ".." elements) or io_error.
func CanonicalPath(path string) (string, error) {
	if err := checkSpelling(path); err != nil {
		return "", err
	}
	return canonical(path)
}

func checkSpelling(path string) error {
	unsafe := func(why string) error {
		return &teardown.Error{Code: teardown.CodeUnsafeTarget, Message: fmt.Sprintf(
			"%s is not a safe target: %s; give the absolute path of the worktree", printable(path), why)}
	}
	switch {
	case path == "":
		return unsafe("it is empty")
	case strings.ContainsRune(path, 0):
		return unsafe("it contains a NUL byte")
	case !strings.HasPrefix(path, "/"):
		return unsafe("it is relative")
	}
	for element := range strings.SplitSeq(path, "/") {
		if element == "." || element == ".." {
			return unsafe("it contains " + strconv.Quote(element))
		}
	}
	return nil
}

// canonical resolves the links in the part of path above its last element that
// exists.
func canonical(path string) (string, error) { return canonicalBy(path, filepath.EvalSymlinks) }

func canonicalBy(path string, resolve func(string) (string, error)) (string, error) {
	path = filepath.Clean(path)
	parent, rest := filepath.Dir(path), filepath.Base(path)
	for path != "/" {
		resolved, err := resolve(parent)
		if err == nil {
			return filepath.Join(resolved, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) || parent == "/" {
			return "", &teardown.Error{Code: errnoCode(err), Retryable: true, Cause: err, Message: fmt.Sprintf(
				"the directory that holds %s cannot be resolved", printable(path))}
		}
		parent, rest = filepath.Dir(parent), filepath.Join(filepath.Base(parent), rest)
	}
	return path, nil
}

// below reports whether path lies strictly inside dir. Both are canonical.
func below(path, dir string) bool {
	if dir == "/" {
		return path != "/"
	}
	return strings.HasPrefix(path, dir+"/")
}

// within reports whether path is dir or lies inside it.
func within(path, dir string) bool { return path == dir || below(path, dir) }

// printable shows any bytes on one line.
func printable(path string) string {
	if path == "" || !utf8.ValidString(path) || strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(path)
	}
	return path
}

func isDirectory(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}
