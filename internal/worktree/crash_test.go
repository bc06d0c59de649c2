package worktree

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unwind/teardown"
)

func expect(t *testing.T, reports []Report, want ...string) {
	t.Helper()
	for i, report := range reports {
		if verdict(report) != want[i] {
			t.Errorf("%q: got %s, want %s: %s\n  details %q\n  notes %q", report.Path, verdict(report), want[i], report.Message, report.Details, report.Notes)
		}
	}
}

// steps are all step boundaries of a removal, in order.
var steps = []string{"moving aside", "marked", "moved aside", "looked again", "rescued", "condemned", "released", "deleting", "deleted", "dropping", "entry moved", "dropped"}

func condemnedAt(step string) bool {
	for i, s := range steps {
		if s == step {
			return i > 4
		}
	}
	return false
}

// crash runs a removal in a child that kills itself at a step, and answers the
// quarantine, "" if the directory is where it was or wholly gone.
func (w *world) crash(step, journal string) string {
	w.t.Helper()
	err := childJob{Root: w.root, Targets: w.targets, KillAt: step, Journal: journal}.command(w.t).Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.String() != "signal: killed" {
		w.t.Fatalf("the child was not killed at %q: %v", step, err)
	}
	if left := quarantinesAt(w.targets[0].Path); len(left) > 0 {
		return left[0]
	}
	return ""
}

// journals are the two ways to keep the facts: with a database and a registered
// nonce, and by hand.
var journals = []struct {
	name     string
	database bool
}{{"database", true}, {"by hand", false}}

func (w *world) journal(database bool) string {
	w.t.Helper()
	if !database {
		return ""
	}
	registered, err := w.engine.Register(context.Background(), w.targets[0])
	w.do(err)
	w.targets[0].Nonce = registered.Nonce
	return w.path("journal")
}

func (w *world) removeOne(journal string) Report {
	w.t.Helper()
	if journal == "" {
		return w.engine.RemoveAll(context.Background(), w.targets, AllHooks{})[0]
	}
	report, err := w.engine.Remove(context.Background(), w.targets[0], &fileJournal{path: journal}, Hooks{Name: "row1"})
	w.do(err)
	return report
}

func TestCrashThenRemoved(t *testing.T) {
	t.Parallel()
	for _, kind := range journals {
		for _, step := range steps {
			t.Run(kind.name+"/"+step, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				a := w.detached("a")
				w.keepCommit(w.commit(a, "only.txt"))
				w.put(filepath.Join(a, "node_modules/x.js"), "x")
				journal := w.journal(kind.database)
				before := w.snapshot(a)
				quarantine := w.crash(step, journal)
				w.checkCrashed(step, before, quarantine)
				report := w.removeOne(journal)
				want := teardown.DispositionRemoved
				if step == "dropped" || !kind.database && step == "entry moved" {
					want = teardown.DispositionAlreadyGone
				}
				if kind.database && condemnedAt(step) {
					want = teardown.DispositionRemoved
				}
				if report.Disposition != want {
					t.Errorf("got %s, want %s: %s %q", verdict(report), want, report.Message, report.Details)
				}
				if _, err := os.Lstat(filepath.Join(w.repo, ".git/worktrees/a")); err == nil {
					t.Error("the registration is still there")
				}
				if step == "entry moved" && !kind.database {
					// By hand nothing leads back to a registration that is out of
					// the registry; the next removal in the repository deletes it.
					w.targets = nil
					w.worktree("b")
					expect(t, w.engine.RemoveAll(t.Context(), w.targets, AllHooks{}), "removed")
				}
				w.checkNothingLost(nil)
			})
		}
	}
}

// checkCrashed: after a crash the worktree is whole where it was or in
// quarantine, unless it was condemned.
func (w *world) checkCrashed(step string, before map[string]string, quarantine string) {
	w.t.Helper()
	if condemnedAt(step) && step != "condemned" && step != "released" {
		return
	}
	path := w.targets[0].Path
	if quarantine == "" {
		quarantine = path
	}
	after := map[string]string{}
	for name, is := range w.snapshot(quarantine) {
		after[path+strings.TrimPrefix(name, quarantine)] = is
	}
	if changed := differences(before, after); len(changed) > 0 {
		w.t.Errorf("after a crash at %q: %q", step, changed)
	}
}

func TestCrashThenDirtyIsPutBack(t *testing.T) {
	t.Parallel()
	for _, kind := range journals {
		for _, step := range steps[:5] {
			t.Run(kind.name+"/"+step, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				a := w.worktree("a")
				journal := w.journal(kind.database)
				dir := w.crash(step, journal)
				if dir == "" {
					dir = a
				}
				w.put(filepath.Join(dir, "late.txt"), "late")
				expect(t, []Report{w.removeOne(journal)}, "preserved:untracked")
				w.keep(filepath.Join(a, "late.txt"))
				w.checkNothingLost(nil)
				w.do(os.Remove(filepath.Join(a, "late.txt")))
				expect(t, []Report{w.removeOne(journal)}, "removed")
				w.checkLeftovers()
			})
		}
	}
}

// TestCondemnedIsOnlyDeleted: what is half deleted looks modified, and must not
// be put back for it.
func TestCondemnedIsOnlyDeleted(t *testing.T) {
	t.Parallel()
	for _, kind := range journals {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			journal := w.journal(kind.database)
			quarantine := w.crash("deleting", journal)
			w.put(filepath.Join(quarantine, "late.txt"), "late")
			w.put(filepath.Join(a, "mine.txt"), "something new at the path")
			w.keep(filepath.Join(a, "mine.txt"))
			report := w.removeOne(journal)
			if report.Disposition != teardown.DispositionRemoved {
				t.Errorf("got %s: %s", verdict(report), report.Message)
			}
			w.checkNothingLost(nil)
		})
	}
}

func TestOccupiedPathKeepsQuarantine(t *testing.T) {
	t.Parallel()
	for _, kind := range journals {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			journal := w.journal(kind.database)
			quarantine := w.crash("moved aside", journal)
			w.put(filepath.Join(quarantine, "late.txt"), "late")
			w.put(filepath.Join(a, "mine.txt"), "something new at the path")
			w.keep(filepath.Join(a, "mine.txt"), filepath.Join(quarantine, "late.txt"))
			report := w.removeOne(journal)
			if verdict(report) != "preserved:untracked" || report.Quarantine != quarantine {
				t.Errorf("got %s, quarantine %q: %s", verdict(report), report.Quarantine, report.Message)
			}
			for path, sum := range w.precious {
				if w.sum(path) != sum {
					t.Errorf("%q changed", path)
				}
			}
			err := w.engine.PutBack(t.Context(), w.targets[0], quarantine)
			if teardown.CodeOf(err) != teardown.CodePathOccupied {
				t.Errorf("put back: %v", err)
			}
			w.do(os.RemoveAll(a))
			w.do(w.engine.PutBack(t.Context(), w.targets[0], quarantine))
			w.do(w.engine.PutBack(t.Context(), w.targets[0], quarantine))
			if _, err := os.Stat(filepath.Join(a, "late.txt")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPutBackOfNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.worktree("a")
	w.do(os.RemoveAll(a))
	err := w.engine.PutBack(t.Context(), w.targets[0], w.path("wts", quarantineName("a", "row1", 0)))
	if teardown.CodeOf(err) != teardown.CodeWorktreeMissing {
		t.Errorf("got %v", err)
	}
	err = w.engine.PutBack(t.Context(), w.targets[0], w.path("home"))
	if teardown.CodeOf(err) != teardown.CodeInternal {
		t.Errorf("a directory that is no quarantine: %v", err)
	}
}

// TestRemovalByOthersIsLeftAlone: by hand nobody knows what the database says
// about a quarantine.
func TestRemovalByOthersIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"moved aside", "deleting"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.worktree("a")
			journal := w.journal(true)
			quarantine := w.crash(step, journal)
			before := w.snapshot(w.root)
			expect(t, w.engine.RemoveAll(t.Context(), w.targets, AllHooks{}), "failed:busy")
			expect(t, w.engine.InspectAll(t.Context(), w.targets, AllHooks{}), "failed:busy")
			if changed := differences(before, w.snapshot(w.root)); len(changed) > 0 {
				t.Errorf("changed: %q", changed)
			}
			if !isDirectory(quarantine) {
				t.Error("the quarantine is gone")
			}
			expect(t, []Report{w.removeOne(journal)}, "removed")
			w.checkLeftovers()
		})
	}
}

// TestHandedOverFromByHand: a finalization finishes what a removal by hand
// began.
func TestHandedOverFromByHand(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"moved aside", "deleting"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.worktree("a")
			journal := w.journal(true)
			w.crash(step, "")
			expect(t, []Report{w.removeOne(journal)}, "removed")
			w.checkLeftovers()
		})
	}
}

var errDatabase = &teardown.Error{Code: teardown.CodeDatabaseUnavailable, Retryable: true, Message: "the database does not answer; start it"}

func TestJournalFails(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"moving aside", "condemned"} {
		for _, lost := range []bool{false, true} {
			name := step
			if lost {
				name += " after it was written"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				a := w.worktree("a")
				w.journal(true)
				journal := &fileJournal{path: w.path("journal"), losesAnswer: lost, fail: func(at string) error {
					if at == step {
						return errDatabase
					}
					return nil
				}}
				before := w.snapshot(a, w.repo)
				report, err := w.engine.Remove(t.Context(), w.targets[0], journal, Hooks{Name: "row1"})
				if !errors.Is(err, errDatabase) || verdict(report) != "failed:database_unavailable" || !report.Retryable || report.Quarantine != "" {
					t.Errorf("got %s, quarantine %q, error %v", verdict(report), report.Quarantine, err)
				}
				if changed := differences(before, w.snapshot(a, w.repo)); len(changed) > 0 {
					t.Errorf("changed: %q", changed)
				}
				journal.fail = nil
				w.put(filepath.Join(a, "late.txt"), "late")
				report, err = w.engine.Remove(t.Context(), w.targets[0], journal, Hooks{Name: "row1"})
				w.do(err)
				expect(t, []Report{report}, "preserved:untracked")
				w.do(os.Remove(filepath.Join(a, "late.txt")))
				report, err = w.engine.Remove(t.Context(), w.targets[0], journal, Hooks{Name: "row1"})
				w.do(err)
				expect(t, []Report{report}, "removed")
				w.checkLeftovers()
			})
		}
	}
}

// at makes something happen at a step of the removal.
func (w *world) at(step string, happen func()) {
	done := false
	w.engine.reached = func(reached string) {
		if reached == step && !done {
			done = true
			happen()
		}
	}
}

func TestRaces(t *testing.T) {
	t.Parallel()
	for _, race := range []struct {
		name  string
		build func(w *world, a string)
		want  string
	}{
		{"write before the rename", func(w *world, a string) {
			w.at("moving aside", func() {
				w.put(filepath.Join(a, "late.txt"), "late")
				w.keep(filepath.Join(a, "late.txt"))
			})
		}, "preserved:untracked"},
		{"ignored write before the rename", func(w *world, a string) {
			w.at("moving aside", func() {
				w.put(filepath.Join(a, ".env"), "late")
				w.keep(filepath.Join(a, ".env"))
			})
		}, "preserved:ignored_precious"},
		{"lock before the rename", func(w *world, a string) {
			w.at("moving aside", func() { w.git(w.repo, "worktree", "lock", a) })
		}, "preserved:locked"},
		{"commit before the rename", func(w *world, a string) {
			w.at("moving aside", func() {
				w.git(a, "checkout", "-q", "--detach")
				w.keepCommit(w.commit(a, "late.txt"))
			})
		}, "removed"},
		{"process enters before the rename", func(w *world, a string) {
			w.at("moving aside", func() { w.hold(a) })
		}, "failed:in_use"},
		{"directory is exchanged before the rename", func(w *world, a string) {
			w.at("moving aside", func() {
				w.do(exec.Command("cp", "-a", a, a+"2").Run())
				w.do(os.Rename(a, a+"1"))
				w.do(os.Rename(a+"2", a))
				w.put(filepath.Join(a, "mine.txt"), "mine")
				w.keep(filepath.Join(a, "mine.txt"))
			})
		}, "preserved:identity_mismatch"},
		{"something new at the path after the rename", func(w *world, a string) {
			w.at("moved aside", func() {
				w.put(filepath.Join(a, "mine.txt"), "mine")
				w.keep(filepath.Join(a, "mine.txt"))
			})
		}, "removed"},
		{"commit through the admin directory after the last look", func(w *world, a string) {
			admin := w.admin(a)
			w.at("deleted", func() { w.keepCommit(w.commitByPlumbing(admin)) })
		}, "removed"},
		{"commit through the admin directory when it is dropped", func(w *world, a string) {
			admin := w.admin(a)
			w.at("dropping", func() { w.keepCommit(w.commitByPlumbing(admin)) })
		}, "removed"},
	} {
		t.Run(race.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			race.build(w, a)
			expect(t, w.engine.RemoveAll(t.Context(), w.targets, AllHooks{}), race.want)
			w.checkNothingLost(nil)
		})
	}
}

// commitByPlumbing makes a commit and points the HEAD of an admin directory at
// it, as a git that was started earlier could.
func (w *world) commitByPlumbing(admin string) string {
	w.t.Helper()
	oid := w.git(w.repo, "commit-tree", "-p", "main", "-m", "late", "main^{tree}")
	w.do(os.WriteFile(filepath.Join(admin, "HEAD"), []byte(oid+"\n"), 0o644))
	return oid
}

func TestContextEnds(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"moved aside", "looked again", "deleting"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			w.journal(true)
			before := w.snapshot(a)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w.at(step, cancel)
			journal := &fileJournal{path: w.path("journal"), fail: func(string) error { return ctx.Err() }}
			report, err := w.engine.Remove(ctx, w.targets[0], journal, Hooks{Name: "row1"})
			if err == nil || report.Disposition != teardown.DispositionFailed {
				t.Errorf("got %s, error %v", verdict(report), err)
			}
			if step != "deleting" {
				if changed := differences(before, w.snapshot(a)); len(changed) > 0 {
					t.Errorf("changed: %q", changed)
				}
			}
			w.engine.reached, journal.fail = nil, nil
			report, err = w.engine.Remove(t.Context(), w.targets[0], journal, Hooks{Name: "row1"})
			w.do(err)
			expect(t, []Report{report}, "removed")
			w.checkLeftovers()
		})
	}
}

func TestContextEndedBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.worktree("a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	report, err := w.engine.Inspect(ctx, w.targets[0])
	if teardown.CodeOf(err) != teardown.CodeTimeout {
		t.Errorf("got %s, error %v", verdict(report), err)
	}
	expect(t, w.engine.InspectAll(ctx, w.targets, AllHooks{}), "failed:timeout")
	expect(t, w.engine.RemoveAll(ctx, w.targets, AllHooks{}), "failed:timeout")
}

func TestEverythingFoundIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.worktree("a")
	w.appendTo(filepath.Join(a, "src/app.txt"), "edit")
	w.put(filepath.Join(a, ".env"), "KEY=1")
	for i := range 30 {
		w.put(filepath.Join(a, "notes", strings.Repeat("n", i+1)), "x")
	}
	w.git(w.repo, "worktree", "lock", a)
	report, err := w.engine.Inspect(t.Context(), w.targets[0])
	w.do(err)
	var codes []string
	for _, f := range report.Findings {
		codes = append(codes, string(f.Code))
	}
	if got := strings.Join(codes, " "); got != "locked modified untracked ignored_precious" {
		t.Errorf("found %q", got)
	}
	if len(report.Details) != teardown.MaxDetails+1 || report.Details[teardown.MaxDetails] != "and 13 more" {
		t.Errorf("%d details: %q", len(report.Details), report.Details)
	}
	if report.Branch != "a" || len(report.Head) != 40 || report.Repository != w.repo || report.Files != 36 || report.Bytes == 0 {
		t.Errorf("branch %q, head %q, repository %q, %d files, %d bytes", report.Branch, report.Head, report.Repository, report.Files, report.Bytes)
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.worktree("a")
	for i := range 600 {
		w.put(filepath.Join(a, "build", strings.Repeat("n", i%50+1)+string(rune('a'+i/50))), "x")
	}
	seen := map[string]int64{}
	w.engine.RemoveAll(t.Context(), w.targets, AllHooks{Progress: func(path string, p teardown.Progress) {
		if path != a {
			t.Errorf("progress of %q", path)
		}
		seen[p.Step] = max(seen[p.Step], p.Files)
	}})
	if seen["looking"] < 600 || seen["deleting"] < 600 {
		t.Errorf("saw %v", seen)
	}
}
