package workflows_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
	"unwind/workflows"
)

func unarchive(t *testing.T, plan teardown.UnarchivePlan, refused error, recreate func(id string) (teardown.RecreateWorktreeResult, error)) (teardown.UnarchiveTaskResult, error) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute)
	env.RegisterWorkflowWithOptions(workflows.UnarchiveTask, workflow.RegisterOptions{Name: teardown.UnarchiveTaskWorkflow})
	plan.Policy = teardown.Policy{InitialIntervalMS: 1000, MaximumIntervalMS: 60_000, StepTimeoutMS: 60_000, HeartbeatMS: 30_000}
	env.RegisterActivityWithOptions(func(context.Context, teardown.UnarchiveTaskInput) (teardown.UnarchivePlan, error) {
		return plan, refused
	}, activity.RegisterOptions{Name: teardown.ReopenTaskActivity})
	env.RegisterActivityWithOptions(func(_ context.Context, in teardown.RecreateWorktreeInput) (teardown.RecreateWorktreeResult, error) {
		return recreate(in.WorktreeID)
	}, activity.RegisterOptions{Name: teardown.RecreateWorktreeActivity})
	env.OnSignalExternalWorkflow(mock.Anything, teardown.FinalizeTaskID("t1"), "", teardown.RetrySignal, mock.Anything).Return(errors.New("none waits")).Maybe()
	env.ExecuteWorkflow(teardown.UnarchiveTaskWorkflow, teardown.UnarchiveTaskInput{TaskID: "t1"})
	require.True(t, env.IsWorkflowCompleted())
	if err := env.GetWorkflowError(); err != nil {
		return teardown.UnarchiveTaskResult{}, err
	}
	var result teardown.UnarchiveTaskResult
	require.NoError(t, env.GetWorkflowResult(&result))
	return result, nil
}

var twoToMake = teardown.UnarchivePlan{Generation: 2, Recreations: []teardown.Recreation{
	{WorktreeID: "w1", Worktree: teardown.UnarchivedWorktree{Path: "/wt/1", Host: "h1"}},
	{WorktreeID: "w2", Worktree: teardown.UnarchivedWorktree{Path: "/wt/2", Host: "h1"}},
}}

func TestUnarchiveMakesEachWorktree(t *testing.T) {
	t.Parallel()
	var made []string
	result, err := unarchive(t, twoToMake, nil, func(id string) (teardown.RecreateWorktreeResult, error) {
		made = append(made, id)
		return teardown.RecreateWorktreeResult{Made: true}, nil
	})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeRestored, result.Outcome)
	require.Equal(t, int64(2), result.Generation)
	require.Equal(t, []string{"w1", "w2"}, made, "a parent before what is inside")
}

func TestWorktreeThatCannotBeMadeStopsNoOther(t *testing.T) {
	t.Parallel()
	result, err := unarchive(t, twoToMake, nil, func(id string) (teardown.RecreateWorktreeResult, error) {
		if id == "w1" {
			return teardown.RecreateWorktreeResult{}, refusal(teardown.CodeBranchMissing)
		}
		return teardown.RecreateWorktreeResult{Made: true}, nil
	})
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFailed, result.Outcome)
	require.Equal(t, teardown.CodeBranchMissing, result.Worktrees[0].Failure.Code)
	require.True(t, result.Worktrees[1].Held)
}

func TestUnarchiveIsRefusedWithItsCode(t *testing.T) {
	t.Parallel()
	_, err := unarchive(t, teardown.UnarchivePlan{}, refusal(teardown.CodeConflict), nil)
	var refused *temporal.ApplicationError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, string(teardown.CodeConflict), refused.Type())
}
