// Package activities holds the effects that unwind's workflows call. Facts
// reads and writes the database; Host touches the machine it runs on. Both are
// thin over internal/: what is decided here is only the order of protocol.md.
package activities

import (
	"context"
	"strconv"
	"time"

	"go.temporal.io/sdk/client"

	"unwind/internal/fault"
	"unwind/internal/store"
	"unwind/teardown"
)

// Facts are the short database steps. They run as local activities in the
// workflow worker, except AwaitFinalization.
type Facts struct {
	Store  *store.Store
	Client client.Client
	// Policy is handed to each finalization with its first answer.
	Policy teardown.Policy
	// SearchAttributes: the worker has registered them.
	SearchAttributes bool
	// SeenWithin is how recently a host must have been seen to count as busy
	// rather than away.
	SeenWithin time.Duration
}

// BeginFinalization re-reads the session or task and answers what is left to do.
// Non-retryable: session_not_found, session_live, task_not_found, task_active, and
// internal if a row cannot be read; that it waits for a person is recorded then,
// or each pass would begin it again.
func (f *Facts) BeginFinalization(ctx context.Context, in teardown.BeginInput) (teardown.BeginResult, error) {
	begun, err := f.Store.Begin(ctx, in)
	if teardown.CodeOf(err) == teardown.CodeInternal {
		if parkErr := f.Store.ParkUnreadable(ctx, in, teardown.Failure{Code: teardown.CodeInternal, Message: err.Error()}); parkErr != nil {
			return teardown.BeginResult{}, failure(parkErr)
		}
	}
	if err != nil {
		return teardown.BeginResult{}, failure(err)
	}
	fault.Point("begun")
	result := teardown.BeginResult{
		Host: begun.Host, Step: begun.Step, TaskID: begun.TaskID, Outcome: begun.Outcome, ParkedReason: begun.ParkedReason,
		ConfirmedGoneBy: begun.ConfirmedGoneBy, Secrets: begun.Secrets, Resources: begun.Resources, Result: begun.Result,
		Policy: f.Policy, SearchAttributes: f.SearchAttributes,
	}
	for _, left := range begun.Runtimes {
		result.Runtimes = append(result.Runtimes, teardown.RuntimeRef{
			ID: left.ID, Kind: left.Kind, Role: left.Role, Name: nameOf(left.Handle.V)})
	}
	return result, nil
}

// nameOf names a runtime for people.
func nameOf(runtime teardown.Runtime) string {
	if runtime.Session != "" {
		return runtime.Session
	}
	return strconv.Itoa(runtime.PID)
}

// TerminateTaskSessions terminates the live sessions of a closed task and answers
// a page of those that are to be finalized.
func (f *Facts) TerminateTaskSessions(ctx context.Context, in teardown.TaskSessionsInput) (teardown.TaskSessionsResult, error) {
	out, err := f.Store.TerminateTaskSessions(ctx, in)
	fault.Point("task sessions terminated")
	return out, failure(err)
}

// ReleaseLeases gives up the holder's leases and answers the removal plan.
func (f *Facts) ReleaseLeases(ctx context.Context, step teardown.Step) (teardown.ReleaseLeasesResult, error) {
	plan, err := f.Store.ReleaseLeases(ctx, step)
	fault.Point("released")
	return plan, failure(err)
}

// ParkFinalization records that the finalization waits, and for what.
func (f *Facts) ParkFinalization(ctx context.Context, in teardown.ParkInput) (teardown.ParkResult, error) {
	parked, err := f.Store.Park(ctx, in)
	fault.Point("parked")
	return parked, failure(err)
}

// FinishFinalization completes the facts.
func (f *Facts) FinishFinalization(ctx context.Context, step teardown.Step) (teardown.FinishResult, error) {
	finished, err := f.Store.Finish(ctx, step)
	fault.Point("finished")
	return finished, failure(err)
}

// CheckHost answers whether a worker of the host was seen lately: such a host is
// busy, not away.
func (f *Facts) CheckHost(ctx context.Context, hostID string) (teardown.CheckHostResult, error) {
	host, known, err := f.Store.Host(ctx, hostID)
	if err != nil {
		return teardown.CheckHostResult{}, failure(err)
	}
	return teardown.CheckHostResult{SeenLately: known && host.SeenWithin(f.SeenWithin, time.Now())}, nil
}
