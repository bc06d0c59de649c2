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
	dir, err := unix.Dup(root)
	if err != nil {
		return nil, stat{}, err
	}
	defer func() { _ = unix.Close(dir) }()
	for {
		name, rest, more := strings.Cut(path, "/")
		if !more {
			return openRegularIn(dir, name)
		}
		next, err := openRetry(dir, name)
		if err != nil {
			return nil, stat{}, err
		}
		_ = unix.Close(dir)
		dir, path = next, rest
		if check != nil {
			if err := check(dir); err != nil {
				return nil, stat{}, err
			}
		}
	}
}

func openRegularIn(dir int, name string) (*os.File, stat, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, stat{}, err
	}
	file := os.NewFile(uintptr(fd), name)
	s, err := fdStat(fd)
	if err == nil && s.kind != unix.S_IFREG {
		err = fmt.Errorf("%s: %w", printable(name), errNotRegular)
	}
	if err != nil {
		_ = file.Close()
		return nil, stat{}, err
	}
	return file, s, nil
}
