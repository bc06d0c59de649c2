package worktree

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unwind/internal/lock"
	"unwind/teardown"
)

// What others do to a worktree while its removal is under way or was cut off.

func (w *world) registered(name string) bool {
	_, err := os.Lstat(filepath.Join(w.repo, ".git/worktrees", name))
	return err == nil
}

func TestPruneDoesNotForgetTheQuarantine(t *testing.T) {
	t.Parallel()
	for _, kind := range journals {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.detached("a")
			w.keepCommit(w.commit(a, "only.txt"))
			journal := w.journal(kind.database)
			w.crash("moved aside", journal)
			w.git(w.repo, "worktree", "prune", "--expire=now")
			w.git(w.repo, "reflog", "expire", "--expire=now", "--all")
			w.git(w.repo, "-c", "gc.worktreePruneExpire=now", "gc", "-q", "--prune=now")
			if !w.registered("a") {
				t.Error("git dropped the registration")
			}
			expect(t, []Report{w.removeOne(journal)}, "removed")
			w.checkNothingLost(nil)
		})
	}
}

func TestCommitsOfAForgottenQuarantineStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.detached("a")
	w.keepCommit(w.commit(a, "only.txt"))
	quarantine := w.crash("moved aside", "")
	w.git(w.repo, "worktree", "unlock", a)
	w.git(w.repo, "worktree", "prune", "--expire=now")
	before := w.snapshot(w.root)
	for _, targets := range [][]Target{w.targets, {{Path: a}}} {
		for _, reports := range [][]Report{w.engine.InspectAll(t.Context(), targets, AllHooks{}), w.engine.RemoveAll(t.Context(), targets, AllHooks{})} {
			expect(t, reports, "preserved:debris")
			if !strings.Contains(strings.Join(reports[0].Details, " "), quarantine) {
				t.Errorf("%q is not named: %q", quarantine, reports[0].Details)
			}
		}
	}
	if changed := differences(before, w.snapshot(w.root)); len(changed) > 0 {
		t.Errorf("changed: %q", changed)
	}
	w.do(os.RemoveAll(quarantine))
	expect(t, w.engine.RemoveAll(t.Context(), w.targets, AllHooks{}), "already_gone")
	w.checkNothingLost(nil)
}

// TestLockOfAPersonStays: our own lock around the quarantine is not mistaken for
// a person's, nor the other way round.
func TestLockOfAPersonStays(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"moving aside", "moved aside", "looked again", "rescued"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			w.at(step, func() {
				_, _ = w.tryGit(w.repo, "worktree", "unlock", a)
				w.git(w.repo, "worktree", "lock", "--reason", "keep this", a)
			})
			report := w.engine.RemoveAll(t.Context(), w.targets, AllHooks{})[0]
			expect(t, []Report{report}, "preserved:locked")
			if text, err := os.ReadFile(filepath.Join(w.admin(a), "locked")); err != nil || strings.TrimSpace(string(text)) != "keep this" {
				t.Errorf("the lock says %q (%v)", text, err)
			}
			w.checkNothingLost(nil)
		})
	}
}

func TestOwnLockGoesWithTheQuarantine(t *testing.T) {
	t.Parallel()
	for _, kind := range journals {
		for _, step := range []string{"marked", "moved aside"} {
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
				if _, err := os.Lstat(filepath.Join(w.admin(a), "locked")); err == nil {
					t.Error("the worktree is still locked")
				}
			})
		}
	}
}

// TestPathIsTakenAnew: somebody insists on the path before the worktree is
// condemned.
func TestPathIsTakenAnew(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"moved aside", "rescued"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			w.at(step, func() {
				w.git(w.repo, "worktree", "unlock", a)
				w.git(w.repo, "worktree", "prune", "--expire=now")
				w.git(w.repo, "worktree", "add", "-q", "--force", a, "a")
			})
			report := w.engine.RemoveAll(t.Context(), w.targets, AllHooks{})[0]
			if report.Disposition != teardown.DispositionPreserved || report.Quarantine == "" {
				t.Errorf("got %s, quarantine %q", verdict(report), report.Quarantine)
			}
			if status := w.git(a, "status", "--porcelain"); status != "" {
				t.Errorf("status %q", status)
			}
		})
	}
}

// TestPathAndBranchAreFreeAtOnce: as soon as the worktree is condemned, both can
// be used again.
func TestPathIsRegisteredAnewWhileItIsDeleted(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"deleting", "deleted"} {
		for _, crash := range []bool{false, true} {
			name := step
			if crash {
				name += ", after a crash"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				a := w.worktree("a")
				anew := func() {
					w.git(w.repo, "worktree", "add", "-q", a, "a")
					w.put(filepath.Join(a, "new.txt"), "new")
					w.keep(filepath.Join(a, "new.txt"))
				}
				if crash {
					w.crash(step, "")
					anew()
				} else {
					w.at(step, anew)
				}
				reports := w.engine.RemoveAll(t.Context(), w.targets, AllHooks{})
				if crash {
					expect(t, reports, "preserved:untracked")
				}
				if !w.registered("a1") {
					t.Error("the new registration was dropped")
				}
				if w.registered("a") {
					t.Error("the old registration is still there")
				}
				w.checkLeftovers()
				if status := w.git(a, "status", "--porcelain"); status != "?? new.txt" {
					t.Errorf("status %q", status)
				}
				for path, sum := range w.precious {
					if w.sum(path) != sum {
						t.Errorf("%q changed", path)
					}
				}
			})
		}
	}
}

// TestQuarantineIsCopiedBack: what is at the path and belongs to the
// registration keeps it, whatever was written down.
func TestQuarantineIsCopiedBack(t *testing.T) {
	t.Parallel()
	for _, kind := range journals {
		for step, want := range map[string]string{"moved aside": "preserved:identity_mismatch", "deleting": "failed:path_occupied", "deleted": "failed:path_occupied"} {
			t.Run(kind.name+"/"+step, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				a := w.worktree("a")
				journal := w.journal(kind.database)
				quarantine := w.crash(step, journal)
				w.do(exec.Command("cp", "-a", quarantine, a).Run())
				before := w.snapshot(a, quarantine)
				report := w.removeOne(journal)
				expect(t, []Report{report}, want)
				if report.Quarantine != quarantine {
					t.Errorf("quarantine %q", report.Quarantine)
				}
				if changed := differences(before, w.snapshot(a, quarantine)); len(changed) > 0 {
					t.Errorf("changed: %q", changed)
				}
				if !w.registered("a") {
					t.Error("the registration was dropped")
				}
			})
		}
	}
}

func TestCondemnedIsNotBelievedWithoutIdentity(t *testing.T) {
	t.Parallel()
	for name, quarantine := range map[string]string{
		"made by somebody else": ".a.unwind-hand-0011223344556677",
		"of another worktree":   ".ab.unwind-hand-0011223344556677",
		"of a shorter name":     "..unwind-hand-0011223344556677",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			quarantine := w.path("wts", quarantine)
			w.put(filepath.Join(quarantine, "mine.txt"), "mine")
			w.keep(filepath.Join(quarantine, "mine.txt"))
			text, err := json.Marshal(record{Quarantine: []byte(quarantine), Condemned: true})
			w.do(err)
			admin := w.admin(a)
			w.do(os.WriteFile(filepath.Join(admin, journalFile), text, 0o600))
			expect(t, w.engine.RemoveAll(t.Context(), w.targets, AllHooks{}), "preserved:identity_mismatch")
			w.do(os.RemoveAll(a))
			expect(t, w.engine.RemoveAll(t.Context(), w.targets, AllHooks{}), "preserved:identity_mismatch")
			for path, sum := range w.precious {
				if w.sum(path) != sum {
					t.Errorf("%q changed", path)
				}
			}
		})
	}
}

func TestQuarantineNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 250)
	for _, c := range []struct {
		name, base string
		want       bool
	}{
		{".a.unwind-row1", "a", true}, {".a.unwind-row1-2", "a", true}, {".a.unwind-row1", "ab", false}, {".ab.unwind-row1", "a", false},
		{"..unwind-row1", "a", false}, {"a.unwind-row1", "a", false}, {".a.unwind-", "a", false}, {".a.unwind-x y", "a", false},
		{".a.unwind-b.unwind-row1", "a.unwind-b", true}, {".a.unwind-b.unwind-row1", "a", false},
		{quarantineName(long, "row1", 0), long, true}, {quarantineName(long, "row1", 3), long, true}, {quarantineName(long, "row1", 0), long[:100], false},
	} {
		if got := isQuarantineOf(c.name, c.base); got != c.want {
			t.Errorf("%q of %q: %v", c.name, c.base, got)
		}
	}
}

func TestTwoStateDirectories(t *testing.T) {
	t.Parallel()
	for _, kind := range journals {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.worktree("a")
			journal := w.journal(kind.database)
			other := *w.engine
			other.Locks, other.LockWait = lock.Dir(w.path("other locks")), 1
			for _, step := range []string{"moved aside"} {
				w.at(step, func() { expect(t, other.RemoveAll(t.Context(), w.targets, AllHooks{}), "failed:busy") })
			}
			expect(t, []Report{w.removeOne(journal)}, "removed")
			w.checkLeftovers()
		})
	}
}

func TestMovedByGitAfterTheJournalWasWritten(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"moving aside", "marked"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			w.crash(step, "")
			_, _ = w.tryGit(w.repo, "worktree", "unlock", a)
			w.git(w.repo, "worktree", "move", a, w.path("wts/b"))
			w.targets[0].Path = w.path("wts/b")
			expect(t, w.removeAll(), "removed")
		})
	}
}

func TestQuarantineIsRepaired(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"moved aside", "deleting"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.worktree("a")
			quarantine := w.crash(step, "")
			w.git(w.repo, "worktree", "repair", quarantine)
			w.targets[0].Path = quarantine
			want := "removed"
			if step == "deleting" {
				want = "preserved:modified"
			}
			expect(t, w.engine.RemoveAll(t.Context(), w.targets, AllHooks{}), want)
		})
	}
}

func TestCrashIsFinishedWithoutNamingTheRepository(t *testing.T) {
	t.Parallel()
	for _, step := range append(steps[:len(steps):len(steps)], "finished") {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.worktree("a")
			w.crash(step, "")
			w.targets[0].Repository = ""
			report := w.engine.RemoveAll(t.Context(), w.targets, AllHooks{})[0]
			if report.Disposition != teardown.DispositionRemoved && report.Disposition != teardown.DispositionAlreadyGone {
				t.Errorf("got %s: %s %q", verdict(report), report.Message, report.Details)
			}
			if w.registered("a") {
				t.Error("the registration is still there")
			}
			w.checkNothingLost(nil)
		})
	}
}

func TestTemporaryFilesOfAKilledRunAreSwept(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"comparing", "capturing"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			if step != "comparing" {
				w.put(filepath.Join(a, "new.txt"), "new")
			}
			temporary := w.path("tmp")
			w.do(os.Mkdir(temporary, 0o700))
			w.put(filepath.Join(temporary, scratchPrefix+"of-mine"), "not a directory")
			job := childJob{Root: w.root, Targets: w.targets, KillAt: step, Save: step != "comparing", Temporary: temporary}
			for range 3 {
				_ = job.command(t).Run()
			}
			if names, err := os.ReadDir(temporary); err != nil || len(names) > 2 {
				t.Errorf("they grow: %q (%v)", names, err)
			}
			job.KillAt = ""
			w.do(job.command(t).Run())
			if names, err := os.ReadDir(temporary); err != nil || len(names) != 1 {
				t.Errorf("left behind: %q (%v)", names, err)
			}
		})
	}
}

func TestHalfWrittenJournalIsSwept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.worktree("a")
	w.put(filepath.Join(a, "new.txt"), "new")
	draft := filepath.Join(w.admin(a), journalFile+".new")
	w.put(draft, "{")
	expect(t, w.engine.RemoveAll(t.Context(), w.targets, AllHooks{}), "preserved:untracked")
	if _, err := os.Lstat(draft); err == nil {
		t.Error("it is still there")
	}
}

func TestDamagedAdministrationIsNoMainWorktree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.worktree("a")
	w.do(os.Remove(filepath.Join(w.admin(a), "commondir")))
	expect(t, w.removeAll(), "preserved:cannot_inspect")
	w.targets[0].Repository = ""
	expect(t, w.removeAll(), "preserved:cannot_inspect")
}
