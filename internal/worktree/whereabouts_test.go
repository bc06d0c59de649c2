package worktree

import (
	"os"
	"testing"

	"unwind/teardown"
)

func TestLocate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		disturb func(w *world, path, quarantine string)
		want    Whereabouts
		code    teardown.Code
	}{
		{"as it was", func(*world, string, string) {}, AtPath, ""},
		{"deleted", func(w *world, path, _ string) { w.do(os.RemoveAll(path)) }, Absent, ""},
		{"moved aside", func(w *world, path, quarantine string) { w.do(os.Rename(path, quarantine)) }, Aside, ""},
		{"moved aside, its path taken", func(w *world, path, quarantine string) {
			w.do(os.Rename(path, quarantine))
			w.put(path, "theirs")
		}, Aside, teardown.CodePathOccupied},
		{"moved elsewhere", func(w *world, path, _ string) { w.git(w.repo, "worktree", "move", path, w.path("wts/b")) }, Absent, ""},
		{"another worktree at its path", func(w *world, path, _ string) {
			w.git(w.repo, "worktree", "remove", path)
			w.git(w.repo, "worktree", "add", "-q", "-b", "later", path)
		}, Absent, ""},
		{"a main working tree at its path", func(w *world, path, _ string) {
			w.git(w.repo, "worktree", "remove", path)
			w.git(w.repo, "init", "-q", path)
		}, Absent, ""},
		{"its registration pruned", func(w *world, path, _ string) { w.do(os.RemoveAll(w.admin(path))) }, AtPath, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			path := w.worktree("a")
			registered, err := w.engine.Register(t.Context(), w.targets[0])
			w.do(err)
			quarantine := w.path("wts", quarantineName("a", "row1", 0))
			test.disturb(w, path, quarantine)
			at, err := w.engine.Locate(Target{Repository: w.repo, Path: path, Nonce: registered.Nonce}, quarantine)
			if at != test.want || teardown.CodeOf(err) != test.code {
				t.Errorf("got %d, %v", at, err)
			}
		})
	}
}
