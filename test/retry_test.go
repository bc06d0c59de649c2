package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"unwind/teardown"
)

// standIn starts a process that stands in dir and answers how to end it.
func (i *installation) standIn(dir string) (leave func()) {
	i.t.Helper()
	cmd := exec.Command("sleep", "3600")
	cmd.Dir = dir
	require.NoError(i.t, cmd.Start())
	leave = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	i.t.Cleanup(leave)
	return leave
}

func TestRetryInABackoffTakesEffectAtOnce(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		i.env = []string{"UNWIND_RETRY_INITIAL=1h", "UNWIND_RETRY_MAX=1h"}
		a := i.agent("s1")
		i.add(a)
		leave := i.standIn(a.nested)
		i.worker()
		i.must("terminate", a.id)
		s := i.store()
		i.until("an attempt failed", func() bool {
			f := finalization(t, s, a.id)
			return f.NextAttemptAt != nil && f.FailureCode == teardown.CodeInUse
		})
		leave()
		result := i.result(0, "retry", a.id, "--wait")
		require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
		i.requireReleased(a)
	})
}

func TestRetryWhileAStepRunsIsNotLost(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		a := i.agent("s1")
		write(t, filepath.Join(a.nested, "draft.md"), "mine\n")
		i.add(a)
		hold, mark := filepath.Join(i.dir, "hold"), filepath.Join(i.dir, "fault")
		write(t, hold, "")
		i.worker("UNWIND_FAULT_POINT=worktree kept", "UNWIND_FAULT_MARK="+mark, "UNWIND_FAULT_HOLD="+hold)
		i.must("terminate", a.id)
		i.until("the step has decided to keep it", func() bool { return exists(mark) })
		require.NoError(t, os.Remove(filepath.Join(a.nested, "draft.md")))
		i.must("retry", a.id)
		require.NoError(t, os.Remove(hold))
		i.untilFinished(i.store(), a.id)
		i.requireReleased(a)
	})
}

func TestRetrySentByTemporalsOwnTools(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	write(t, filepath.Join(a.nested, "draft.md"), "mine\n")
	i.add(a)
	i.result(3, "terminate", a.id, "--wait")
	require.NoError(t, os.Remove(filepath.Join(a.nested, "draft.md")))
	require.NoError(t, i.client.SignalWorkflow(t.Context(), teardown.FinalizeSessionID(a.id), "", teardown.RetrySignal, map[string]any{}))
	s := i.store()
	i.untilFinished(s, a.id)
	require.Equal(t, int64(2), finalization(t, s, a.id).Round)
	i.requireReleased(a)
}

func TestAttemptsUsedUpThenRetried(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		i.env = []string{"UNWIND_RETRY_ATTEMPTS=2"}
		a := i.agent("s1")
		i.add(a)
		leave := i.standIn(a.nested)
		i.worker()
		result := i.result(4, "terminate", a.id, "--wait")
		require.Equal(t, teardown.OutcomeFailed, result.Outcome)
		require.Equal(t, teardown.CodeInUse, result.Failure.Code)
		require.Equal(t, 2, result.Attempts)
		require.DirExists(t, a.nested)
		leave()
		i.result(0, "retry", a.id, "--wait")
		i.requireReleased(a)
	})
}

func TestRetryAllWakesWhatIsParked(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	agents := []*agent{i.agent("s1"), i.agent("s2")}
	for _, a := range agents {
		write(t, filepath.Join(a.worktree, "draft.md"), "mine\n")
		i.add(a)
		i.result(3, "terminate", a.id, "--wait")
		require.NoError(t, os.Remove(filepath.Join(a.worktree, "draft.md")))
	}
	i.must("retry", "--all", "--reason", teardown.ReasonPreserved)
	s := i.store()
	for _, a := range agents {
		i.untilFinished(s, a.id)
	}
}

func TestRetryOfALiveOrUnknownSessionIsRefused(t *testing.T) {
	t.Parallel()
	i := install(t)
	a := i.agent("s1")
	i.add(a)
	live := i.unwind("retry", a.id)
	require.Equal(t, 65, live.code)
	require.Contains(t, live.errors, "live")
	unknown := i.unwind("retry", "nobody")
	require.Equal(t, 65, unknown.code)
	require.Contains(t, unknown.errors, "nobody")
}

func TestNonRetryableErrorReachesTheCaller(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	i.must("list")
	run, err := i.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "nobody-" + i.queue, TaskQueue: i.queue},
		teardown.FinalizeSessionWorkflow, map[string]any{"session_id": "nobody"})
	require.NoError(t, err)
	err = run.Get(t.Context(), nil)
	require.ErrorContains(t, err, string(teardown.CodeSessionNotFound))
}
