package worktree

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unwind/teardown"
)

// savedWorld is a world with one worktree's work saved and the worktree gone.
func savedWorld(t *testing.T) (w *world, ref string, before state) {
	w = newWorld(t)
	a := w.worktree("a")
	w.appendTo(filepath.Join(a, "src/app.txt"), "staged")
	w.git(a, "add", "-A")
	w.put(filepath.Join(a, "new.txt"), "new")
	before = w.stateOf(a)
	report := w.removeSaving()
	expect(t, []Report{report}, "removed")
	return w, report.SavedRef, before
}

func TestRecoverBranches(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		name, branch string // the option
		prepare      func(w *world)
		want, note   string
		code         teardown.Code
	}{
		{name: "as it was", prepare: func(*world) {}, want: "a"},
		{name: "checked out elsewhere", prepare: func(w *world) { w.git(w.repo, "worktree", "add", "-q", w.path("other"), "a") },
			want: "unwind/recovered/a", note: "is checked out at"},
		{name: "moved on", prepare: func(w *world) {
			w.git(w.repo, "checkout", "-q", "a")
			w.commit(w.repo, "later.txt")
			w.git(w.repo, "checkout", "-q", "main")
		}, want: "unwind/recovered/a", note: "has moved on"},
		{name: "gone", prepare: func(w *world) { w.git(w.repo, "branch", "-qD", "a") }, want: "unwind/recovered/a", note: "is gone"},
		{name: "gone, and its substitute is taken", prepare: func(w *world) {
			w.git(w.repo, "branch", "-qD", "a")
			w.git(w.repo, "branch", "-q", "unwind/recovered/a")
		}, want: "unwind/recovered/a-2", note: "is gone"},
		{name: "gone, and no substitute is possible", prepare: func(w *world) {
			w.git(w.repo, "branch", "-qD", "a")
			w.git(w.repo, "branch", "-q", "unwind")
		}, want: "", note: "HEAD is detached"},
		{name: "another one that is new", branch: "b", prepare: func(*world) {}, want: "b"},
		{name: "another one at the same commit", branch: "b", prepare: func(w *world) { w.git(w.repo, "branch", "-q", "b", "a") }, want: "b"},
		{name: "another one at another commit", branch: "b", prepare: func(w *world) {
			w.git(w.repo, "checkout", "-q", "-b", "b")
			w.commit(w.repo, "later.txt")
			w.git(w.repo, "checkout", "-q", "main")
		}, code: teardown.CodeConflict},
		{name: "the main checkout's", branch: "main", prepare: func(*world) {}, code: teardown.CodeConflict},
		{name: "no name for a branch", branch: "a..b", prepare: func(*world) {}, code: teardown.CodeConflict},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w, ref, before := savedWorld(t)
			s.prepare(w)
			refs := w.refs()
			recovered, err := w.engine.Recover(t.Context(), RecoverOptions{Repository: w.repo, Ref: ref, Branch: s.branch})
			if teardown.CodeOf(err) != s.code {
				t.Fatalf("error %v, want %q", err, s.code)
			}
			if s.code != "" {
				if _, err := os.Lstat(w.path("wts/a")); err == nil {
					t.Error("a worktree was left behind")
				}
				w.checkNothingLost(refs)
				return
			}
			notes := strings.Join(recovered.Notes, "; ")
			if recovered.Branch != s.want || !strings.Contains(notes, s.note) || s.note == "" && notes != "" {
				t.Errorf("branch %q, notes %q", recovered.Branch, notes)
			}
			if got := branchOf(w.admin(recovered.Path)); got != s.want {
				t.Errorf("branch %q is checked out, want %q", got, s.want)
			}
			w.requireState(before, w.stateOf(recovered.Path))
			if _, err := os.Lstat(filepath.Join(w.admin(recovered.Path), "locked")); err == nil {
				t.Error("the worktree is still locked")
			}
			w.checkNothingLost(refs)
		})
	}
}

func TestRecoverPlaces(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		name, path string // below the world's directory
		prepare    func(w *world)
		code       teardown.Code
	}{
		{name: "new directories", path: "deep/er/b"},
		{name: "an empty directory", path: "wts/b", prepare: func(w *world) { w.do(os.Mkdir(w.path("wts/b"), 0o755)) }},
		{name: "a directory that is not empty", path: "wts/b", prepare: func(w *world) { w.put(w.path("wts/b/mine.txt"), "mine") }, code: teardown.CodePathOccupied},
		{name: "a file", path: "wts/b", prepare: func(w *world) { w.put(w.path("wts/b"), "mine") }, code: teardown.CodeUnsafeTarget},
		{name: "a link", path: "wts/b", prepare: func(w *world) { w.do(os.Symlink("a", w.path("wts/b"))) }, code: teardown.CodeUnsafeTarget},
		{name: "outside of the roots", path: "../b", code: teardown.CodeOutsideRoots},
		{name: "bytes that are not UTF-8", path: "wts/\xff\n"},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w, ref, before := savedWorld(t)
			if s.prepare != nil {
				s.prepare(w)
			}
			recovered, err := w.engine.Recover(t.Context(), RecoverOptions{Repository: w.repo, Ref: ref, Path: w.path(s.path)})
			if teardown.CodeOf(err) != s.code {
				t.Fatalf("error %v, want %q", err, s.code)
			}
			if s.code == "" {
				w.requireState(before, w.stateOf(recovered.Path))
			}
			w.checkNothingLost(nil)
		})
	}
}

func TestRecoverWhatIsNotSaved(t *testing.T) {
	t.Parallel()
	w, ref, _ := savedWorld(t)
	w.git(w.repo, "update-ref", savedRefs+"/by-hand/other", "main")
	for _, options := range []RecoverOptions{
		{Repository: w.repo, Ref: "refs/heads/main"}, {Repository: w.repo, Ref: savedRefs + "/none"},
		{Repository: w.repo, Ref: savedRefs + "/by-hand/other"}, {Repository: w.repo, Ref: savedRefs + "/"},
	} {
		if _, err := w.engine.Recover(t.Context(), options); teardown.CodeOf(err) != teardown.CodeWorktreeMissing {
			t.Errorf("%s: %v", options.Ref, err)
		}
	}
	if _, err := w.engine.Recover(t.Context(), RecoverOptions{Repository: w.path("home"), Ref: ref}); teardown.CodeOf(err) != teardown.CodeRepositoryMissing {
		t.Errorf("no repository: %v", err)
	}
}

// TestRecoverFails: whichever step fails, nothing is left behind and the ref is
// as it was.
func TestRecoverFails(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"worktree", "read-tree", "cat-file", "write-tree", "ls-tree"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			w, ref, before := savedWorld(t)
			refs, was := w.refs(), w.snapshot(w.path("wts"), w.repo+"/.git/refs")
			w.put(w.path("failing.text"), "#!/bin/sh\nfor arg; do if [ \"$arg\" = "+command+" ]; then echo no room >&2; exit 129; fi; done\nexec git \"$@\"")
			w.program(w.path("failing"), w.path("failing.text"))
			w.engine.Git = w.path("failing")
			if _, err := w.engine.Recover(t.Context(), RecoverOptions{Repository: w.repo, Ref: ref}); teardown.CodeOf(err) != teardown.CodeGitFailed {
				t.Errorf("error %v", err)
			}
			if changed := differences(was, w.snapshot(w.path("wts"), w.repo+"/.git/refs")); len(changed) > 0 {
				t.Errorf("changed: %q", changed)
			}
			w.checkNothingLost(refs)
			w.engine.Git = ""
			w.recover(RecoverOptions{Ref: ref})
			w.requireState(before, w.stateOf(w.path("wts/a")))
		})
	}
}

// TestRecoveryThatWasKilled is told from a worktree that is complete, and begun
// anew by the next one. What somebody put there meanwhile stays.
func TestRecoveryThatWasKilled(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"added", "files written", "attached"} {
		for _, touched := range []string{"", "half a file", "another file", "an edit"} {
			t.Run(step+" "+touched, func(t *testing.T) {
				t.Parallel()
				w, ref, before := savedWorld(t)
				w.at(step, func() { panic("killed") })
				func() {
					defer func() { _ = recover() }()
					_, _ = w.engine.Recover(t.Context(), RecoverOptions{Repository: w.repo, Ref: ref})
				}()
				w.engine.reached = nil
				a := w.path("wts/a")
				report := w.engine.InspectAll(t.Context(), w.targets, AllHooks{})[0]
				if verdict(report) != "preserved:locked" || !strings.Contains(report.Details[0], "unwind recover is not finished: "+ref) {
					t.Errorf("got %s %q", verdict(report), report.Details)
				}
				switch touched {
				case "half a file":
					w.do(os.MkdirAll(filepath.Join(a, "src"), 0o755))
					w.do(os.WriteFile(filepath.Join(a, "src/app.txt"), []byte("ap"), 0o600))
				case "another file":
					w.put(filepath.Join(a, "mine.txt"), "mine")
				case "an edit":
					w.put(filepath.Join(a, "src/app.txt"), "mine")
				}
				kept := w.snapshot(a)
				_, err := w.engine.Recover(t.Context(), RecoverOptions{Repository: w.repo, Ref: ref})
				if touched == "another file" || touched == "an edit" {
					if teardown.CodeOf(err) != teardown.CodePathOccupied {
						t.Errorf("error %v", err)
					}
					if changed := differences(kept, w.snapshot(a)); len(changed) > 0 {
						t.Errorf("changed: %q", changed)
					}
					return
				}
				w.do(err)
				w.requireState(before, w.stateOf(a))
				w.checkNothingLost(nil)
			})
		}
	}
}

// TestRecoveryWhoseDirectoryIsGone: only its locked registration is left.
func TestRecoveryWhoseDirectoryIsGone(t *testing.T) {
	t.Parallel()
	w, ref, before := savedWorld(t)
	w.at("added", func() { panic("killed") })
	func() {
		defer func() { _ = recover() }()
		_, _ = w.engine.Recover(t.Context(), RecoverOptions{Repository: w.repo, Ref: ref})
	}()
	w.engine.reached = nil
	w.do(os.RemoveAll(w.path("wts/a")))
	w.recover(RecoverOptions{Ref: ref})
	w.requireState(before, w.stateOf(w.path("wts/a")))
}

func TestKeptRefs(t *testing.T) {
	t.Parallel()
	w, ref, _ := savedWorld(t)
	w.targets = nil
	b := w.detached("b")
	only := w.commit(b, "only.txt")
	report, err := w.engine.Remove(t.Context(), w.targets[0], &fileJournal{path: w.path("journal")}, Hooks{Name: "row1"})
	if w.do(err); verdict(report) != "removed" || len(report.Rescued) != 1 {
		t.Fatalf("got %s, rescued %q", verdict(report), report.Rescued)
	}
	saved, err := w.engine.SavedWork(t.Context(), w.repo)
	if w.do(err); len(saved) != 1 || saved[0].Ref != ref || saved[0].Path != w.path("wts/a") || saved[0].Branch != "a" || saved[0].At.IsZero() || saved[0].Worktree != "" {
		t.Errorf("saved %+v", saved)
	}
	rescued, err := w.engine.Rescued(t.Context(), filepath.Join(w.repo, "src"))
	if w.do(err); len(rescued) != 1 || rescued[0].Commit != only || rescued[0].Worktree != "row1" || rescued[0].Subject != "add only.txt" || rescued[0].Repository != w.repo {
		t.Errorf("rescued %+v", rescued)
	}
	stale := rescued[0]
	stale.Commit = w.git(w.repo, "rev-parse", "main")
	for _, bad := range []KeptRef{stale, {Ref: "refs/heads/main", Commit: stale.Commit}, {Ref: rescueRefs + "/none/1", Commit: only}} {
		if err := w.engine.DropKept(t.Context(), w.repo, []KeptRef{rescued[0], bad}); teardown.CodeOf(err) != teardown.CodeConflict {
			t.Errorf("%s: %v", bad.Ref, err)
		}
	}
	w.keepCommit(only)
	w.checkNothingLost(nil)
	w.do(w.engine.DropKept(t.Context(), w.repo, rescued))
	if rescued, err = w.engine.Rescued(t.Context(), w.repo); err != nil || len(rescued) > 0 {
		t.Errorf("rescued %+v, %v", rescued, err)
	}
}
