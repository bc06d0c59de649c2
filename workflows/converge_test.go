package workflows_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
	"unwind/workflows"
)

// converge runs the workflow; finish stands for both steps of the host.
func converge(t *testing.T, in teardown.ConvergeInput, finish func(id string) (teardown.WorktreeResult, error)) (teardown.WorktreeResult, error) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute)
	env.RegisterWorkflowWithOptions(workflows.Converge, workflow.RegisterOptions{Name: teardown.ConvergeWorkflow})
	env.RegisterActivityWithOptions(func(_ context.Context, id string) (teardown.WorktreeResult, error) { return finish("worktree " + id) },
		activity.RegisterOptions{Name: teardown.ConvergeWorktreeActivity})
	env.RegisterActivityWithOptions(func(_ context.Context, id string) error { _, err := finish("session " + id); return err },
		activity.RegisterOptions{Name: teardown.ReleaseVanishedActivity})
	in.Policy = teardown.Policy{InitialIntervalMS: 1000, MaximumIntervalMS: 60_000, MaximumAttempts: 3,
		StepTimeoutMS: 60_000, HeartbeatMS: 30_000, HostTimeoutMS: 900_000}
	env.ExecuteWorkflow(teardown.ConvergeWorkflow, in)
	require.True(t, env.IsWorkflowCompleted())
	if err := env.GetWorkflowError(); err != nil {
		return teardown.WorktreeResult{}, err
	}
	var result teardown.WorktreeResult
	require.NoError(t, env.GetWorkflowResult(&result))
	return result, nil
}

func TestConvergeFinishesAWorktree(t *testing.T) {
	t.Parallel()
	result, err := converge(t, teardown.ConvergeInput{Host: "h1", WorktreeID: "w1"}, func(id string) (teardown.WorktreeResult, error) {
		require.Equal(t, "worktree w1", id)
		return teardown.WorktreeResult{ID: "w1", Disposition: teardown.DispositionRemoved}, nil
	})
	require.NoError(t, err)
	require.Equal(t, teardown.DispositionRemoved, result.Disposition)
}

func TestConvergeTriesAgainAndGivesUp(t *testing.T) {
	t.Parallel()
	tries := 0
	_, err := converge(t, teardown.ConvergeInput{Host: "h1", SessionID: "s1"}, func(id string) (teardown.WorktreeResult, error) {
		require.Equal(t, "session s1", id)
		tries++
		return teardown.WorktreeResult{}, temporal.NewApplicationError("it lives", string(teardown.CodeRuntimeStillAlive))
	})
	require.Equal(t, 3, tries)
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, string(teardown.CodeRuntimeStillAlive), failure.Type())
}

func TestConvergeRefusesWhatNamesNothing(t *testing.T) {
	t.Parallel()
	for _, in := range []teardown.ConvergeInput{{Host: "h1"}, {WorktreeID: "w1"}, {Host: "h1", WorktreeID: "../w"}} {
		_, err := converge(t, in, func(string) (teardown.WorktreeResult, error) {
			t.Error("a step ran")
			return teardown.WorktreeResult{}, nil
		})
		var failure *temporal.ApplicationError
		require.ErrorAs(t, err, &failure)
		require.Equal(t, string(teardown.CodeInvalidID), failure.Type())
	}
}
