package worktree

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRegistryThatCannotBeWritten: it is found before anything is deleted.
func TestRegistryThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 && !canFreeze(t) {
		t.Skip("root may write everywhere, and this file system has no immutable directories")
	}
	for _, name := range []string{".git", ".git/worktrees", ".git/worktrees/a", ".git/worktrees/a/logs", ".git/worktrees/a/HEAD"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.worktree("a")
			path := filepath.Join(w.repo, name)
			info, err := os.Stat(path)
			w.do(err)
			if os.Geteuid() == 0 {
				w.do(freeze(path, true))
				t.Cleanup(func() { _ = freeze(path, false) })
			} else if info.IsDir() && name != ".git/worktrees/a/logs" {
				w.do(os.Chmod(path, 0o555))
			} else {
				t.Skip("only root can make it immutable")
			}
			expect(t, w.removeAll(), "failed:permission_denied")
		})
	}
}
