package workflows

import (
	"cmp"
	"slices"

	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
)

// removeWorktrees gives up the holder's leases and removes what nobody holds
// any more. A removal may make an ancestor free that was kept for it alone, so
// the plan is asked for again until nothing new is in it.
func (f *finalization) removeWorktrees(ctx workflow.Context) (*obstacle, error) {
	var all []removal
	for {
		var plan teardown.ReleaseLeasesResult
		if err := f.askFacts(f.steps, "Release the leases", facts.ReleaseLeases, f.begun.Step, &plan); err != nil {
			return nil, err
		}
		if plan.Superseded || plan.Parked {
			return superseded(), nil
		}
		untried := slices.DeleteFunc(plan.Removals, func(planned teardown.Removal) bool {
			return slices.ContainsFunc(all, func(r removal) bool { return r.WorktreeID == planned.WorktreeID })
		})
		if len(untried) > 0 {
			f.show(ctx, teardown.PhaseWorktrees, "")
			all = append(all, f.removeAll(untried)...)
		}
		if len(untried) > 0 && slices.ContainsFunc(all[len(all)-len(untried):], func(r removal) bool { return r.reopened }) {
			continue
		}
		if first := worst(all); first != nil || plan.Kept == nil {
			return first, nil
		}
		return keptOf(*plan.Kept), nil
	}
}

// removeAll removes siblings in parallel, a parent after all of its children. A
// worktree that stays does not keep its siblings from going; its parent's claim
// sees it.
func (f *finalization) removeAll(plan []teardown.Removal) []removal {
	removals := make([]removal, len(plan))
	for i, planned := range plan {
		removals[i].Removal = planned
	}
	bound := workflow.NewSemaphore(f.steps, int64(max(1, f.policy().Parallel)))
	group := workflow.NewWaitGroup(f.steps)
	for i := range removals {
		r := &removals[i]
		group.Add(1)
		workflow.GoNamed(f.steps, "remove-"+r.WorktreeID, func(coroutine workflow.Context) {
			defer group.Done()
			defer func() { r.ended = true }()
			if err := workflow.Await(coroutine, func() bool { return childrenEnded(removals, r.WorktreeID) }); err != nil {
				return
			}
			if err := bound.Acquire(coroutine, 1); err != nil {
				return
			}
			defer bound.Release(1)
			if workflow.GetInfo(coroutine).GetContinueAsNewSuggested() {
				r.obstacle = superseded()
				return
			}
			f.removeWorktree(coroutine, r)
		})
	}
	group.Wait(f.steps)
	return removals
}

// removal is one planned removal and how it ended.
type removal struct {
	teardown.Removal
	ended    bool
	reopened bool // an ancestor is free to go now
	obstacle *obstacle
}

func childrenEnded(removals []removal, parentID string) bool {
	for i := range removals {
		if removals[i].ParentID == parentID && !removals[i].ended {
			return false
		}
	}
	return true
}

func (f *finalization) removeWorktree(steps workflow.Context, r *removal) {
	var out teardown.RemoveWorktreeResult
	in := teardown.RemoveWorktreeInput{Step: f.begun.Step, WorktreeID: r.WorktreeID}
	if r.obstacle = f.onHost(steps, cmp.Or(r.Host, f.begun.Host), "Remove worktree "+r.Name, host.RemoveWorktree, in, &out); r.obstacle != nil {
		if r.obstacle.reason == teardown.ReasonCancelled {
			// A row that is being deleted may be parked for used-up attempts only.
			r.obstacle.reason = teardown.ReasonAttemptsExhausted
		}
		if r.obstacle.reason == teardown.ReasonAttemptsExhausted {
			f.noteFailedWorktree(r.WorktreeID, r.obstacle.failure.Code)
		}
		return
	}
	r.reopened = len(out.Reopened) > 0
	if out.Worktree.Disposition == teardown.DispositionSuperseded {
		r.obstacle = superseded()
		return
	}
	f.noteWorktree(out.Worktree)
	r.obstacle = keptOf(out.Worktree)
}

// keptOf answers the obstacle that a worktree is, or nil if it does not stay.
func keptOf(result teardown.WorktreeResult) *obstacle {
	switch result.Disposition {
	case teardown.DispositionPreserved:
		return kept(teardown.ReasonPreserved, result)
	case teardown.DispositionRefused:
		return kept(teardown.ReasonRefused, result)
	}
	return nil
}

func kept(reason string, result teardown.WorktreeResult) *obstacle {
	message := "Worktree " + result.Path + " was kept: " + string(result.Code)
	if len(result.Details) > 0 {
		message += " (" + result.Details[0] + ")"
	}
	return &obstacle{reason: reason, failure: teardown.Failure{Code: result.Code, Message: message}}
}

// worst answers the obstacle that decides why the round stops. A step that was
// superseded makes the whole round begin again. Attempts used up and an absent
// host go before what was kept, because only they may be recorded while a row is
// still being deleted.
func worst(removals []removal) *obstacle {
	var first *obstacle
	rank := func(o *obstacle) int {
		switch o.reason {
		case "":
			return 0
		case teardown.ReasonHostUnreachable:
			return 1
		case teardown.ReasonAttemptsExhausted:
			return 2
		case teardown.ReasonRefused:
			return 3
		}
		return 4
	}
	for i := range removals {
		o := removals[i].obstacle
		if o != nil && (first == nil || rank(o) < rank(first)) {
			first = o
		}
	}
	return first
}

func (f *finalization) noteWorktree(result teardown.WorktreeResult) {
	for i, known := range f.status.Result.Worktrees {
		if known.ID == result.ID {
			f.status.Result.Worktrees[i] = result
			return
		}
	}
}

func (f *finalization) noteFailedWorktree(id string, code teardown.Code) {
	for i := range f.status.Result.Worktrees {
		if known := &f.status.Result.Worktrees[i]; known.ID == id {
			known.Disposition, known.Code, known.Retryable = teardown.DispositionFailed, code, true
		}
	}
}
