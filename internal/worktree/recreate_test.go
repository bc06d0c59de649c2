package worktree

import (
	"os"
	"path/filepath"
	"testing"

	"unwind/teardown"
)

func TestRecreateMakesAWorktreeOfItsBranchAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.worktree("a")
	w.put(filepath.Join(a, "work.txt"), "mine")
	w.git(a, "add", ".")
	w.git(a, "commit", "-q", "-m", "work")
	head := w.git(a, "rev-parse", "HEAD")
	first, err := w.engine.Register(t.Context(), w.targets[0])
	w.do(err)
	w.git(w.repo, "worktree", "remove", a)
	w.put(filepath.Join(w.repo, ".git/hooks/post-checkout"), "#!/bin/sh\ntouch "+w.path("ran")+"\n")
	w.do(os.Chmod(filepath.Join(w.repo, ".git/hooks/post-checkout"), 0o755))

	again, err := w.engine.Recreate(t.Context(), w.targets[0], "a", Hooks{})
	w.do(err)
	if again.Path != a || again.Branch != "a" || again.Nonce == "" || again.Nonce == first.Nonce {
		t.Errorf("got %+v after %+v", again, first)
	}
	if got := w.git(a, "rev-parse", "HEAD"); got != head {
		t.Errorf("HEAD is %s, not %s", got, head)
	}
	if _, err := os.Stat(w.path("ran")); err == nil {
		t.Error("a hook ran")
	}
	w.put(filepath.Join(a, "draft.txt"), "mine")
	once, err := w.engine.Recreate(t.Context(), w.targets[0], "a", Hooks{})
	w.do(err)
	if once != again {
		t.Errorf("what is there already was made anew: %+v", once)
	}
}

// A crash before the mark leaves something that is known to be what was to be made.
// recreatedAs makes the target again, and wants it marked as that and not locked.
func (w *world) recreatedAs(target Target, branch string) {
	w.t.Helper()
	again, err := w.engine.Recreate(w.t.Context(), target, branch, Hooks{})
	w.do(err)
	if again.Nonce != target.Nonce {
		w.t.Errorf("got %+v, not %s", again, target.Nonce)
	}
	if _, err := os.Stat(filepath.Join(again.AdminDir, "locked")); err == nil {
		w.t.Error("it is still locked")
	}
}

func TestRecreateTakesUpWhatItHadMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.worktree("a")
	w.git(w.repo, "worktree", "remove", a)
	target := w.targets[0]
	target.Nonce = NewNonce()
	w.git(w.repo, "worktree", "add", "-q", "--lock", "--reason", makingReason(target.Nonce), a, "a")
	if !w.engine.Unmarked(target) {
		t.Error("it is not known as what was to be made")
	}
	w.recreatedAs(target, "a")
}

func TestRecreateGivesTheNonceOfItsTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.git(w.repo, "worktree", "remove", w.worktree("a"))
	target := w.targets[0]
	target.Nonce = NewNonce()
	w.recreatedAs(target, "a")
}

func TestRecreateRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		build func(w *world)
		code  teardown.Code
	}{
		{"branch is gone", func(w *world) {
			w.git(w.repo, "worktree", "remove", w.worktree("a"))
			w.git(w.repo, "branch", "-D", "a")
		}, teardown.CodeBranchMissing},
		{"branch is checked out elsewhere", func(w *world) {
			w.git(w.repo, "worktree", "move", w.worktree("a"), w.path("wts/b"))
		}, teardown.CodeGitFailed},
		{"another branch is there", func(w *world) { w.git(w.worktree("a"), "switch", "-q", "-c", "other") }, teardown.CodePathOccupied},
		{"something else is there", func(w *world) {
			w.git(w.repo, "worktree", "remove", w.worktree("a"))
			w.put(w.path("wts/a/mine.txt"), "mine")
		}, teardown.CodeUnsafeTarget},
		{"repository is gone", func(w *world) {
			w.git(w.repo, "worktree", "remove", w.worktree("a"))
			w.do(os.Rename(w.repo, w.path("elsewhere")))
		}, teardown.CodeRepositoryMissing},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			test.build(w)
			_, err := w.engine.Recreate(t.Context(), w.targets[0], "a", Hooks{})
			if teardown.CodeOf(err) != test.code {
				t.Errorf("got %v", err)
			}
		})
	}
}
