package worktree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// renameNoReplace renames a directory unless something is at the new path.
func renameNoReplace(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	// Some file systems cannot promise it. Names of quarantines are ours alone,
	// so a look before the rename leaves only the way back open to a race, and
	// there rename(2) replaces nothing but an empty directory.
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", printable(to), fs.ErrExist)
	}
	return unix.Rename(from, to)
}
