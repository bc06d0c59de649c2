package test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/teardown"
)

func TestCleanSessionIsFinalized(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		i.worker()
		a := i.agent("s1")
		i.add(a)
		result := i.result(0, "terminate", a.id, "--wait")
		require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
		require.Equal(t, int64(1), result.Generation)
		require.Equal(t, 1, result.Attempts)
		require.Equal(t, teardown.RuntimeReleased, result.Runtimes[0].Outcome)
		require.Equal(t, []teardown.Disposition{teardown.DispositionRemoved, teardown.DispositionRemoved},
			[]teardown.Disposition{result.Worktrees[0].Disposition, result.Worktrees[1].Disposition})
		require.Equal(t, teardown.ResourcesResult{Cleared: 2}, result.Resources)
		i.requireReleased(a)
	})
}

func TestDirtyWorktreeIsPreservedThenRetried(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		i.worker()
		a := i.agent("s1")
		write(t, filepath.Join(a.nested, "idea.txt"), "unsaved\n")
		i.add(a)
		result := i.result(3, "terminate", a.id, "--wait")
		require.Equal(t, teardown.OutcomePreserved, result.Outcome)
		byPath := map[string]teardown.WorktreeResult{}
		for _, w := range result.Worktrees {
			byPath[w.Path] = w
		}
		require.Equal(t, teardown.CodeUntracked, byPath[a.nested].Code)
		require.Contains(t, byPath[a.nested].Details[0], "idea.txt")
		require.Positive(t, byPath[a.nested].Bytes)
		require.Equal(t, teardown.CodeChildPreserved, byPath[a.worktree].Code)
		require.FileExists(t, filepath.Join(a.nested, "idea.txt"))
		require.DirExists(t, a.directory, "a restore needs the agent's files")
		require.NoFileExists(t, a.secret, "secrets go as soon as the runtime is gone")

		i.git(a.nested, "add", ".")
		i.git(a.nested, "commit", "-q", "-m", "keep the idea")
		result = i.result(0, "retry", a.id, "--wait")
		require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
		i.requireReleased(a)
	})
}

func TestRuntimeKilledByHandIsFinalizedAllTheSame(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		i.worker()
		a := i.agent("s1")
		i.add(a)
		i.killAgent(a)
		result := i.result(0, "terminate", a.id, "--wait")
		require.Equal(t, teardown.RuntimeAlreadyGone, result.Runtimes[0].Outcome)
		i.requireReleased(a)
	})
}

func TestTerminateWhileTemporalIsDownIsNotLost(t *testing.T) {
	t.Parallel()
	i := installWithOwnServer(t)
	a := i.agent("s1")
	i.add(a)
	require.NoError(t, i.server.Stop())
	said := i.must("terminate", a.id)
	require.Contains(t, said.out+said.errors, "when Temporal is back")
	require.Equal(t, 75, i.unwind("terminate", a.id, "--wait").code)
	require.NoError(t, i.server.Resume())
	i.worker()
	i.untilFinished(i.store(), a.id)
	i.requireReleased(a)
}

func TestSecondTerminateFindsTheSameResult(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	i.add(a)
	first := i.result(0, "terminate", a.id, "--wait")
	second := i.result(0, "terminate", a.id, "--wait")
	require.Equal(t, first, second)
}

func TestPathTakenAnewIsNotRemoved(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		a := i.agent("s1")
		i.add(a)
		// Somebody removes both by hand and makes a new worktree at the same path.
		i.killAgent(a)
		i.git(a.library, "worktree", "remove", a.nested)
		i.git(a.repository, "worktree", "remove", a.worktree)
		i.git(a.repository, "worktree", "add", "-q", "-b", "other", a.worktree)
		i.worker()
		i.unwind("terminate", a.id, "--wait")
		require.FileExists(t, filepath.Join(a.worktree, "README.md"), "what is at the path is not what was registered")
		require.Contains(t, i.git(a.repository, "worktree", "list"), a.worktree)
	})
}

func TestHeldSessionIsLeftAlone(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		i.worker()
		a := i.agent("s1")
		i.add(a)
		i.must("hold", a.id)
		require.Equal(t, 75, i.unwind("terminate", a.id, "--wait").code)
		require.DirExists(t, a.worktree)
		i.must("hold", a.id, "--release")
		i.untilFinished(i.store(), a.id)
		i.requireReleased(a)
	})
}

func TestDatabaseOfAnotherSchemaIsRefused(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.must("list")
	path := filepath.Join(i.dir, "unwind.db")
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO unwind_migrations (version_id, is_applied) VALUES (9999, 1)")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	before, err := os.ReadFile(path)
	require.NoError(t, err)

	answer := i.unwind("list")
	require.Equal(t, 65, answer.code, answer.errors)
	require.Contains(t, answer.errors, "upgrade unwind")
	w := i.worker()
	<-w.done
	require.Equal(t, 65, w.cmd.ProcessState.ExitCode())
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
}
