package worktree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"unwind/teardown"
)

// While a worktree is in quarantine, git would call its registration prunable,
// and `git worktree prune`, gc or a new worktree at the path would drop it
// together with its HEAD, index and reflog. So it is locked by git's own means.
const (
	lockFile   = "locked"
	lockReason = "unwind is removing it, and has moved it to "
)

// mark locks the registration. It fails with fs.ErrExist if somebody else has
// locked it.
func mark(admin, quarantine string) error {
	unmark(admin)
	lock := filepath.Join(admin, lockFile)
	// An empty lock after a crash would look like a person's.
	draft := filepath.Join(admin, "unwind-locked")
	if err := writeWhole(draft, []byte(lockReason+quarantine+"\n")); err != nil {
		return err
	}
	if err := renameNoReplace(draft, lock); err != nil {
		return errors.Join(err, os.Remove(draft))
	}
	return nil
}

// unmark takes our own lock away. One that stays hurts nobody: the next removal
// takes it away.
func unmark(admin string) {
	if admin != "" && isMarked(admin) {
		_ = os.Remove(filepath.Join(admin, lockFile))
	}
}

// isMarked: the registration is locked by a removal.
func isMarked(admin string) bool {
	text, err := readSmall(filepath.Join(admin, lockFile))
	return err == nil && strings.HasPrefix(text, lockReason)
}

// markError is what keeps a worktree that could not be locked.
func markError(admin string, err error) Finding {
	if errors.Is(err, fs.ErrExist) {
		return lockedFinding(admin)
	}
	return finding(errnoCode(err), fmt.Sprintf("its registration could not be locked: %v", err), admin)
}

// release makes path and branch free for git, too: from now on the registration
// is that of the quarantine, with a detached HEAD. The directory is condemned, so
// there is no way back.
func release(admin, quarantine, head string) error {
	if err := writeWhole(filepath.Join(admin, "gitdir"), []byte(filepath.Join(quarantine, ".git")+"\n")); err != nil {
		return err
	}
	path := filepath.Join(admin, "HEAD")
	if at, err := readSmall(path); err != nil || head == "" || !strings.HasPrefix(at, "ref: ") {
		return err
	}
	return writeWhole(path, []byte(head+"\n"))
}

// claimedAt reports whether what is at a path says that it is the worktree of
// an admin directory, whatever has happened to that.
func claimedAt(path, admin string) bool {
	named, err := readGitFile(filepath.Join(path, ".git"))
	if err != nil || admin == "" {
		return false
	}
	resolved, err := filepath.EvalSymlinks(named)
	return err == nil && resolved == admin
}

func claimedFinding(path string) Finding {
	return finding(teardown.CodeIdentityMismatch, "it was copied or moved back to its path while it was removed; look at both, and delete or move one of them", path)
}
