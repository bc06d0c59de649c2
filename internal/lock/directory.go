package lock

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Directory takes the lock of a directory itself, which is one for all users
// and state directories, goes with the directory when it is renamed, and leaves
// no file. It answers nil, which may be released, where the file system has no
// such locks. Errors are those of Session.
func Directory(ctx context.Context, path string, wait Wait) (*Held, error) {
	what := "directory " + path
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, unusable(what, err)
	}
	held := &Held{file: file}
	err = held.acquire(ctx, what, wait)
	if err == nil {
		return held, nil
	}
	held.Release()
	for _, unsupported := range []error{unix.EBADF, unix.ENOLCK, unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL} {
		if errors.Is(err, unsupported) {
			return nil, nil
		}
	}
	return nil, err
}
