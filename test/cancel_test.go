package test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"unwind/teardown"
)

func TestCancelledThenReconciledStaysParkedUntilRetry(t *testing.T) {
	t.Parallel()
	i := install(t)
	a := i.agent("s1")
	i.add(a)
	hold := filepath.Join(i.dir, "hold")
	write(t, hold, "")
	mark := filepath.Join(i.dir, "fault")
	i.worker("UNWIND_FAULT_POINT=runtime destroyed", "UNWIND_FAULT_MARK="+mark, "UNWIND_FAULT_HOLD="+hold)
	i.must("terminate", a.id)
	i.until("the runtime step under way", func() bool { return exists(mark) })
	require.NoError(t, i.client.CancelWorkflow(t.Context(), teardown.FinalizeSessionID(a.id), ""))
	// Longer than a heartbeat time-out: a cancelled step still has a pulse.
	time.Sleep(5 * time.Second)
	require.NoError(t, os.Remove(hold))
	s := i.store()
	i.untilParked(s, a.id, teardown.ReasonCancelled)
	i.until("the workflow cancelled", func() bool { return i.workflowStatus(a.id) == enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED })
	detail, err := s.SessionDetail(t.Context(), a.id)
	require.NoError(t, err)
	require.NotNil(t, detail.Runtimes[0].ReleasedAt, "facts are written after the cancellation")
	require.Zero(t, finalization(t, s, a.id).AttemptCount, "no attempt failed: the step that ran came to its end")
	require.DirExists(t, a.worktree)

	for range 3 {
		i.must("reconcile")
	}
	// A pass that listed the session before it was parked may have started a run;
	// such a run waits and touches nothing.
	require.Equal(t, teardown.ReasonCancelled, finalization(t, s, a.id).ParkedReason)
	require.DirExists(t, a.worktree)
	i.result(0, "retry", a.id, "--wait")
	i.requireReleased(a)
}

func TestCancelledInABackoffEndsAtOnceAndGoesOnWithRetry(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.env = []string{"UNWIND_RETRY_INITIAL=1h", "UNWIND_RETRY_MAX=1h"}
	a := i.agent("s1")
	i.add(a)
	busy := i.standIn(a.nested)
	i.worker()
	i.must("terminate", a.id)
	s := i.store()
	i.until("an attempt failed", func() bool { return finalization(t, s, a.id).NextAttemptAt != nil })
	require.NoError(t, i.client.CancelWorkflow(t.Context(), teardown.FinalizeSessionID(a.id), ""))
	i.untilParked(s, a.id, teardown.ReasonAttemptsExhausted)
	i.until("the workflow cancelled", func() bool { return i.workflowStatus(a.id) == enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED })
	busy()
	i.result(0, "retry", a.id, "--wait")
	i.requireReleased(a)
}

func (i *installation) workflowStatus(session string) enumspb.WorkflowExecutionStatus {
	i.t.Helper()
	description, err := i.client.DescribeWorkflow(i.t.Context(), teardown.FinalizeSessionID(session), "")
	require.NoError(i.t, err)
	return description.Status
}
