package worktree

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"unwind/teardown"
)

// What appears after the walk has passed is in no list of the walk's.
func TestIgnoredFileThatAppearsAfterTheWalk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.worktree("a")
	w.put(filepath.Join(w.repo, ".git", "info", "exclude"), ".env\n")
	git, err := exec.LookPath("git")
	w.do(err)
	env := filepath.Join(a, ".env")
	w.engine.Git = w.path("git-that-is-late")
	// In the second look, which is the last.
	w.do(os.WriteFile(w.engine.Git, []byte(`#!/bin/sh
for argument; do
	case $argument in --work-tree=*.unwind-*) aside=${argument#--work-tree=} ;; esac
done
case " $* " in *" ls-files "*) [ -z "$aside" ] || echo secret >"$aside/.env" ;; esac
exec `+git+` "$@"
`), 0o755))
	reports := w.engine.RemoveAll(t.Context(), w.targets, AllHooks{})
	if got := verdict(reports[0]); got != "preserved:ignored_precious" {
		t.Errorf("got %s", got)
	}
	if _, err := os.Stat(env); err != nil {
		t.Error(err)
	}
}

// A path that a removed child has left is somebody's who takes it.
func TestPathOfARemovedChildIsTakenAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.worktree("a")
	w.put(filepath.Join(w.repo, ".git", "info", "exclude"), "/child/\n")
	child := w.worktreeAt(filepath.Join(a, "child"), "child")
	taken := filepath.Join(child, "notes.md")
	w.engine.reached = func(string) {
		if _, err := os.Lstat(child); err != nil {
			w.put(taken, "new work")
		}
	}
	reports := w.engine.RemoveAll(t.Context(), w.targets, AllHooks{})
	if reports[0].Disposition == teardown.DispositionRemoved {
		t.Errorf("the parent was removed: %+v", reports[0])
	}
	if content, err := os.ReadFile(taken); err != nil || string(content) != "new work\n" {
		t.Errorf("%q %v", content, err)
	}
}
