package worktree

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDraftsLeadNowhere: at the names under which our own files are written first
// may be whatever somebody has put there.
func TestDraftsLeadNowhere(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(target, draft string) error{
		"link":      os.Symlink,
		"hard link": os.Link,
		"pipe":      func(_, draft string) error { return unix.Mkfifo(draft, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			w.put(w.path("precious.txt"), "precious")
			w.keep(w.path("precious.txt"))
			for _, file := range []string{journalFile, "unwind-locked", "gitdir", "HEAD"} {
				w.do(put(w.path("precious.txt"), filepath.Join(w.admin(a), file+draftMark)))
			}
			expect(t, w.removeAll(), "removed")
		})
	}
}
