package workflows

import (
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
)

const (
	// A fact is one short transaction.
	factTimeout = 20 * time.Second
	// A database that is away is asked again after 1 s, 2 s, ... 60 s, for ever:
	// it never parks a finalization.
	firstPause = time.Second
	maxPause   = time.Minute
)

// askFacts runs one short database step in the workflow worker's own process
// and does not return before the database has answered, unless the error is one
// that asking again cannot mend.
func (f *finalization) askFacts(steps workflow.Context, summary string, activity, in, out any) error {
	ctx := workflow.WithLocalActivityOptions(steps, workflow.LocalActivityOptions{
		StartToCloseTimeout: factTimeout,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:             summary,
	})
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := workflow.ExecuteLocalActivity(ctx, activity, in).Get(ctx, out)
		if err == nil || nonRetryable(err) {
			return err
		}
		f.logger.Warn("The database did not answer", "step", summary, "error", err)
		timer := workflow.NewTimerWithOptions(ctx, pause, workflow.TimerOptions{Summary: "Ask the database again: " + summary})
		if err := timer.Get(ctx, nil); err != nil {
			return err
		}
	}
}

// onHost runs a step on a machine until it has a result, its
// attempts are used up, or the host does not answer. A cancelled workflow lets
// an attempt that runs come to its end, and starts no other.
func (f *finalization) onHost(steps workflow.Context, hostID, summary string, activity, in, out any) *obstacle {
	policy := f.policy()
	cancellable, cancel := workflow.WithCancel(steps)
	defer cancel()
	options := workflow.ActivityOptions{
		TaskQueue:              teardown.HostTaskQueue(workflow.GetInfo(steps).TaskQueueName, hostID),
		ScheduleToStartTimeout: milliseconds(policy.HostTimeoutMS),
		StartToCloseTimeout:    milliseconds(policy.StepTimeoutMS),
		HeartbeatTimeout:       milliseconds(policy.HeartbeatMS),
		WaitForCancellation:    true,
		Summary:                summary,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    milliseconds(policy.InitialIntervalMS),
			BackoffCoefficient: 2,
			MaximumInterval:    milliseconds(policy.MaximumIntervalMS),
			MaximumAttempts:    policy.MaximumAttempts,
		},
	}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		if !f.mayStep(steps) {
			return superseded()
		}
		f.started(summary)
		future := workflow.ExecuteActivity(workflow.WithActivityOptions(cancellable, options), activity, in)
		if err := workflow.Await(steps, func() bool { return future.IsReady() || f.cancelled() }); err != nil {
			return &obstacle{reason: teardown.ReasonAttemptsExhausted, failure: failureOf(err)}
		}
		if !future.IsReady() {
			cancel()
		}
		err := future.Get(steps, out)
		f.ended(summary)
		switch {
		case err == nil:
			return nil
		case f.cancelled():
			return cancelled()
		case hostAway(err):
			if !f.hostSeenLately(steps, hostID) {
				return &obstacle{reason: teardown.ReasonHostUnreachable, failure: teardown.Failure{
					Code:    teardown.ReasonHostUnreachable,
					Message: "No worker of host " + hostID + " takes work; start unwind-worker there, then it goes on by itself."}}
			}
		case codeOf(err) == teardown.CodeDatabaseUnavailable:
			timer := workflow.NewTimerWithOptions(steps, pause, workflow.TimerOptions{Summary: "The database did not answer: " + summary})
			if err := timer.Get(steps, nil); err != nil {
				return &obstacle{reason: teardown.ReasonAttemptsExhausted, failure: failureOf(err)}
			}
		default:
			return &obstacle{reason: teardown.ReasonAttemptsExhausted, failure: failureOf(err)}
		}
	}
}

func (f *finalization) hostSeenLately(steps workflow.Context, hostID string) bool {
	var answer teardown.CheckHostResult
	if err := f.askFacts(steps, "Was the host seen lately?", facts.CheckHost, hostID, &answer); err != nil {
		f.logger.Error("The host could not be looked up", "host", hostID, "error", err)
		return false
	}
	return answer.SeenLately
}

// hostAway: nobody took the task from the host's queue in time.
func hostAway(err error) bool {
	var timeout *temporal.TimeoutError
	return errors.As(err, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START
}

func nonRetryable(err error) bool {
	var application *temporal.ApplicationError
	return errors.As(err, &application) && application.NonRetryable()
}

// codeOf answers the code that an activity's error carries as its type.
func codeOf(err error) teardown.Code {
	var application *temporal.ApplicationError
	if errors.As(err, &application) {
		return teardown.Code(application.Type())
	}
	var timeout *temporal.TimeoutError
	if errors.As(err, &timeout) {
		return teardown.CodeTimeout
	}
	var cancelled *temporal.CanceledError
	if errors.As(err, &cancelled) {
		return teardown.ReasonCancelled
	}
	return teardown.CodeInternal
}

func failureOf(err error) teardown.Failure {
	failure := teardown.Failure{Code: codeOf(err), Message: err.Error()}
	var application *temporal.ApplicationError
	if errors.As(err, &application) {
		failure.Message = application.Message()
	}
	return failure
}
