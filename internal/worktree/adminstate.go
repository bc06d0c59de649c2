package worktree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"unwind/teardown"
)

// operations are the files and directories by which git remembers an operation
// that is under way. Todo lists, autostashes and messages exist nowhere else.
var operations = []string{
	"MERGE_HEAD", "MERGE_MSG", "MERGE_AUTOSTASH", "SQUASH_MSG", "CHERRY_PICK_HEAD", "REVERT_HEAD",
	"BISECT_LOG", "BISECT_START", "rebase-merge", "rebase-apply", "sequencer",
	"NOTES_MERGE_PARTIAL", "NOTES_MERGE_WORKTREE",
}

// adminState is step 4 of the policy.
func adminState(admin string) ([]Finding, error) {
	entries, err := os.ReadDir(admin)
	if err != nil {
		return nil, err
	}
	present := map[string]bool{}
	var locks []string
	for _, entry := range entries {
		present[entry.Name()] = true
		if strings.HasSuffix(entry.Name(), ".lock") {
			locks = append(locks, filepath.Join(admin, entry.Name()))
		}
	}
	var all []Finding
	if present[lockFile] && !isMarked(admin) {
		all = append(all, lockedFinding(admin))
	}
	if len(locks) > 0 {
		all = append(all, finding(teardown.CodeIndexLocked, "git is at work in it, or was killed; if no git runs there, delete the lock file", locks...))
	}
	var found []string
	for _, name := range operations {
		if present[name] {
			found = append(found, name)
		}
	}
	if len(found) > 0 {
		all = append(all, finding(teardown.CodeOperationInProgress, "a git operation is under way; finish or abort it", found...))
	}
	if present["modules"] {
		submodules, err := namesBelow(filepath.Join(admin, "modules"))
		if err != nil {
			return nil, err
		}
		if len(submodules) > 0 {
			all = append(all, finding(teardown.CodeSubmodule, "the repositories of its submodules would go with it; push them, then `git submodule deinit --all`, and delete them", submodules...))
		}
	}
	denied, err := unwritable(admin)
	if len(denied) > 0 {
		all = append(all, finding(teardown.CodePermissionDenied, "the repository's registry cannot be written, so the worktree's entry could not be dropped", denied...))
	}
	return all, err
}

// unwritable answers what would keep the entry from being taken out of the
// registry and deleted.
func unwritable(admin string) ([]string, error) {
	var denied []string
	registry := filepath.Dir(admin)
	for _, dir := range []string{filepath.Dir(registry), registry, admin} {
		if s, err := statAt(unix.AT_FDCWD, dir); err != nil || s.frozen || unix.Access(dir, unix.W_OK|unix.X_OK) != nil {
			denied = append(denied, dir)
		}
	}
	err := filepath.WalkDir(admin, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == admin {
			return ignoreAbsent(err)
		}
		s, err := statAt(unix.AT_FDCWD, path)
		foreign := err == nil && entry.IsDir() && int(s.uid) != os.Geteuid() && unix.Access(path, unix.W_OK|unix.X_OK) != nil
		if s.frozen || foreign {
			denied = append(denied, path)
		}
		return ignoreAbsent(err)
	})
	return denied, err
}

func lockedFinding(admin string) Finding {
	reason, err := readSmall(filepath.Join(admin, lockFile))
	if err != nil || strings.TrimSpace(reason) == "" {
		reason = "no reason given"
	}
	return finding(teardown.CodeLocked, "it is locked; `git worktree unlock` releases it", "locked: "+reason)
}

func namesBelow(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, entry := range entries {
		names = append(names, "modules/"+entry.Name())
	}
	return names, err
}
