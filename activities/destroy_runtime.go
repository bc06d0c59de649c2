package activities

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"go.temporal.io/sdk/activity"

	"unwind/internal/fault"
	"unwind/internal/runtime"
	"unwind/internal/store"
	"unwind/teardown"
)

// DestroyRuntime ends one runtime under the session's lock and answers when it
// is confirmed gone; secrets go with the last one. A refusal is a result. What
// could not be told, or is not gone yet, is a retryable error.
func (h *Host) DestroyRuntime(ctx context.Context, in teardown.DestroyRuntimeInput) (teardown.DestroyRuntimeResult, error) {
	work, a := begin(ctx, "Waiting for the session's lock")
	defer a.stop()
	result, err := h.destroyRuntime(work, a, in)
	return result, h.note(work, a, in.Step, err, in.RuntimeID, "")
}

func (h *Host) destroyRuntime(ctx context.Context, a *attempt, in teardown.DestroyRuntimeInput) (teardown.DestroyRuntimeResult, error) {
	var nothing teardown.DestroyRuntimeResult
	held, err := h.Locks.Session(ctx, in.Step.SessionID, a.lockWait(h.LockWait))
	if err != nil {
		return nothing, err
	}
	defer held.Release()
	// Read again under the lock: an attempt that waited may be out of date.
	if current, err := h.Store.Current(ctx, in.Step); err != nil || !current {
		return teardown.DestroyRuntimeResult{Runtime: teardown.RuntimeResult{Outcome: teardown.RuntimeSuperseded}}, err
	}
	registered, err := h.Store.Runtime(ctx, in.RuntimeID)
	if err != nil {
		return nothing, err
	}
	if registered.ReleasedAt != nil {
		return teardown.DestroyRuntimeResult{Runtime: resultOf(registered)}, h.clearSecrets(ctx, a, in.Step)
	}
	outcome, err := h.destroy(ctx, a, in, registered)
	logNotes(ctx, registered, outcome.Notes)
	if errors.Is(err, errSuperseded) {
		return teardown.DestroyRuntimeResult{Runtime: teardown.RuntimeResult{Outcome: teardown.RuntimeSuperseded}}, nil
	}
	if err != nil {
		return nothing, err
	}
	fault.Point("runtime destroyed")
	found := resultOf(registered)
	found.Outcome, found.Code = outcome.Runtime.Outcome, outcome.Runtime.Code
	found.Details = slices.Concat(outcome.Runtime.Details, outcome.Occupants, outcome.Notes)
	found.Snapshot = cmp.Or(outcome.Runtime.Snapshot, found.Snapshot)
	if !found.Outcome.Released() {
		written, err := h.Store.RuntimeRefused(ctx, in.Step, registered.ID, found, outcome.Message)
		if err != nil || !written {
			found.Outcome = teardown.RuntimeSuperseded
		}
		return teardown.DestroyRuntimeResult{Runtime: found, Message: outcome.Message}, err
	}
	how := string(found.Outcome)
	if in.ConfirmedGoneBy != "" {
		how = "confirmed gone by " + in.ConfirmedGoneBy
	}
	written, err := h.Store.RuntimeReleased(ctx, in.Step, registered.ID, how, found.Snapshot, found)
	if err != nil || !written {
		found.Outcome = teardown.RuntimeSuperseded
		return teardown.DestroyRuntimeResult{Runtime: found}, err
	}
	fault.Point("runtime recorded")
	return teardown.DestroyRuntimeResult{Runtime: found}, h.clearSecrets(ctx, a, in.Step)
}

// logNotes says what went wrong without mattering: also of an attempt that
// failed, which records none. Only an activity has a logger.
func logNotes(ctx context.Context, registered store.Runtime, notes []string) {
	if !activity.IsActivity(ctx) {
		return
	}
	for _, note := range notes {
		activity.GetLogger(ctx).Warn("A note on the end of a runtime", "session", registered.SessionID, "runtime", registered.ID, "note", note)
	}
}

// errSuperseded: a newer round or generation has taken over while the runtime was
// looked at; nothing of it was touched.
var errSuperseded = errors.New("superseded")

func (h *Host) destroy(ctx context.Context, a *attempt, in teardown.DestroyRuntimeInput, registered store.Runtime) (runtime.Outcome, error) {
	handle := registered.Handle.V
	kind, err := h.Runtimes.For(handle)
	if err != nil && in.ConfirmedGoneBy != "" {
		// Nothing is known by which a process could be proved to be its own.
		return runtime.Outcome{Runtime: teardown.RuntimeResult{Outcome: teardown.RuntimeAlreadyGone,
			Details: []string{"nothing was looked for: " + coded(err).Message}}}, nil
	}
	if err != nil {
		refused := coded(err)
		return runtime.Outcome{Message: refused.Message,
			Runtime: teardown.RuntimeResult{Outcome: teardown.RuntimeRefused, Code: refused.Code}}, nil
	}
	if registered.State == store.RuntimeCreating {
		if handle, err = h.halfStarted(ctx, a, kind, handle); err != nil {
			return runtime.Outcome{}, err
		}
	}
	return kind.Destroy(ctx, handle, runtime.Options{
		Snapshot:        h.SnapshotDir,
		ConfirmedGoneBy: in.ConfirmedGoneBy,
		AllowOccupants:  true,
		Progress:        a.doing,
		Record: func(ctx context.Context, known teardown.Runtime, snapshot string) error {
			written, err := h.Store.RuntimeToEnd(ctx, in.Step, registered.ID, known, snapshot)
			if err == nil && !written {
				err = errSuperseded
			}
			fault.Point("runtime about to be ended")
			return err
		},
	})
}

// halfStarted answers what there is of a runtime whose start was not recorded as
// done. If nothing is found by its tag, it is gone; what carries the tag is
// looked for all the same.
func (h *Host) halfStarted(ctx context.Context, a *attempt, kind runtime.Kind, planned teardown.Runtime) (teardown.Runtime, error) {
	starter, ok := kind.(runtime.Starter)
	if !ok {
		return planned, nil
	}
	a.doing("Looking for what was started of the runtime")
	found, there, err := starter.Find(ctx, planned)
	if err != nil || there {
		return found, err
	}
	planned.Gone = true
	return planned, nil
}

func resultOf(registered store.Runtime) teardown.RuntimeResult {
	return teardown.RuntimeResult{
		ID: registered.ID, Kind: registered.Kind, Role: registered.Role, Outcome: registered.Outcome,
		Code: registered.Code, Details: registered.Details.V, Snapshot: registered.SnapshotPath,
	}
}
