package worktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unwind/internal/lock"
	"unwind/teardown"
)

// fakeGit makes the engine run a script that goes on to the real git.
func (w *world) fakeGit(script string) {
	w.t.Helper()
	path := w.path("home/git")
	w.put(path+".text", "#!/bin/sh\n"+script+"\nexec git \"$@\"")
	w.program(path, path+".text")
	w.engine.Git = path
}

func TestGitEnvironment(t *testing.T) {
	t.Parallel()
	git := &repositoryGit{env: []string{"A=b"}, index: "/tmp/index"}
	env := git.environ([]string{"GIT_DIR=/x", "GIT_ANYTHING=1", "HOME=/h", "LC_ALL=de_DE.UTF-8", "PATH=/bin"})
	for _, want := range []string{"HOME=/h", "PATH=/bin", "LC_ALL=C", "GIT_INDEX_FILE=/tmp/index", "A=b", "GIT_NO_LAZY_FETCH=1", "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0"} {
		if !strings.Contains(strings.Join(env, "\n")+"\n", want+"\n") {
			t.Errorf("%q is missing in %q", want, env)
		}
	}
	for _, variable := range env {
		if strings.HasPrefix(variable, "GIT_DIR=") || strings.HasPrefix(variable, "GIT_ANYTHING=") || variable == "LC_ALL=de_DE.UTF-8" {
			t.Errorf("%q was passed on", variable)
		}
	}
}

// TestGitTimesOut: a git that hangs is killed with all it started.
func TestGitTimesOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sparse("a")
	w.fakeGit(`case " $* " in *" status "*) sleep 600 & echo $! > "` + w.path("home/pid") + `"; wait;; esac`)
	w.engine.GitLimit = 2 * time.Second
	before := w.snapshot(w.path("wts"), w.repo)
	expect(t, w.engine.RemoveAll(t.Context(), w.targets, AllHooks{}), "failed:timeout")
	if changed := differences(before, w.snapshot(w.path("wts"), w.repo)); len(changed) > 0 {
		t.Errorf("changed: %q", changed)
	}
	text, err := os.ReadFile(w.path("home/pid"))
	w.do(err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	w.do(err)
	waitFor(t, "the child of git to end", func() bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) || zombie(pid) })
}

func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(text), ") Z ")
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 1000 {
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("waited in vain for %s", what)
}

// TestGitWarns: git exits with 0 when it could not read everything.
func TestGitWarns(t *testing.T) {
	t.Parallel()
	for _, script := range []string{
		`case " $* " in *" status "*) echo "warning: could not open directory 'x/': Permission denied" >&2;; esac`,
		`case " $* " in *" status "*) exit 1;; esac`,
		`case " $* " in *" status "*) printf '?? cut off'; exit 0;; esac`,
		`case " $* " in *" ls-files "*) exit 128;; esac`,
		`case " $* " in *" rev-list "*) exit 128;; esac`,
		`case " $* " in *" diff-index "*) printf garbage; exit 0;; esac`,
		`case " $* " in *" config "*) exit 3;; esac`,
		`exit 127`,
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.sparse("a")
			w.fakeGit(script)
			expect(t, w.removeAll(), "preserved:cannot_inspect")
		})
	}
}

func TestGitIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.worktree("a")
	w.engine.Git = w.path("home/no-such-git")
	expect(t, w.removeAll(), "preserved:cannot_inspect")
}

// TestRescueFails: commits that could not be kept keep the worktree.
func TestRescueFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.detached("a")
	w.commit(a, "only.txt")
	w.fakeGit(`case " $* " in *" update-ref "*) echo "fatal: no space left" >&2; exit 128;; esac`)
	before := w.snapshot(a, w.repo)
	expect(t, w.engine.RemoveAll(t.Context(), w.targets, AllHooks{}), "failed:git_failed")
	if changed := differences(before, w.snapshot(a, w.repo)); len(changed) > 0 {
		t.Errorf("changed: %q", changed)
	}
}

func TestRescuedRefs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.detached("a")
	oid := w.commit(a, "only.txt")
	report, err := w.engine.Inspect(t.Context(), w.targets[0])
	w.do(err)
	if len(report.Unanchored) != 1 || report.Unanchored[0] != oid {
		t.Errorf("unanchored: %q", report.Unanchored)
	}
	report, err = w.engine.Remove(t.Context(), w.targets[0], &fileJournal{path: w.path("journal")}, Hooks{Name: "row1"})
	w.do(err)
	if len(report.Rescued) != 1 || report.Rescued[0] != "refs/unwind/rescue/row1/1" {
		t.Fatalf("rescued: %q", report.Rescued)
	}
	if got := w.git(w.repo, "rev-parse", report.Rescued[0]); got != oid {
		t.Errorf("%s is %s", report.Rescued[0], got)
	}
}

func TestRepositoryLockIsBusy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.worktree("a")
	w.engine.LockWait = time.Millisecond
	held, err := w.engine.Locks.Repository(t.Context(), filepath.Join(w.repo, ".git"), lock.Wait{})
	w.do(err)
	report := w.engine.RemoveAll(t.Context(), w.targets, AllHooks{})[0]
	if verdict(report) != "failed:busy" || !report.Retryable {
		t.Errorf("got %s: %s", verdict(report), report.Message)
	}
	held.Release()
	w.engine.LockWait = 10 * time.Second
	// The content is gone; what is left is the registration.
	expect(t, w.engine.RemoveAll(t.Context(), w.targets, AllHooks{}), "removed")
	w.checkLeftovers()
}

func TestPathLockIsBusy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.worktree("a")
	w.worktree("b")
	w.engine.LockWait = 100 * time.Millisecond
	held, err := w.engine.Locks.Path(t.Context(), a, lock.Wait{})
	w.do(err)
	defer held.Release()
	expect(t, w.engine.RemoveAll(t.Context(), w.targets, AllHooks{}), "failed:busy", "removed")
}

// TestLockIsInherited: the children hold the locks too.
func TestLockIsInherited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.worktree("a")
	w.fakeGit(`case " $* " in *" ls-files "*) ls -l /proc/self/fd > "` + w.path("home/fds") + `" 2>/dev/null; : > "` + w.path("home/ran") + `";; esac`)
	expect(t, w.engine.RemoveAll(t.Context(), w.targets, AllHooks{}), "removed")
	if _, err := os.Stat(w.path("home/ran")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(w.path("home/fds"))
	if len(text) == 0 {
		t.Skipf("there is no /proc to look at descriptors: %v", err)
	}
	if !strings.Contains(string(text), w.path("locks")+"/path-") {
		t.Errorf("git got the descriptors\n%s", text)
	}
}

func TestConcurrentRemovals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var oids []string
	for i := range 8 {
		oids = append(oids, w.commit(w.detached(fmt.Sprintf("w%d", i)), fmt.Sprintf("only%d.txt", i)))
	}
	results := make(chan Report, len(w.targets))
	for _, target := range w.targets {
		go func() { results <- w.engine.RemoveAll(context.Background(), []Target{target}, AllHooks{})[0] }()
	}
	for range w.targets {
		if report := <-results; report.Disposition != teardown.DispositionRemoved {
			t.Errorf("%s: %s %q", verdict(report), report.Message, report.Details)
		}
	}
	w.commits = oids
	w.checkNothingLost(nil)
}
