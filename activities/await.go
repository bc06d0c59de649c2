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

// AwaitFinalization waits for the result of the session's finalization that a
// run of its own carries out. It heartbeats while it waits.
func (f *Facts) AwaitFinalization(ctx context.Context, in teardown.AwaitFinalizationInput) (teardown.Result, error) {
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		ticker := time.NewTicker(5 * time.Second)
		defer ticker.Stop()
		for {
			activity.RecordHeartbeat(ctx, teardown.Progress{Step: "Waiting for " + teardown.FinalizeSessionID(in.SessionID)})
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
		}
	}()
	// A worker that stops does not wait for somebody else's run.
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-activity.GetWorkerStopChannel(ctx):
			cancel()
		case <-waiting.Done():
		}
	}()
	var result teardown.Result
	err := f.Client.GetWorkflow(waiting, teardown.FinalizeSessionID(in.SessionID), "").Get(waiting, &result)
	var application *temporal.ApplicationError
	var missing *serviceerror.NotFound
	switch {
	case err == nil:
		return result, nil
	case errors.As(err, &application):
		return teardown.Result{}, temporal.NewNonRetryableApplicationError(application.Message(), application.Type(), nil)
	case errors.As(err, &missing):
		return teardown.Result{}, failure(&teardown.Error{Code: teardown.CodeSessionNotFound,
			Message: "No finalization of session " + in.SessionID + " is known to Temporal; start it again"})
	}
	return teardown.Result{}, failure(&teardown.Error{Code: teardown.CodeTemporalUnavailable,
		Message: "The finalization of session " + in.SessionID + " could not be awaited", Retryable: true, Cause: err})
}
