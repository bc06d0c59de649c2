package worktree

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

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

// TestPartsOfTheRepositoryInside: what links, or the list of borrowed stores, make
// a part of the repository does not go with a worktree, although git ignores it.
func TestPartsOfTheRepositoryInside(t *testing.T) {
	t.Parallel()
	behindLink := func(part string) func(w *world, build string) {
		return func(w *world, build string) {
			there := filepath.Join(w.repo, ".git", part)
			inside := filepath.Join(build, "part")
			if err := os.Rename(there, inside); errors.Is(err, os.ErrNotExist) {
				w.put(filepath.Join(inside, "file"), "part")
			}
			w.do(os.Symlink(inside, there))
		}
	}
	borrows := func(w *world, build, line string) {
		objects := filepath.Join(w.repo, ".git/objects")
		w.do(os.Rename(objects, filepath.Join(build, "store")))
		w.do(os.MkdirAll(filepath.Join(objects, "pack"), 0o755))
		w.put(filepath.Join(objects, "info/alternates"), line)
	}
	for name, move := range map[string]func(w *world, build string){
		"objects": behindLink("objects"),
		"packs":   behindLink("objects/pack"),
		"refs":    behindLink("refs"),
		"lfs":     behindLink("lfs"),
		"reflogs": behindLink("logs/refs"),
		"a pack": func(w *world, build string) {
			packs, err := filepath.Glob(filepath.Join(w.repo, ".git/objects/pack/*.pack"))
			w.do(err)
			w.do(os.Rename(packs[0], filepath.Join(build, "pack")))
			w.do(os.Symlink(filepath.Join(build, "pack"), packs[0]))
		},
		"borrowed store":        func(w *world, build string) { borrows(w, build, filepath.Join(build, "store")) },
		"borrowed store nearby": func(w *world, build string) { borrows(w, build, "../../../wts/a/build/store") },
		"borrowed store, quoted": func(w *world, build string) {
			borrows(w, build, `"`+w.root+`/wts/\141/build/store"`)
		},
		"store that a borrowed one borrows": func(w *world, build string) {
			borrows(w, build, w.path("between"))
			w.do(os.Mkdir(w.path("between"), 0o755))
			w.put(w.path("between/info/alternates"), filepath.Join(build, "store"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.engine.coarseAt = time.Nanosecond
			a := w.worktree("a")
			w.git(w.repo, "gc", "-q")
			build := filepath.Join(a, "build")
			w.do(os.Mkdir(build, 0o755))
			move(w, build)
			w.git(w.repo, "fsck")
			expect(t, w.removeAll(), "preserved:nested_repository")
			w.git(w.repo, "fsck")
		})
	}
}
