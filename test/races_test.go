package test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/config"
	"unwind/internal/lock"
	"unwind/internal/runtime"
	"unwind/internal/runtime/kinds"
	"unwind/internal/store"
	"unwind/internal/worktree"
	"unwind/teardown"
	"unwind/test/interleave"
	"unwind/test/pgtest"
)

// lanes is how many interleavings run at a time on each database.
const lanes = 2

// lane runs one interleaving after another, in an installation that the lanes
// share.
type lane struct {
	*installation
	facts      *store.Store
	engine     *worktree.Engine
	repository string
}

// eachInterleaving runs a race on both databases, in a few lanes each. What a lane
// needs is made by prepare, which answers the race; that answers how it came out,
// of which the numbers are logged.
func eachInterleaving(t *testing.T, usual, workers int, prepare func(l *lane) func(n int) string) {
	t.Parallel()
	for _, dialect := range []store.Dialect{store.SQLite, store.Postgres} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			i := inMemory(t, dialect)
			for range workers {
				i.worker()
			}
			var next atomic.Int64
			var came sync.Map
			began := time.Now()
			for number := range lanes {
				t.Run(fmt.Sprintf("lane%d", number), func(t *testing.T) {
					t.Parallel()
					race := prepare(i.lane(t, fmt.Sprintf("lane%d", number)))
					for n := int(next.Add(1)); n <= interleave.Times(usual); n = int(next.Add(1)) {
						times, _ := came.LoadOrStore(race(n), new(atomic.Int64))
						times.(*atomic.Int64).Add(1)
					}
				})
			}
			t.Cleanup(func() {
				t.Logf("%d interleavings in %v", interleave.Times(usual), time.Since(began).Round(time.Second))
				came.Range(func(how, times any) bool {
					t.Logf("%d times %s", times.(*atomic.Int64).Load(), how)
					return true
				})
			})
		})
	}
}

// inMemory is an installation whose files are in memory, where that can be had:
// what takes the time would be the disk.
func inMemory(t *testing.T, dialect store.Dialect) *installation {
	t.Helper()
	parent := "/dev/shm"
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		parent = ""
	}
	i := installIn(t, parent)
	// A program under the race detector pauses for a second before it ends.
	i.env = []string{"GORACE=atexit_sleep_ms=10", "UNWIND_LOCK_WAIT=1m", "UNWIND_RETRY_INITIAL=20ms", "UNWIND_RECONCILE_INTERVAL=5s"}
	i.programs = underDetector(t)
	if dialect == store.Postgres {
		i.database = pgtest.Database(t)
		i.must("migrate")
	}
	i.store() // makes a SQLite file before anybody races for that
	return i
}

// detected are the programs, built once with the race detector.
var detected = sync.OnceValues(func() (string, error) {
	directory := filepath.Join(programs, "detected")
	return directory, build(directory, "-race")
})

// underDetector is the directory of the programs to race with: under the race
// detector when races are asked for, which would take too long to build otherwise.
func underDetector(t *testing.T) string {
	t.Helper()
	if !interleave.Asked() {
		return programs
	}
	directory, err := detected()
	require.NoError(t, err)
	return directory
}

// lane is the installation with a repository of its own, so that lanes do not wait
// for each other's git.
func (i *installation) lane(t *testing.T, name string) *lane {
	own := i.in(t)
	l := &lane{installation: own, facts: own.store(), repository: filepath.Join(i.dir, "src", name)}
	locks := lock.Dir(filepath.Join(i.dir, "state-"+i.host, "locks"))
	l.engine = &worktree.Engine{Roots: []string{i.dir}, Home: filepath.Join(i.dir, "home"), Ignored: config.IgnoredKeepPrecious, Locks: locks, LockWait: patience}
	own.repository(l.repository)
	return l
}

// name is the n-th of the lane's installation: all share a namespace of Temporal.
func (l *lane) name(kind string, n int) string {
	return fmt.Sprintf("%s%d-%s", kind, n, strings.TrimPrefix(filepath.Base(l.dir), directoryPrefix))
}

// worktree makes a real one and marks it, as a registration does.
func (l *lane) worktree(name string) store.NewWorktree {
	l.t.Helper()
	path := filepath.Join(l.dir, "wt", name)
	l.git(l.repository, "worktree", "add", "-q", "-b", "agent/"+name, path)
	registered, err := l.engine.Register(l.t.Context(), worktree.Target{Repository: l.repository, Path: path})
	require.NoError(l.t, err)
	return store.NewWorktree{ID: store.NewID(), Repository: l.repository, Path: registered.Path, Branch: registered.Branch, Nonce: registered.Nonce}
}

// session registers a live one that holds the worktrees, and a secret.
func (l *lane) session(id, task string, worktrees ...store.NewWorktree) {
	l.t.Helper()
	secret := filepath.Join(l.dir, "secrets", id)
	write(l.t, secret, "s3cret\n")
	added, err := l.facts.AddSession(l.t.Context(), store.NewSession{ID: id, Host: l.host, TaskID: task, ManifestHash: id, Worktrees: worktrees,
		Resources: []store.NewResource{{Kind: teardown.ResourceSecret, Path: secret}}})
	require.NoError(l.t, err)
	require.True(l.t, added)
}

func (l *lane) live(id string) bool {
	l.t.Helper()
	session, err := l.facts.Session(l.t.Context(), id)
	require.NoError(l.t, err)
	return session.TerminatedAt == nil
}

func (l *lane) holders(worktreeID string) []string {
	l.t.Helper()
	w, err := l.facts.Worktree(l.t.Context(), worktreeID)
	require.NoError(l.t, err)
	_, leases, _, err := l.facts.WorktreeAt(l.t.Context(), w.Host, w.Path)
	require.NoError(l.t, err)
	ids := []string{}
	for _, lease := range leases {
		ids = append(ids, lease.ID)
	}
	return ids
}

// requireThere: the worktree is whole, usable, and held by these.
func (l *lane) requireThere(w store.NewWorktree, holders ...string) {
	l.t.Helper()
	row, err := l.facts.Worktree(l.t.Context(), w.ID)
	require.NoError(l.t, err)
	require.Equal(l.t, store.WorktreeActive, row.State)
	require.Empty(l.t, row.QuarantinePath)
	require.ElementsMatch(l.t, holders, l.holders(w.ID))
	require.FileExists(l.t, filepath.Join(w.Path, "README.md"))
	at, err := l.engine.Locate(worktree.Target{Repository: w.Repository, Path: w.Path, Nonce: w.Nonce}, "")
	require.NoError(l.t, err)
	require.Equal(l.t, worktree.AtPath, at)
}

// requireGone: the worktree was removed, once, and its branch was not.
func (l *lane) requireGone(w store.NewWorktree) {
	l.t.Helper()
	row, err := l.facts.Worktree(l.t.Context(), w.ID)
	require.NoError(l.t, err)
	require.Equal(l.t, store.WorktreeRemoved, row.State, "%+v", row)
	require.NoDirExists(l.t, w.Path)
	left, err := filepath.Glob(filepath.Join(filepath.Dir(w.Path), "."+filepath.Base(w.Path)+"*"))
	require.NoError(l.t, err)
	require.Empty(l.t, left, "nothing is left in quarantine")
	require.NotContains(l.t, l.git(l.repository, "worktree", "list", "--porcelain"), "worktree "+w.Path+"\n")
	l.git(l.repository, "rev-parse", "--verify", "-q", "refs/heads/"+w.Branch)
}

// requireRemovedBy: of all that held the worktree, exactly this one has removed it.
func (l *lane) requireRemovedBy(w store.NewWorktree, removers ...string) {
	l.t.Helper()
	var removed []string
	for _, id := range removers {
		detail, err := l.facts.SessionDetail(l.t.Context(), id)
		require.NoError(l.t, err)
		for _, leased := range detail.Worktrees {
			if leased.Worktree.ID == w.ID && leased.Lease.Disposition == teardown.DispositionRemoved {
				removed = append(removed, id)
			}
		}
	}
	require.Len(l.t, removed, 1, "it was removed by %v", removed)
}

// soon is a pause that lets one side be ahead of the other, or not.
func soon(most time.Duration) time.Duration { return rand.N(most + 1) }

func finalize(id string) errand {
	return errand{Workflow: teardown.FinalizeSessionWorkflow,
		Input: teardown.FinalizeSessionInput{SessionID: id, OnParked: teardown.OnParkedReturn}}
}

func (e errand) after(pause time.Duration) errand { e.After = pause; return e }

// A restore and a finalization of one session, each in a process of its own, with
// a clean worktree or one with work in it. Either it is live and has its worktree,
// or the worktree went before and the restore says so; work is never lost.
func TestProcessesRestoreAgainstFinalize(t *testing.T) {
	eachInterleaving(t, 6, 0, func(l *lane) func(int) string {
		finalizer, restorer := l.racer(), l.racer()
		return func(n int) string {
			t, id := l.t, fmt.Sprintf("s%d", n)
			w := l.worktree(id)
			draft := filepath.Join(w.Path, "draft.md")
			if n%4 == 0 {
				write(t, draft, "mine\n")
			}
			l.session(id, "", w)
			_, _, err := l.facts.Terminate(t.Context(), id, "test")
			require.NoError(t, err)
			finalizer.ask(finalize(id).after(soon(40 * time.Millisecond)))
			restorer.ask(errand{Restore: &teardown.RestoreSessionInput{SessionID: id, Generation: 1, RequestedBy: "test"}}.after(soon(400 * time.Millisecond)))
			finalized, answered := finalizer.answer(), restorer.answer()
			restored := said[teardown.RestoreResult](t, answered)
			if finalized.Code != teardown.CodeSessionLive {
				require.Empty(t, finalized.Error)
			}
			require.True(t, l.live(id))
			came := "restored with its worktree"
			if exists(w.Path) {
				require.False(t, restored.Worktrees[0].Gone)
				l.requireThere(w, id)
			} else {
				came = "restored after its worktree had gone"
				require.True(t, restored.Worktrees[0].Gone)
				l.requireGone(w)
			}
			if n%4 == 0 {
				require.FileExists(t, draft)
				require.NoError(t, os.Remove(draft))
			}
			again := said[teardown.Result](t, finalizer.do(errand{Terminate: id, Workflow: teardown.FinalizeSessionWorkflow, Input: finalize(id).Input}))
			require.Equal(t, teardown.OutcomeFinalized, again.Outcome, "%+v", again)
			require.Equal(t, int64(2), again.Generation)
			l.requireGone(w)
			l.requireRemovedBy(w, id)
			return came
		}
	})
}

// A fork of a session that ends, by the command, against its finalization. Either
// the child holds the worktree and it is there, or the fork is refused; the last
// one removes it.
func TestProcessesForkAgainstLastRelease(t *testing.T) {
	eachInterleaving(t, 6, 0, func(l *lane) func(int) string {
		finalizer := l.racer()
		took := 150 * time.Millisecond
		return func(n int) string {
			t, parent, child := l.t, fmt.Sprintf("p%d", n), fmt.Sprintf("c%d", n)
			w := l.worktree(parent)
			l.session(parent, "", w)
			// The command takes its time to start, the more the busier the machine is.
			finalizer.ask(errand{Terminate: parent, Workflow: teardown.FinalizeSessionWorkflow, Input: finalize(parent).Input}.after(soon(took * 5 / 4)))
			began := time.Now()
			forked := l.unwind("session", "fork", parent, child, "--json")
			took = time.Since(began)
			finalized := said[teardown.Result](t, finalizer.answer())
			require.Equal(t, teardown.OutcomeFinalized, finalized.Outcome)
			if forked.code != 0 {
				require.Contains(t, []int{65, 75}, forked.code, forked.errors)
				require.Contains(t, []teardown.Code{teardown.CodeSessionTerminated, teardown.CodeWorktreeDeleting, teardown.CodeWorktreeRemoved,
					teardown.CodeWorktreeMissing, teardown.CodeBusy}, printedCode(t, forked))
				l.requireGone(w)
				l.requireRemovedBy(w, parent)
				_, err := l.facts.Session(t.Context(), child)
				require.Equal(t, teardown.CodeSessionNotFound, teardown.CodeOf(err))
				return "refused as " + string(printedCode(t, forked))
			}
			l.requireThere(w, child)
			require.Equal(t, teardown.DispositionRetained, finalized.Worktrees[0].Disposition)
			last := said[teardown.Result](t, finalizer.do(errand{Terminate: child, Workflow: teardown.FinalizeSessionWorkflow, Input: finalize(child).Input}))
			require.Equal(t, teardown.OutcomeFinalized, last.Outcome)
			l.requireGone(w)
			l.requireRemovedBy(w, parent, child)
			return "forked"
		}
	})
}

// A session is started in a task while that is archived and finalized: either it
// was refused and nothing of it is there, or it was ended with the task. Nothing
// is left running, and no worktree is left.
func TestProcessesStartAgainstArchive(t *testing.T) {
	eachInterleaving(t, 6, 0, func(l *lane) func(int) string {
		starter, archiver := l.racer(), l.racer()
		return func(n int) string {
			t, id, task := l.t, fmt.Sprintf("s%d", n), fmt.Sprintf("t%d", n)
			w := l.worktree(task)
			_, opened, err := l.facts.AddTask(t.Context(), store.NewTask{ID: task, Host: l.host, Worktrees: []store.NewWorktree{w}})
			require.NoError(t, err)
			require.True(t, opened)
			path := filepath.Join(l.dir, "wt", id)
			starter.ask(errand{Workflow: teardown.StartSessionWorkflow, Input: teardown.StartSessionInput{ID: id, Host: l.host, TaskID: task,
				Worktrees: []teardown.NewWorktree{{Repository: l.repository, Path: path, Branch: "agent/" + id}},
				Runtimes:  []teardown.NewRuntime{{Kind: teardown.KindProcess, Command: []string{"sleep", "900"}}}}}.after(soon(20 * time.Millisecond)))
			archive := errand{Archive: task, Workflow: teardown.FinalizeTaskWorkflow,
				Input: teardown.FinalizeTaskInput{TaskID: task, OnParked: teardown.OnParkedReturn}}
			archiver.ask(archive.after(soon(200 * time.Millisecond)))
			started, archived := starter.answer(), said[teardown.Result](t, archiver.answer())
			// What parks for the other's sake is retried, as a worker's look does.
			for try := 0; archived.Outcome != teardown.OutcomeFinalized; try++ {
				require.Less(t, try, 20, "%+v", archived)
				_, _, err := l.facts.RetryTask(t.Context(), task, store.RetryOptions{IfParked: true, By: "test"})
				require.NoError(t, err)
				archived = said[teardown.Result](t, archiver.do(archive))
			}
			l.requireGone(w)
			require.NoDirExists(t, path)
			detail, err := l.facts.SessionDetail(t.Context(), id)
			if teardown.CodeOf(err) == teardown.CodeSessionNotFound {
				require.Equal(t, teardown.CodeTaskClosed, started.Code, started.Error)
				return "refused"
			}
			require.NoError(t, err)
			require.NotNil(t, detail.Session.TerminatedAt)
			require.Equal(t, teardown.OutcomeFinalized, detail.Finalizations[0].Outcome)
			for _, leased := range detail.Worktrees {
				require.Equal(t, store.WorktreeRemoved, leased.Worktree.State)
			}
			for _, rt := range detail.Runtimes {
				require.Equal(t, store.RuntimeReleased, rt.State)
				if rt.Handle.V.PID == 0 {
					continue
				}
				state, err := kinds.All()[teardown.KindProcess].Probe(t.Context(), rt.Handle.V)
				require.NoError(t, err)
				require.Equal(t, runtime.Gone, state)
			}
			if started.Error != "" {
				return "taken back as " + string(started.Code)
			}
			return "started, then ended"
		}
	})
}

// printedCode is the code of an error that a command printed with --json.
func printedCode(t *testing.T, a answer) teardown.Code {
	t.Helper()
	var printed struct {
		Error struct {
			Code teardown.Code `json:"code"`
		} `json:"error"`
	}
	require.NoError(t, json.NewDecoder(strings.NewReader(a.out)).Decode(&printed), "%s%s", a.out, a.errors)
	return printed.Error.Code
}
