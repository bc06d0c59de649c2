package worktree

import "golang.org/x/sys/unix"

// renameNoReplace renames a directory unless something is at the new path.
func renameNoReplace(from, to string) error {
	return unix.RenameatxNp(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCL)
}
