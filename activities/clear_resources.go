package activities

import (
	"context"
	"errors"

	"unwind/internal/fault"
	"unwind/internal/resource"
	"unwind/teardown"
)

// ClearAgentResources clears the session's files, directories, FIFOs and
// secrets, or its secrets alone, under the session's lock. Each is tried; what
// was never ours to remove is listed, and the first other error is answered.
func (h *Host) ClearAgentResources(ctx context.Context, in teardown.ClearResourcesInput) (teardown.ClearResourcesResult, error) {
	work, a := begin(ctx, "Waiting for the session's lock")
	defer a.stop()
	result, err := h.clearResources(work, a, in)
	return result, h.note(work, a, in.Step, err, "", "")
}

func (h *Host) clearResources(ctx context.Context, a *attempt, in teardown.ClearResourcesInput) (teardown.ClearResourcesResult, error) {
	held, err := h.Locks.Session(ctx, in.Step.SessionID, a.lockWait(h.LockWait))
	if err != nil {
		return teardown.ClearResourcesResult{}, err
	}
	defer held.Release()
	current, err := h.Store.Current(ctx, in.Step)
	if err == nil && current && !in.SecretsOnly {
		current, err = h.Store.MayClear(ctx, in.Step)
	}
	if err != nil || !current {
		return teardown.ClearResourcesResult{Superseded: true}, err
	}
	result, err := h.clear(ctx, a, in.Step, in.SecretsOnly)
	if err != nil {
		return teardown.ClearResourcesResult{}, err
	}
	known, err := h.Store.Result(ctx, in.Step.SessionID, in.Step.Generation)
	if err != nil {
		return teardown.ClearResourcesResult{}, err
	}
	result.Resources = known.Resources
	result.Resources.Refused = len(result.Refused)
	return result, nil
}

// clearSecrets runs when the last runtime is gone, whatever happens after. The
// caller holds the session's lock.
func (h *Host) clearSecrets(ctx context.Context, a *attempt, step teardown.Step) error {
	detail, err := h.Store.SessionDetail(ctx, step.SessionID)
	if err != nil {
		return err
	}
	for _, other := range detail.Runtimes {
		if other.Generation == step.Generation && other.ReleasedAt == nil {
			return nil
		}
	}
	_, err = h.clear(ctx, a, step, true)
	return err
}

func (h *Host) clear(ctx context.Context, a *attempt, step teardown.Step, secretsOnly bool) (teardown.ClearResourcesResult, error) {
	var result teardown.ClearResourcesResult
	left, err := h.Store.ResourcesLeft(ctx, step, secretsOnly)
	if err != nil {
		return result, err
	}
	var first error
	for _, item := range left {
		a.doing("Clearing " + item.Kind)
		_, err := h.Resources.Clear(ctx, resource.Item{ID: item.ID, Kind: item.Kind, Path: item.Path}, a.report)
		if err == nil {
			fault.Point("resource cleared")
			_, err = h.Store.ResourceCleared(ctx, step, item.ID)
		}
		var refused *teardown.Error
		if errors.As(err, &refused) && !refused.Retryable {
			result.Refused = append(result.Refused, refused.Message)
			if result.Code == "" {
				result.Code = refused.Code
			}
			continue
		}
		if err != nil && first == nil {
			first = err
		}
	}
	return result, first
}
