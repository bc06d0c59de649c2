package workflows

import (
	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
)

// releaseRuntimes destroys each runtime, auxiliary ones first. One that fails
// does not keep the others from being tried; the first obstacle is answered.
// Secrets go with the last runtime, or here when no runtime is left.
func (f *finalization) releaseRuntimes() *obstacle {
	var first *obstacle
	keep := func(o *obstacle) {
		if first == nil {
			first = o
		}
	}
	for _, ref := range f.begun.Runtimes {
		if f.cancelled() {
			keep(cancelled())
			break
		}
		in := teardown.DestroyRuntimeInput{Step: f.begun.Step, RuntimeID: ref.ID, ConfirmedGoneBy: f.begun.ConfirmedGoneBy}
		var out teardown.DestroyRuntimeResult
		if o := f.onHost(f.steps, f.begun.Host, "Destroy "+ref.Role+" "+ref.Kind+" "+ref.Name, host.DestroyRuntime, in, &out); o != nil {
			f.noteRuntime(teardown.RuntimeResult{ID: ref.ID, Kind: ref.Kind, Role: ref.Role,
				Outcome: teardown.RuntimeFailed, Code: o.failure.Code})
			if o.reason == teardown.ReasonHostUnreachable {
				return o
			}
			keep(o)
			continue
		}
		if out.Runtime.Outcome == teardown.RuntimeSuperseded {
			return superseded()
		}
		f.noteRuntime(out.Runtime)
		if out.Runtime.Outcome == teardown.RuntimeRefused {
			keep(&obstacle{reason: teardown.ReasonRuntimeRefused,
				failure: teardown.Failure{Code: out.Runtime.Code, Message: out.Message}})
		}
	}
	if first != nil || len(f.begun.Runtimes) > 0 || !f.begun.Secrets {
		return first
	}
	return f.clear("Clear secrets", true)
}

// clearResources clears what the agent had beside its worktrees.
func (f *finalization) clearResources(ctx workflow.Context) *obstacle {
	if !f.begun.Resources {
		return nil
	}
	f.show(ctx, teardown.PhaseResources, "")
	return f.clear("Clear agent resources", false)
}

func (f *finalization) clear(summary string, secretsOnly bool) *obstacle {
	var out teardown.ClearResourcesResult
	in := teardown.ClearResourcesInput{Step: f.begun.Step, SecretsOnly: secretsOnly}
	if o := f.onHost(f.steps, f.begun.Host, summary, host.ClearAgentResources, in, &out); o != nil {
		return o
	}
	if out.Superseded {
		return superseded()
	}
	f.status.Result.Resources = out.Resources
	if len(out.Refused) > 0 {
		return &obstacle{reason: teardown.ReasonRefused, failure: teardown.Failure{
			Code: out.Code, Message: "A resource is not ours to remove: " + out.Refused[0]}}
	}
	return nil
}

func (f *finalization) noteRuntime(result teardown.RuntimeResult) {
	for i, known := range f.status.Result.Runtimes {
		if known.ID == result.ID {
			f.status.Result.Runtimes[i] = result
			return
		}
	}
	f.status.Result.Runtimes = append(f.status.Result.Runtimes, result)
}
