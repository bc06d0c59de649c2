package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"unwind/teardown"
)

// awaitInterval is how often AwaitFinalization heartbeats and, if it must not
// wait for a person, reads the facts.
const awaitInterval = 2 * time.Second

// AwaitFinalization waits for the result of the session's finalization that a
// run of its own carries out. With OnParkedReturn it returns what is recorded as
// soon as the finalization is parked, as that run would if it had been asked to.
// It heartbeats while it waits.
func (f *Facts) AwaitFinalization(ctx context.Context, in teardown.AwaitFinalizationInput) (teardown.Result, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan ending, 1)
	go func() { ended <- f.endOfRun(waiting, in.SessionID) }()
	ticker := time.NewTicker(awaitInterval)
	defer ticker.Stop()
	for {
		activity.RecordHeartbeat(ctx, teardown.Progress{Step: "Waiting for " + teardown.FinalizeSessionID(in.SessionID)})
		if in.OnParked == teardown.OnParkedReturn {
			result, err := f.recorded(ctx, in.SessionID)
			if err != nil || result.Outcome != "" {
				return result, failure(err)
			}
		}
		select {
		case end := <-ended:
			return end.result, end.err
		case <-ticker.C:
		case <-activity.GetWorkerStopChannel(ctx):
			// A worker that stops does not wait for somebody else's run.
			return teardown.Result{}, notAwaited(in.SessionID, context.Canceled)
		}
	}
}

// ending is how a run ended.
type ending struct {
	result teardown.Result
	err    error
}

func (f *Facts) endOfRun(ctx context.Context, sessionID string) (end ending) {
	err := f.Client.GetWorkflow(ctx, teardown.FinalizeSessionID(sessionID), "").Get(ctx, &end.result)
	var application *temporal.ApplicationError
	var missing *serviceerror.NotFound
	switch {
	case err == nil:
	case errors.As(err, &application):
		end.err = temporal.NewNonRetryableApplicationError(application.Message(), application.Type(), nil)
	case errors.As(err, &missing):
		end.err = failure(&teardown.Error{Code: teardown.CodeSessionNotFound,
			Message: "No finalization of session " + sessionID + " is known to Temporal; start it again"})
	default:
		end.err = notAwaited(sessionID, err)
	}
	return end
}

// recorded is what the facts say of the session's newest generation; its Outcome
// is empty while steps run.
func (f *Facts) recorded(ctx context.Context, sessionID string) (teardown.Result, error) {
	session, err := f.Store.Session(ctx, sessionID)
	if err != nil {
		return teardown.Result{}, err
	}
	return f.Store.Result(ctx, sessionID, session.Generation)
}

func notAwaited(sessionID string, cause error) error {
	return failure(&teardown.Error{Code: teardown.CodeTemporalUnavailable,
		Message: "The finalization of session " + sessionID + " could not be awaited", Retryable: true, Cause: cause})
}
