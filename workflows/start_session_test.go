package workflows_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
	"unwind/workflows"
)

// launch stands for the database and the host of a start.
type launch struct {
	*testsuite.TestWorkflowEnvironment
	log []string
	// fails names the step that fails for good.
	fails    string
	recorded bool
	done     bool
	released int
}

func newLaunch() *launch {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	l := &launch{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment()}
	l.SetTestTimeout(time.Minute)
	l.RegisterWorkflowWithOptions(workflows.StartSession, workflow.RegisterOptions{Name: teardown.StartSessionWorkflow})
	l.RegisterWorkflowWithOptions(func(_ workflow.Context, in teardown.FinalizeSessionInput) (teardown.Result, error) {
		l.released++
		return teardown.Result{SessionID: in.SessionID, Generation: in.Generation, Outcome: teardown.OutcomeFinalized}, nil
	}, workflow.RegisterOptions{Name: teardown.FinalizeSessionWorkflow})
	for name, fn := range map[string]any{
		teardown.ReadPolicyActivity: func(context.Context) (teardown.Policy, error) {
			return teardown.Policy{InitialIntervalMS: 10, MaximumIntervalMS: 10, MaximumAttempts: 2, StepTimeoutMS: 1000, HeartbeatMS: 1000, HostTimeoutMS: 1000}, nil
		},
		teardown.BeginStartActivity: func(_ context.Context, in teardown.StartSessionInput) (teardown.BeginStartResult, error) {
			if err := l.step("begin"); err != nil {
				return teardown.BeginStartResult{}, err
			}
			l.recorded = true
			return teardown.BeginStartResult{Start: teardown.StartStep{SessionID: in.ID, Generation: 1}, Done: l.done,
				Worktrees: []teardown.PlannedWorktree{{ID: "w1", Path: "/wt"}}, Runtimes: []teardown.StartedRuntime{{ID: "r1", Role: "agent", Kind: "tmux"}},
				Result: teardown.StartSessionResult{SessionID: in.ID, Worktrees: make([]teardown.StartedWorktree, 1), Runtimes: make([]teardown.StartedRuntime, 1)}}, nil
		},
		teardown.CreateResourceActivity: func(context.Context, teardown.CreateResourceInput) error { return l.step("resource") },
		teardown.CreateWorktreeActivity: func(_ context.Context, in teardown.CreateWorktreeInput) (teardown.StartedWorktree, error) {
			return teardown.StartedWorktree{ID: in.Worktree.ID, Path: in.Worktree.Path}, l.step("worktree")
		},
		teardown.StartRuntimeActivity: func(_ context.Context, in teardown.StartRuntimeInput) (teardown.StartedRuntime, error) {
			return teardown.StartedRuntime{ID: in.RuntimeID, PID: 7}, l.step("runtime in " + in.Launch.Directory)
		},
		teardown.FailStartActivity: func(context.Context, teardown.StartSessionInput) (teardown.FailStartResult, error) {
			return teardown.FailStartResult{Begun: l.recorded, Generation: 1}, l.step("fail")
		},
	} {
		l.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	return l
}

func (l *launch) step(name string) error {
	l.log = append(l.log, name)
	if name != l.fails {
		return nil
	}
	return temporal.NewNonRetryableApplicationError("In the way", string(teardown.CodePathOccupied), nil)
}

func (l *launch) run() (result teardown.StartSessionResult, err error) {
	l.ExecuteWorkflow(teardown.StartSessionWorkflow, teardown.StartSessionInput{ID: session, Host: "h1",
		Worktrees: []teardown.NewWorktree{{Repository: "/src", Path: "/wt"}},
		Resources: []teardown.NewResource{{Kind: teardown.ResourceDir, Path: "/state"}},
		Runtimes:  []teardown.NewRuntime{{Command: []string{"agent"}}}})
	if err := l.GetWorkflowError(); err != nil {
		return result, err
	}
	return result, l.GetWorkflowResult(&result)
}

func TestStartInOrder(t *testing.T) {
	t.Parallel()
	l := newLaunch()
	result, err := l.run()
	require.NoError(t, err)
	require.Equal(t, []string{"begin", "resource", "worktree", "runtime in /wt"}, l.log)
	require.Equal(t, 7, result.Runtimes[0].PID)
	require.Equal(t, "/wt", result.Worktrees[0].Path)
	require.Zero(t, l.released)
}

func TestStartThatIsDoneMakesNothing(t *testing.T) {
	t.Parallel()
	l := newLaunch()
	l.done = true
	_, err := l.run()
	require.NoError(t, err)
	require.Equal(t, []string{"begin"}, l.log)
}

func TestFailedStartIsTakenBack(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"begin", "resource", "worktree", "runtime in /wt"} {
		l := newLaunch()
		l.fails = step
		_, err := l.run()
		var application *temporal.ApplicationError
		require.ErrorAs(t, err, &application)
		require.Equal(t, string(teardown.CodePathOccupied), application.Type())
		require.Equal(t, "In the way", application.Message())
		require.Equal(t, []string{step, "fail"}, l.log[len(l.log)-2:])
		var detail teardown.StartFailure
		require.NoError(t, application.Details(&detail))
		if step == "begin" {
			require.Nil(t, detail.Released, "nothing was recorded")
			require.Zero(t, l.released)
			continue
		}
		require.Equal(t, teardown.OutcomeFinalized, detail.Released.Outcome)
		require.Equal(t, 1, l.released)
	}
}

func TestCancelledStartIsTakenBack(t *testing.T) {
	t.Parallel()
	l := newLaunch()
	l.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) {
		if info.ActivityType.Name == teardown.CreateResourceActivity {
			l.CancelWorkflow()
		}
	})
	_, err := l.run()
	var cancelled *temporal.CanceledError
	require.ErrorAs(t, err, &cancelled)
	require.Equal(t, "fail", l.log[len(l.log)-1])
	require.Equal(t, 1, l.released)
}

func TestStartWithAnIDThatIsNone(t *testing.T) {
	t.Parallel()
	l := newLaunch()
	l.ExecuteWorkflow(teardown.StartSessionWorkflow, teardown.StartSessionInput{ID: "a/b"})
	require.ErrorContains(t, l.GetWorkflowError(), "not a valid id")
	require.Empty(t, l.log)
}
