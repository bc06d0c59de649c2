package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
)

// reachLimit is how long a start waits for a worker of its host: somebody waits
// for it.
const reachLimit = time.Minute

// StartSession makes what a session is to have, resources first, then worktrees
// parents first, then its runtimes, and returns when all of it runs. All is
// recorded before any of it is made. Should a step fail for good, or the
// workflow be cancelled, the session is terminated with source start_failed and
// finalized, so that what was made is taken back in reverse; the error's type is
// the code of what went wrong, its detail a StartFailure.
func StartSession(ctx workflow.Context, in teardown.StartSessionInput) (teardown.StartSessionResult, error) {
	if err := teardown.ValidateID(in.ID); err != nil {
		return teardown.StartSessionResult{}, temporal.NewNonRetryableApplicationError(err.Error(), string(teardown.CodeInvalidID), nil)
	}
	s := &start{in: in}
	result, err := s.run(ctx)
	if err == nil {
		return result, nil
	}
	return teardown.StartSessionResult{}, s.takeBack(ctx, err)
}

// start is the state of one run.
type start struct {
	in     teardown.StartSessionInput
	policy teardown.Policy
}

func (s *start) run(ctx workflow.Context) (teardown.StartSessionResult, error) {
	if err := s.askFacts(ctx, "Read the settings", facts.ReadPolicy, nil, &s.policy); err != nil {
		return teardown.StartSessionResult{}, err
	}
	var begun teardown.BeginStartResult
	if err := s.onHost(ctx, "Record what is to be made", host.BeginStart, s.in, &begun); err != nil {
		return teardown.StartSessionResult{}, err
	}
	result := begun.Result
	if begun.Done {
		return result, nil
	}
	for _, resource := range s.in.Resources {
		in := teardown.CreateResourceInput{Start: begun.Start, Resource: resource}
		if err := s.onHost(ctx, "Make "+resource.Kind, host.CreateResource, in, nil); err != nil {
			return teardown.StartSessionResult{}, err
		}
	}
	for i, worktree := range begun.Worktrees {
		in := teardown.CreateWorktreeInput{Start: begun.Start, Worktree: worktree}
		if err := s.onHost(ctx, "Make worktree", host.CreateWorktree, in, &result.Worktrees[i]); err != nil {
			return teardown.StartSessionResult{}, err
		}
	}
	for i, runtime := range begun.Runtimes {
		launch := s.in.Runtimes[i]
		if launch.Directory == "" && len(s.in.Worktrees) > 0 {
			launch.Directory = s.in.Worktrees[0].Path
		}
		in := teardown.StartRuntimeInput{Start: begun.Start, RuntimeID: runtime.ID, Launch: launch}
		if err := s.onHost(ctx, "Start "+runtime.Role+" "+runtime.Kind, host.StartRuntime, in, &result.Runtimes[i]); err != nil {
			return teardown.StartSessionResult{}, err
		}
	}
	return result, nil
}

// takeBack releases what was made, if anything was recorded, and answers the
// error with which the run ends. It goes on although the run is cancelled.
func (s *start) takeBack(ctx workflow.Context, why error) error {
	apart, _ := workflow.NewDisconnectedContext(ctx)
	var failed teardown.FailStartResult
	if err := s.askFacts(apart, "Record that the start failed", facts.FailStart, s.in, &failed); err != nil {
		return err
	}
	detail := teardown.StartFailure{}
	if failed.Begun {
		result, err := teardown.FinalizeAsChild(apart, workflow.GetInfo(ctx).TaskQueueName, teardown.FinalizeSessionInput{
			SessionID: s.in.ID, Generation: failed.Generation, OnParked: teardown.OnParkedReturn})
		if err != nil {
			return err
		}
		detail.Released = &result
	}
	var cancelled *temporal.CanceledError
	if errors.As(why, &cancelled) {
		return why
	}
	failure := failureOf(why)
	return temporal.NewNonRetryableApplicationError(failure.Message, string(failure.Code), nil, detail)
}

// askFacts runs a short database step in the workflow worker's own process until
// the database answers.
func (s *start) askFacts(ctx workflow.Context, summary string, activity, in, out any) error {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: factTimeout,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:             summary,
	})
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		var future workflow.Future
		if in == nil {
			future = workflow.ExecuteLocalActivity(ctx, activity)
		} else {
			future = workflow.ExecuteLocalActivity(ctx, activity, in)
		}
		err := future.Get(ctx, out)
		if err == nil || nonRetryable(err) || ctx.Err() != nil {
			return err
		}
		if err := workflow.NewTimerWithOptions(ctx, pause, workflow.TimerOptions{Summary: "Ask the database again: " + summary}).Get(ctx, nil); err != nil {
			return err
		}
	}
}

func (s *start) onHost(ctx workflow.Context, summary string, activity, in, out any) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              teardown.HostTaskQueue(workflow.GetInfo(ctx).TaskQueueName, s.in.Host),
		ScheduleToStartTimeout: min(reachLimit, milliseconds(s.policy.HostTimeoutMS)),
		StartToCloseTimeout:    milliseconds(s.policy.StepTimeoutMS),
		HeartbeatTimeout:       milliseconds(s.policy.HeartbeatMS),
		WaitForCancellation:    true,
		Summary:                summary,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    milliseconds(s.policy.InitialIntervalMS),
			BackoffCoefficient: 2,
			MaximumInterval:    milliseconds(s.policy.MaximumIntervalMS),
			MaximumAttempts:    s.policy.MaximumAttempts,
		},
	})
	err := workflow.ExecuteActivity(ctx, activity, in).Get(ctx, out)
	if err != nil && hostAway(err) {
		return temporal.NewNonRetryableApplicationError("No worker of host "+s.in.Host+" takes work; start unwind-worker there, then start the session again",
			teardown.ReasonHostUnreachable, nil)
	}
	return err
}
