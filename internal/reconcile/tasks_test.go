package reconcile_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

// task opens a task and closes it as archived, without starting anything.
func (b *bundle) task(id string, sessions ...string) {
	b.Helper()
	_, _, err := b.Store.AddTask(b.Context(), store.NewTask{ID: id, Host: here})
	require.NoError(b, err)
	for _, session := range sessions {
		_, err := b.Store.AddSession(b.Context(), store.NewSession{ID: session, Host: here, TaskID: id, ManifestHash: session})
		require.NoError(b, err)
	}
	_, _, err = b.Store.CloseTask(b.Context(), id, store.TaskArchived)
	require.NoError(b, err)
}

func (b *bundle) beginTask(id string) teardown.Step {
	b.Helper()
	begun, err := b.Store.Begin(b.Context(), teardown.BeginInput{TaskID: id})
	require.NoError(b, err)
	return begun.Step
}

func (b *bundle) taskRuns(id string) bool {
	b.Helper()
	_, err := b.Temporal.Client.DescribeWorkflow(b.Context(), teardown.FinalizeTaskID(id), "")
	return err == nil
}

func TestStartsTasksThatAreClosedAndNoOthers(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.task("closed")
		b.task("parked")
		_, err := b.Store.Park(t.Context(), teardown.ParkInput{Step: b.beginTask("parked"), Reason: teardown.ReasonPreserved})
		require.NoError(t, err)
		b.task("finished")
		_, err = b.Store.Finish(t.Context(), b.beginTask("finished"))
		require.NoError(t, err)
		_, _, err = b.Store.AddTask(t.Context(), store.NewTask{ID: "active", Host: here})
		require.NoError(t, err)

		require.Equal(t, 1, b.once().Started)
		require.True(t, b.taskRuns("closed"))
		for _, id := range []string{"parked", "finished", "active"} {
			require.False(t, b.taskRuns(id), id)
		}
		require.Equal(t, 1, b.once().UnderWay, "again finds the run")
	})
}

func TestWakesATaskWhoseSessionsAreFinalized(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.task("t1", "s1")
		step := b.beginTask("t1")
		_, err := b.Store.TerminateTaskSessions(t.Context(), teardown.TaskSessionsInput{Step: step})
		require.NoError(t, err)
		_, err = b.Store.Park(t.Context(), teardown.ParkInput{Step: step, Reason: teardown.ReasonSessionFailed})
		require.NoError(t, err)
		require.Zero(t, b.once().Woken)

		begun, err := b.Store.Begin(t.Context(), teardown.BeginInput{SessionID: "s1"})
		require.NoError(t, err)
		_, err = b.Store.ReleaseLeases(t.Context(), begun.Step)
		require.NoError(t, err)
		_, err = b.Store.Finish(t.Context(), begun.Step)
		require.NoError(t, err)
		require.Equal(t, 1, b.once().Woken)
		detail, err := b.Store.TaskDetail(t.Context(), "t1")
		require.NoError(t, err)
		require.Nil(t, detail.Finalization().ParkedAt)
		require.Equal(t, int64(2), detail.Finalization().Round)
		require.True(t, b.taskRuns("t1"))
	})
}

// Terminating the run stands for a retry whose signal was lost: the fact is there,
// and nobody works on it.
func TestStartsATaskAgainWhoseRunIsLost(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.task("t1")
		require.Equal(t, 1, b.once().Started)
		require.NoError(t, b.Temporal.Client.TerminateWorkflow(t.Context(), teardown.FinalizeTaskID("t1"), "", "lost"))
		require.Eventually(t, func() bool { return b.once().Started == 1 }, time.Minute, 50*time.Millisecond)
	})
}

// Somebody else's SQL has deleted the rows meanwhile: its leases tell.
func TestStartsATaskAgainWhoseRunAndRowAreGone(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		_, _, err := b.Store.AddTask(t.Context(), store.NewTask{ID: "t1", Host: here, Worktrees: []store.NewWorktree{{ID: "w1", Repository: "/src", Path: "/wt/t1"}}})
		require.NoError(t, err)
		_, _, err = b.Store.CloseTask(t.Context(), "t1", store.TaskArchived)
		require.NoError(t, err)
		require.Equal(t, 1, b.once().Started)
		require.NoError(t, b.Temporal.Client.TerminateWorkflow(t.Context(), teardown.FinalizeTaskID("t1"), "", "lost"))
		b.exec("DELETE FROM tasks WHERE id = 't1'")
		require.Eventually(t, func() bool { return b.once().Started == 1 }, time.Minute, 50*time.Millisecond)
	})
}

// unarchived is a task of which a worktree is to be made again.
func (b *bundle) unarchived(id string) {
	b.Helper()
	_, _, err := b.Store.AddTask(b.Context(), store.NewTask{ID: id, Host: here,
		Worktrees: []store.NewWorktree{{ID: "w-" + id, Repository: "/src", Path: "/wt/" + id, Branch: "agent/" + id}}})
	require.NoError(b, err)
	_, _, err = b.Store.CloseTask(b.Context(), id, store.TaskArchived)
	require.NoError(b, err)
	step := b.beginTask(id)
	_, err = b.Store.ReleaseLeases(b.Context(), step)
	require.NoError(b, err)
	_, err = b.Store.Removed(b.Context(), step, "w-"+id, teardown.WorktreeResult{Disposition: teardown.DispositionRemoved})
	require.NoError(b, err)
	_, err = b.Store.Finish(b.Context(), step)
	require.NoError(b, err)
	plan, err := b.Store.ReopenTask(b.Context(), id)
	require.NoError(b, err)
	require.Len(b, plan.Recreations, 1)
}

// The task is open by the facts, so its run need not have been told of.
func TestUnarchivesATaskWhoseRunIsLost(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.unarchived("t1")
		require.Equal(t, 1, b.once().Converging, "none was ever started")
		id := teardown.UnarchiveTaskID("t1")
		first, err := b.Temporal.Client.DescribeWorkflow(t.Context(), id, "")
		require.NoError(t, err)
		require.Zero(t, b.once().Converging, "it has a run")
		require.NoError(t, b.Temporal.Client.TerminateWorkflow(t.Context(), id, "", "lost"))
		require.Eventually(t, func() bool { return b.once().Converging == 1 }, time.Minute, 50*time.Millisecond)
		second, err := b.Temporal.Client.DescribeWorkflow(t.Context(), id, "")
		require.NoError(t, err)
		require.NotEqual(t, first.WorkflowExecution.RunID, second.WorkflowExecution.RunID)
		_, err = b.Store.WorktreeMade(t.Context(), b.toBeMade("t1"), "nonce")
		require.NoError(t, err)
		require.NoError(t, b.Temporal.Client.TerminateWorkflow(t.Context(), id, "", "lost"))
		b.neverAgain(func() int { return b.once().Converging })
	})
}

// What could not be made was told to a person, who says when it is looked at
// again.
func TestDoesNotUnarchiveWhatCameToItsEnd(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.steps()
		b.unarchived("t1")
		require.Equal(t, 1, b.once().Converging)
		var result teardown.UnarchiveTaskResult
		require.NoError(t, b.Temporal.Client.GetWorkflow(t.Context(), teardown.UnarchiveTaskID("t1"), "").Get(t.Context(), &result))
		require.Equal(t, teardown.OutcomeFailed, result.Outcome, "there is no such repository")
		b.neverAgain(func() int { return b.once().Converging })
	})
}

// neverAgain looks a few times.
func (b *bundle) neverAgain(count func() int) {
	b.Helper()
	for range 3 {
		require.Zero(b, count())
	}
}

func (b *bundle) toBeMade(task string) string {
	b.Helper()
	plan, err := b.Store.ReopenTask(b.Context(), task)
	require.NoError(b, err)
	require.Len(b, plan.Recreations, 1)
	return plan.Recreations[0].WorktreeID
}
