package workflows

import (
	"errors"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
)

// restoreStartLimit is how long a restore waits for the session's host to take
// it: a person waits for the answer.
const restoreStartLimit = 10 * time.Second

// restores is what a run knows of requests to make its session live again.
type restores struct {
	underWay int
	// ended counts those that may have changed the facts, seen those among them
	// after which the facts were read again.
	ended, seen int
}

func (r restores) unseen() bool { return r.ended > r.seen }

func (f *finalization) listenForRestores(ctx workflow.Context) error {
	return workflow.SetUpdateHandlerWithOptions(ctx, teardown.RestoreUpdate, f.restore, workflow.UpdateHandlerOptions{
		Validator:   f.mayRestore,
		Description: `Make the session live again: {"generation": 1, "requested_by": "..."}, all fields optional`,
	})
}

// mayRestore refuses while something destructive is under way: what a step has
// begun it ends.
func (f *finalization) mayRestore(teardown.RestoreRequest) error {
	if len(f.status.Running) > 0 {
		return busy("A step of the finalization is under way (" + strings.Join(f.status.Running, "; ") + "); try again when it has ended")
	}
	if f.restores.underWay > 0 {
		return busy("The session is being restored already; try again when that has ended")
	}
	return nil
}

func busy(message string) error {
	return temporal.NewApplicationError(message, string(teardown.CodeBusy))
}

// restore has the session's host take back what is still there. No step begins
// from its first statement to its end; after it the facts are read again.
func (f *finalization) restore(ctx workflow.Context, in teardown.RestoreRequest) (teardown.RestoreResult, error) {
	f.restores.underWay++
	defer func() { f.restores.underWay-- }()
	var result teardown.RestoreResult
	if err := workflow.Await(ctx, func() bool { return f.begun.Host != "" || f.refused != nil }); err != nil {
		return result, err
	}
	if f.refused != nil {
		return result, f.refused
	}
	generation := in.Generation
	if generation == 0 {
		generation = f.begun.Step.Generation
	}
	defer func() { f.restores.ended++ }()
	apart, _ := workflow.NewDisconnectedContext(ctx)
	options := workflow.WithActivityOptions(apart, workflow.ActivityOptions{
		TaskQueue:              teardown.HostTaskQueue(workflow.GetInfo(ctx).TaskQueueName, f.begun.Host),
		ScheduleToStartTimeout: restoreStartLimit,
		StartToCloseTimeout:    milliseconds(f.policy().StepTimeoutMS),
		HeartbeatTimeout:       milliseconds(f.policy().HeartbeatMS),
		Summary:                "Restore the session",
		// Whoever asked hears of a failure and may ask again.
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
	err := workflow.ExecuteActivity(options, host.RestoreSession, teardown.RestoreSessionInput{
		SessionID: f.in.SessionID, Generation: generation, RequestedBy: in.RequestedBy}).Get(apart, &result)
	return result, f.answerOf(err)
}

// answerOf is a restore's failure as its sender sees it: the code on the
// outermost error.
func (f *finalization) answerOf(err error) error {
	var application *temporal.ApplicationError
	switch {
	case err == nil:
		return nil
	case hostAway(err):
		return temporal.NewApplicationError("No worker of host "+f.begun.Host+" takes work; start unwind-worker there, then restore again",
			string(teardown.CodeHostUnreachable))
	case errors.As(err, &application):
		options := temporal.ApplicationErrorOptions{NonRetryable: application.NonRetryable()}
		var details []string
		if application.HasDetails() && application.Details(&details) == nil {
			options.Details = []any{details}
		}
		return temporal.NewApplicationErrorWithOptions(application.Message(), application.Type(), options)
	}
	failure := failureOf(err)
	return temporal.NewApplicationError("Whether the session was restored is not known; see its status. "+failure.Message, string(failure.Code))
}

// mayStep waits while the session is being restored, and reports whether steps
// may still begin after it.
func (f *finalization) mayStep(steps workflow.Context) bool {
	err := workflow.Await(steps, func() bool { return f.restores.underWay == 0 })
	return err == nil && !f.restores.unseen()
}

// awaitRestores lets each restore answer before the run ends: afterwards its
// sender would hear of the run's end only.
func (f *finalization) awaitRestores() {
	if err := workflow.Await(f.steps, func() bool { return workflow.AllHandlersFinished(f.steps) }); err != nil {
		f.logger.Error("A restore could not be awaited", "error", err)
	}
}
