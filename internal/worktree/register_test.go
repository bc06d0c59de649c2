package worktree

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unwind/teardown"
)

func TestRegister(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.worktree("a")
	first, err := w.engine.Register(t.Context(), w.targets[0])
	w.do(err)
	want := Registered{Path: a, CommonDir: filepath.Join(w.repo, ".git"), AdminDir: filepath.Join(w.repo, ".git/worktrees/a"), Branch: "a", Nonce: first.Nonce}
	if first != want || len(first.Nonce) != 32 {
		t.Errorf("got %+v", first)
	}
	w.do(os.Symlink(w.path("wts"), w.path("work")))
	again, err := w.engine.Register(t.Context(), Target{Path: w.path("work/a"), Nonce: "something else"})
	w.do(err)
	if again != first {
		t.Errorf("again: %+v", again)
	}
	w.git(w.repo, "worktree", "move", a, w.path("wts/b"))
	moved, err := w.engine.Register(t.Context(), Target{Path: w.path("wts/b")})
	w.do(err)
	if moved.Nonce != first.Nonce {
		t.Error("the nonce did not move with the worktree")
	}
}

func TestRegisterRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		build func(w *world)
		code  teardown.Code
	}{
		{"main working tree", func(w *world) { w.target(w.repo) }, teardown.CodeMainWorktree},
		{"home", func(w *world) { w.target(w.path("home")) }, teardown.CodeUnsafeTarget},
		{"plain directory", func(w *world) { w.target(w.path("wts")) }, teardown.CodeUnsafeTarget},
		{"outside", func(w *world) {
			w.worktree("a")
			w.engine.Roots = []string{w.path("home")}
		}, teardown.CodeOutsideRoots},
		{"not UTF-8", func(w *world) { w.worktreeAt(w.path("wts/bad\xff"), "a") }, teardown.CodePathNotUTF8},
		{"not there", func(w *world) { w.target(w.path("wts/a")) }, teardown.CodeWorktreeMissing},
		{"gone", func(w *world) { w.do(os.RemoveAll(w.worktree("a"))) }, teardown.CodeWorktreeMissing},
		{"copied", func(w *world) {
			w.do(os.CopyFS(w.path("wts/copy"), os.DirFS(w.worktree("a"))))
			w.targets[0].Path = w.path("wts/copy")
		}, teardown.CodeIdentityMismatch},
		{"relative", func(w *world) { w.target("a") }, teardown.CodeUnsafeTarget},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			test.build(w)
			_, err := w.engine.Register(t.Context(), w.targets[0])
			if teardown.CodeOf(err) != test.code {
				t.Errorf("got %v, want %s", err, test.code)
			}
		})
	}
}

// TestInstanceNotPath: a registered worktree is the one with its nonce.
func TestInstanceNotPath(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		build func(w *world, a string)
		want  string
	}{
		{"another worktree is at the path", func(w *world, a string) {
			w.git(w.repo, "worktree", "remove", a)
			w.git(w.repo, "worktree", "add", "-q", "-b", "a2", a)
			w.keep(filepath.Join(a, ".git"), filepath.Join(a, "README.md"))
		}, "already_gone:identity_mismatch"},
		{"another worktree is registered at the path and missing", func(w *world, a string) {
			w.git(w.repo, "worktree", "remove", a)
			w.git(w.repo, "worktree", "add", "-q", "-b", "a2", a)
			w.keep(filepath.Join(w.repo, ".git/worktrees/a/HEAD"))
			w.do(os.RemoveAll(a))
		}, "already_gone:identity_mismatch"},
		{"it was removed", func(w *world, a string) { w.git(w.repo, "worktree", "remove", a) }, "already_gone"},
		{"it was moved", func(w *world, a string) { w.git(w.repo, "worktree", "move", a, w.path("wts/b")) }, "preserved:identity_mismatch"},
		{"it was moved and another is at the path", func(w *world, a string) {
			w.git(w.repo, "worktree", "move", a, w.path("wts/b"))
			w.git(w.repo, "worktree", "add", "-q", "-b", "a2", a)
		}, "preserved:identity_mismatch"},
		{"its registration is gone and a directory is left", func(w *world, a string) {
			w.do(os.RemoveAll(w.admin(a)))
			w.do(os.Remove(filepath.Join(a, ".git")))
		}, "preserved:debris"},
		{"a clone is at the path", func(w *world, a string) {
			w.git(w.repo, "worktree", "remove", a)
			w.git(w.root, "clone", "-q", w.repo, a)
		}, "refused:main_worktree"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			w.journal(true)
			test.build(w, a)
			before := w.snapshot(w.root)
			report, err := w.engine.Remove(t.Context(), w.targets[0], &fileJournal{path: w.path("journal")}, Hooks{Name: "row1"})
			w.do(err)
			expect(t, []Report{report}, test.want)
			if changed := differences(before, w.snapshot(w.root)); len(changed) > 0 {
				t.Errorf("changed: %q", changed)
			}
		})
	}
}

func TestCanonicalPath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do(os.Symlink(w.path("wts"), w.path("work")))
	w.do(os.Symlink(w.path("home"), w.path("wts/link")))
	for path, want := range map[string]string{
		w.path("work/gone"):           w.path("wts/gone"),
		w.path("work/gone/deeper"):    w.path("wts/gone/deeper"),
		w.path("work") + "//link/":    w.path("wts/link"),
		"/":                           "/",
		w.path("wts/bad\xff\nname"):   w.path("wts/bad\xff\nname"),
		"/no/such/directory/anywhere": "/no/such/directory/anywhere",
	} {
		if got, err := CanonicalPath(path); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"", "a", "./a", "/a/../b", "/a/.", "/a\x00"} {
		if _, err := CanonicalPath(path); teardown.CodeOf(err) != teardown.CodeUnsafeTarget {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.worktree("a")
	b := w.detached("new\nline")
	w.git(w.repo, "worktree", "lock", "--reason", "why", a)
	entries, err := w.engine.List(t.Context(), filepath.Join(a, "src"))
	w.do(err)
	if len(entries) != 3 || entries[0].Path != w.repo || entries[1].Path != a && entries[2].Path != a {
		t.Fatalf("got %+v", entries)
	}
	for _, entry := range entries[1:] {
		switch entry.Path {
		case a:
			if entry.Branch != "a" || !entry.Locked || entry.LockReason != "why" || entry.Detached {
				t.Errorf("got %+v", entry)
			}
		case b:
			if !entry.Detached || entry.Branch != "" || len(entry.Head) != 40 {
				t.Errorf("got %+v", entry)
			}
		}
	}
	if _, err := w.engine.List(t.Context(), w.path("home")); teardown.CodeOf(err) != teardown.CodeRepositoryMissing {
		t.Errorf("no repository: %v", err)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 255)
	for _, base := range []string{"a", ".a", "a.unwind-x", long, "bad\xff"} {
		for _, name := range []string{"row1", strings.Repeat("r", 128)} {
			for attempt := range 3 {
				quarantine := quarantineName(base, name, attempt)
				if len(quarantine) > maxName || !isQuarantineOf(quarantine, base) {
					t.Errorf("%q, %q: %q", base, name, quarantine)
				}
			}
		}
	}
	if isQuarantineOf("a.unwind-x", "a") || isQuarantineOf(".b.unwind-x", "a") || isQuarantineOf(".a", "a") {
		t.Error("took something else for a quarantine")
	}
}
