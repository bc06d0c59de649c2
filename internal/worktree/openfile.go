package worktree

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const atCurrent = unix.AT_FDCWD

var errNotRegular = errors.New("not a regular file")

// openRegular opens the regular file at a relative path below root, following
// no link on the way and opening nothing that could block. check, if set, is
// asked for each directory on the way.
func openRegular(root int, path string, check func(dir int) error) (*os.File, stat, error) {
	dir, name, err := openParent(root, path, check)
	if err != nil {
		return nil, stat{}, err
	}
	defer func() { _ = unix.Close(dir) }()
	return openRegularIn(dir, name)
}

// openParent opens the directory that holds a relative path, in the same way.
func openParent(root int, path string, check func(dir int) error) (dir int, name string, err error) {
	dir, err = duplicate(root)
	if err != nil {
		return -1, "", err
	}
	for {
		name, rest, more := strings.Cut(path, "/")
		if !more {
			return dir, name, nil
		}
		next, err := openRetry(dir, name)
		_ = unix.Close(dir)
		if err != nil {
			return -1, "", err
		}
		dir, path = next, rest
		if check == nil {
			continue
		}
		if err := check(dir); err != nil {
			_ = unix.Close(dir)
			return -1, "", err
		}
	}
}

func openRegularIn(dir int, name string) (*os.File, stat, error) {
	fd, s, err := openRegularFD(dir, name)
	if err != nil {
		return nil, stat{}, err
	}
	return os.NewFile(uintptr(fd), name), s, nil
}

func openRegularFD(dir int, name string) (int, stat, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, stat{}, err
	}
	s, err := fdStat(fd)
	if err == nil && s.kind != unix.S_IFREG {
		err = fmt.Errorf("%s: %w", printable(name), errNotRegular)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, stat{}, err
	}
	return fd, s, nil
}

// openDirectoryAt opens the directory at a relative path below root in the same
// way; "" is root itself.
func openDirectoryAt(root int, path string) (int, error) {
	if path == "" {
		return duplicate(root)
	}
	parent, name, err := openParent(root, path, nil)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(parent) }()
	return openRetry(parent, name)
}

// readLink answers what the link at a relative path below root points to.
func readLink(root int, path string) (string, error) {
	dir, name, err := openParent(root, path, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(dir) }()
	return readLinkAt(dir, name)
}

func readLinkAt(dir int, name string) (string, error) {
	for size := 256; ; size *= 2 {
		target := make([]byte, size)
		n, err := unix.Readlinkat(dir, name, target)
		if err != nil {
			return "", err
		}
		if n < size {
			return string(target[:n]), nil
		}
	}
}

func namesIn(dir string) ([]string, error) {
	open, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer open.Close()
	return open.Readdirnames(-1)
}
