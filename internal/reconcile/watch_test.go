package reconcile_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"unwind/internal/lock"
	"unwind/internal/reconcile"
	"unwind/internal/runtime"
	"unwind/internal/runtime/kinds"
	"unwind/internal/runtime/tmux"
	"unwind/internal/store"
	"unwind/internal/worktree"
	"unwind/teardown"
)

// machine gives the passes this machine's runtimes, worktrees and locks.
func (b *bundle) machine() {
	b.Helper()
	dir, err := filepath.EvalSymlinks(b.TempDir())
	require.NoError(b, err)
	b.Locks = lock.Dir(filepath.Join(dir, "locks"))
	b.Runtimes = kinds.All()
	b.Worktrees = &worktree.Engine{Roots: []string{dir}, Home: filepath.Join(dir, "home"), Locks: b.Locks}
}

// agent registers a live session whose agent is a process, and answers what ends
// the process.
func (b *bundle) agent(id string, worktrees ...store.NewWorktree) (end func()) {
	b.Helper()
	command := exec.Command("sleep", "600")
	require.NoError(b, command.Start())
	end = func() { _ = command.Process.Kill(); _ = command.Wait() }
	b.Cleanup(end)
	rt := teardown.Runtime{Kind: teardown.KindProcess, Role: teardown.RoleAgent, PID: command.Process.Pid}
	kind, err := b.kind(rt)
	require.NoError(b, err)
	rt, err = kind.Pin(b.Context(), rt)
	require.NoError(b, err)
	_, err = b.Store.AddSession(b.Context(), store.NewSession{ID: id, Host: here, ManifestHash: id,
		Runtimes: []store.NewRuntime{{Handle: rt}}, Worktrees: worktrees})
	require.NoError(b, err)
	return end
}

func (b *bundle) kind(rt teardown.Runtime) (runtime.Kind, error) { return kinds.All().For(rt) }

func (b *bundle) session(id string) store.Session {
	b.Helper()
	session, err := b.Store.Session(b.Context(), id)
	require.NoError(b, err)
	return session
}

func (b *bundle) exec(statement string) {
	b.Helper()
	source := b.source
	if b.dialect == store.SQLite {
		source += "?_pragma=busy_timeout(20000)"
	}
	db, err := sqlx.Open(string(b.dialect), source)
	require.NoError(b, err)
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(b.Context(), statement)
	require.NoError(b, err)
}

// vanish deletes a session's row as if nothing referred to it.
func (b *bundle) vanish(id string) {
	b.Helper()
	remove := "DELETE FROM sessions WHERE id = '" + id + "'"
	if b.dialect == store.Postgres {
		remove = "SET session_replication_role = replica; " + remove
	}
	b.exec(remove)
}

func TestAdoptsTheAliveAndRecordsTheConfirmedDead(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.machine()
		b.agent("alive")
		b.agent("dead")()
		b.agent("held")()
		_, err := b.Store.Hold(t.Context(), "held", nil, "somebody")
		require.NoError(t, err)
		b.agent("odd")
		b.exec(`UPDATE runtimes SET handle = '{"kind":"gremlin"}' WHERE session_id = 'odd'`)
		b.agent("broken")
		b.exec(`UPDATE runtimes SET handle = 'broken' WHERE session_id = 'broken'`)
		_, err = b.Store.AddSession(t.Context(), store.NewSession{ID: "without", Host: here, ManifestHash: "without"})
		require.NoError(t, err)
		b.add(there, "theirs")

		summary := b.once()
		require.Equal(t, 1, summary.Alive)
		require.Equal(t, 1, summary.Terminated)
		require.Equal(t, 2, summary.Unprobed)
		require.Len(t, summary.Notes, 2)
		require.Equal(t, 1, summary.Started, "and its finalization is started by the same pass")
		require.Equal(t, teardown.SourceRuntimeExit, b.session("dead").TerminationSource)
		require.True(t, b.runs("dead"))
		for _, id := range []string{"alive", "held", "odd", "broken", "without", "theirs"} {
			require.Nil(t, b.session(id).TerminatedAt, id)
		}
		require.Zero(t, b.once().Terminated, "again")
	})
}

func TestABoundedPassRecordsTheGoneInParts(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.machine()
		for _, id := range []string{"s1", "s2", "s3"} {
			b.agent(id)()
		}
		b.StartFor = time.Nanosecond
		for range 2 {
			summary := b.once()
			require.Equal(t, 1, summary.Terminated)
			require.True(t, summary.More)
		}
		require.Equal(t, 1, b.once().Terminated)
	})
}

// More sessions than fit on a page, of one tmux server: one listing tells which of
// them live, and one more confirms all that are gone.
func TestOneListingTellsOfAllSessionsOfATmuxServer(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		const sessions, ended = 210, 3
		b.machine()
		dir := t.TempDir()
		socket, calls := filepath.Join(dir, "tmux"), filepath.Join(dir, "calls")
		counting := filepath.Join(dir, "counting")
		require.NoError(t, os.WriteFile(counting, fmt.Appendf(nil, "#!/bin/sh\necho >>'%s'\nexec tmux \"$@\"\n", calls), 0o700))
		b.tmux(socket, "new-session", "-d", "-s", "first", "sleep 600")
		t.Cleanup(func() { _ = exec.Command("tmux", "-S", socket, "kill-server").Run() })
		first, err := tmux.Kind{}.Pin(t.Context(), teardown.Runtime{Kind: teardown.KindTmux, Role: teardown.RoleAgent, Socket: socket, Session: "first"})
		require.NoError(t, err)
		for several := range slices.Chunk(make([]string, sessions-1), 50) {
			var commands []string
			for range several {
				commands = append(commands, "new-session", "-d", "sleep 600", ";", "set-option", tmux.TagOption, first.Identity.Tag, ";")
			}
			b.tmux(socket, commands...)
		}
		listed, err := tmux.Kind{}.List(t.Context(), socket)
		require.NoError(t, err)
		require.Len(t, listed, sessions)
		for n, session := range listed {
			handle, identity := first, *first.Identity
			handle.Session, identity.SessionID, identity.SessionCreated = session.Name, session.ID, session.Created
			identity.Panes = nil
			handle.Identity = &identity
			id := fmt.Sprintf("agent-%03d", n)
			_, err := b.Store.AddSession(t.Context(), store.NewSession{ID: id, Host: here, ManifestHash: id, Runtimes: []store.NewRuntime{{Handle: handle}}})
			require.NoError(t, err)
			if n%100 == 5 {
				b.tmux(socket, "kill-session", "-t", session.ID)
			}
		}
		b.Runtimes = runtime.Set{teardown.KindTmux: tmux.Kind{Binary: counting}}

		summary := b.once()
		require.Equal(t, sessions-ended, summary.Alive)
		require.Equal(t, ended, summary.Terminated)
		require.Zero(t, summary.Unprobed)
		content, err := os.ReadFile(calls)
		require.NoError(t, err)
		require.Equal(t, 2, strings.Count(string(content), "\n"), "tmux was run")
		require.Equal(t, sessions-ended, b.once().Alive)
		content, err = os.ReadFile(calls)
		require.NoError(t, err)
		require.Equal(t, 3, strings.Count(string(content), "\n"), "with nothing gone there is nothing to confirm")
	})
}

func (b *bundle) tmux(socket string, args ...string) {
	b.Helper()
	output, err := exec.Command("tmux", append([]string{"-f", "/dev/null", "-S", socket}, args...)...).CombinedOutput()
	require.NoError(b, err, "%s", output)
}

func TestSavesUncommittedWorkBeforeItRecordsTheEnd(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.machine()
		dirty, clean := b.worktree("dirty"), b.worktree("clean")
		// What a commit cannot hold does not keep the rest from being saved.
		require.NoError(t, os.WriteFile(filepath.Join(dirty.Repository, ".git", "info", "exclude"), []byte(".env\n"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dirty.Path, ".env"), []byte("KEY=1\n"), 0o600))
		inside := filepath.Join(dirty.Path, "inside")
		require.NoError(t, os.Mkdir(inside, 0o700))
		b.git(inside, "init", "-q")
		b.git(inside, "commit", "-q", "--allow-empty", "-m", "one")
		require.NoError(t, os.WriteFile(filepath.Join(dirty.Path, "draft.md"), []byte("mine\n"), 0o600))
		// What cannot be saved is a note, and the end is recorded all the same.
		missing := store.NewWorktree{ID: "missing", Repository: dirty.Repository, Path: filepath.Join(filepath.Dir(dirty.Path), "missing"), Nonce: "x"}
		b.agent("s1", dirty, clean, missing)()
		summary := b.once()
		require.Equal(t, 1, summary.Terminated)
		require.Len(t, summary.Notes, 1)
		require.Equal(t, "missing", summary.Notes[0].WorktreeID)
		ref := worktree.SavedRef("s1", 1, "dirty")
		require.Equal(t, "mine\n", b.git(dirty.Repository, "show", ref+":draft.md"))
		require.FileExists(t, filepath.Join(dirty.Path, "draft.md"), "the worktree is as it was")
		detail, err := b.Store.SessionDetail(t.Context(), "s1")
		require.NoError(t, err)
		for _, w := range detail.Worktrees {
			want := map[string]string{"dirty": ref}[w.Worktree.ID]
			require.Equal(t, want, w.Lease.SavedRef, w.Worktree.ID)
		}
	})
}

func TestLeavesASessionThatSomebodyWorksOn(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.machine()
		b.agent("s1")()
		held, err := b.Locks.Session(t.Context(), "s1", lock.Wait{Limit: time.Minute})
		require.NoError(t, err)
		summary := b.once()
		require.Zero(t, summary.Terminated)
		require.Zero(t, summary.Failed)
		held.Release()
		require.Equal(t, 1, b.once().Terminated)
	})
}

// worktree makes a linked worktree of a repository of the test's own, and
// registers it.
func (b *bundle) worktree(name string) store.NewWorktree {
	b.Helper()
	root := b.Worktrees.Roots[0]
	repository := filepath.Join(root, "app")
	if _, err := os.Stat(repository); err != nil {
		require.NoError(b, os.Mkdir(repository, 0o700))
		b.git(repository, "init", "-q")
		b.git(repository, "commit", "-q", "--allow-empty", "-m", "one")
	}
	path := filepath.Join(root, name)
	b.git(repository, "worktree", "add", "-q", "-b", name, path)
	registered, err := b.Worktrees.Register(b.Context(), worktree.Target{Repository: repository, Path: path})
	require.NoError(b, err)
	return store.NewWorktree{ID: name, Repository: repository, Path: registered.Path, Branch: name, Nonce: registered.Nonce}
}

func (b *bundle) git(dir string, args ...string) string {
	b.Helper()
	command := exec.Command("git", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	output, err := command.Output()
	require.NoError(b, err, "git %v", args)
	return string(output)
}

func TestConvergesWhatNoFinalizationWill(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.machine()
		b.Policy = teardown.Policy{InitialIntervalMS: 50, MaximumIntervalMS: 100, MaximumAttempts: 3, StepTimeoutMS: 20_000, HeartbeatMS: 5000, HostTimeoutMS: 60_000}
		b.steps()
		going, staying, unclaimed, held := b.worktree("going"), b.worktree("staying"), b.worktree("unclaimed"), b.worktree("held")
		require.NoError(t, os.WriteFile(filepath.Join(staying.Path, "draft.md"), []byte("mine\n"), 0o600))
		for _, w := range []store.NewWorktree{going, staying, unclaimed, held} {
			_, err := b.Store.AddSession(t.Context(), store.NewSession{ID: "s-" + w.ID, Host: here, ManifestHash: w.ID, Worktrees: []store.NewWorktree{w}})
			require.NoError(t, err)
		}
		b.exec("UPDATE leases SET released_at = acquired_at WHERE worktree_id IN ('going', 'staying')")
		b.exec("DELETE FROM leases WHERE worktree_id = 'unclaimed'")

		summary := b.once()
		require.Equal(t, 2, summary.Converging)
		require.Equal(t, 1, summary.Unclaimed)
		b.untilState("going", store.WorktreeRemoved)
		b.untilState("staying", store.WorktreePreserved)
		require.NoDirExists(t, going.Path)
		for _, w := range []store.NewWorktree{staying, unclaimed, held} {
			require.DirExists(t, w.Path)
		}
		summary = b.once()
		require.Zero(t, summary.Converging, "what was looked at lately is left alone")
		require.Equal(t, 1, summary.Kept)
		noted := map[string]teardown.Code{}
		for _, note := range summary.Notes {
			noted[note.WorktreeID] = note.Code
		}
		require.Equal(t, map[string]teardown.Code{"staying": teardown.CodeUntracked, "unclaimed": teardown.CodeNotRegistered}, noted)
		require.Contains(t, summary.Notes[0].Message+summary.Notes[len(summary.Notes)-1].Message, "draft.md")

		// An hour later it has become clean.
		require.NoError(t, os.Remove(filepath.Join(staying.Path, "draft.md")))
		b.exec("UPDATE worktrees SET updated_at = '2001-01-01 00:00:00+00:00' WHERE id = 'staying'")
		require.Equal(t, 1, b.once().Converging)
		b.untilState("staying", store.WorktreeRemoved)
		require.NoDirExists(t, staying.Path)
	})
}

func TestWhatFailedLatelyIsNotedAndNotStartedAgain(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.machine()
		b.Policy = teardown.Policy{InitialIntervalMS: 50, MaximumIntervalMS: 100, MaximumAttempts: 3, StepTimeoutMS: 20_000, HeartbeatMS: 5000, HostTimeoutMS: 60_000}
		b.steps()
		b.agent("gone", b.worktree("left"))
		b.exec("UPDATE runtimes SET handle = 'nonsense'")
		b.vanish("gone")
		require.Equal(t, 1, b.once().Converging)
		run := b.Temporal.Client.GetWorkflow(t.Context(), teardown.ConvergeID(teardown.ConvergeInput{SessionID: "gone"}), "")
		require.Error(t, run.Get(t.Context(), nil))
		summary := b.once()
		require.Zero(t, summary.Converging)
		require.Zero(t, summary.Failed)
		require.Len(t, summary.Notes, 1)
		require.Equal(t, "gone", summary.Notes[0].SessionID)
		require.Equal(t, teardown.CodeRuntimeUnroutable, summary.Notes[0].Code)
		require.Contains(t, summary.Notes[0].Message, "correct its handle in the database")
		b.Serving = false
		summary = b.once()
		require.Equal(t, 1, summary.Converging, "who asks by hand may have put it right")
		require.Len(t, summary.Notes, 1)
	})
}

func TestOneBadRowStopsNothingAndIsReported(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.machine()
		b.agent("dead")()
		b.terminate(here, "due-1", "due-2", "negative", "no-id")
		b.exec("DELETE FROM runtimes WHERE session_id = 'no-id'")
		b.exec("UPDATE sessions SET id = 'no/id' WHERE id = 'no-id'")
		b.exec("UPDATE sessions SET generation = -7 WHERE id = 'negative'")
		nonsense := map[store.Dialect]string{store.SQLite: "some day", store.Postgres: "infinity"}[b.dialect]
		b.exec("UPDATE sessions SET held_until = '" + nonsense + "' WHERE id = 'due-1'")
		bad := b.worktree("bad")
		b.agent("live", bad)
		b.exec("UPDATE leases SET released_at = acquired_at")
		b.exec("UPDATE worktrees SET path = 'over/there'")

		summary, err := reconcile.Once(t.Context(), b.Deps)
		require.Error(t, err)
		reported := map[string]teardown.Code{}
		for _, failure := range summary.Failures {
			reported[failure.SessionID+failure.WorktreeID] = failure.Code
		}
		require.Equal(t, map[string]teardown.Code{"due-1": teardown.CodeInternal, "no/id": teardown.CodeInvalidID, "bad": teardown.CodeUnsafeTarget}, reported)
		require.Equal(t, 1, summary.Terminated)
		require.Equal(t, 3, summary.Started, "dead, due-2 and the one of a negative generation")
		require.Equal(t, 1, summary.Alive)
	})
}

func (b *bundle) untilState(id, state string) {
	b.Helper()
	require.Eventually(b, func() bool {
		w, err := b.Store.Worktree(b.Context(), id)
		return err == nil && w.State == state
	}, time.Minute, 20*time.Millisecond, "%s is not %s", id, state)
}
