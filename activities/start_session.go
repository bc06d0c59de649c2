package activities

import (
	"context"
	"os"

	"unwind/internal/fault"
	"unwind/internal/lock"
	"unwind/internal/runtime"
	"unwind/internal/store"
	"unwind/internal/worktree"
	"unwind/teardown"
)

// ReadPolicy answers the bounds of a start's steps.
func (f *Facts) ReadPolicy(context.Context) (teardown.Policy, error) { return f.Policy, nil }

// FailStart terminates a session whose start failed, if anything of it was
// recorded and its start is not complete.
func (f *Facts) FailStart(ctx context.Context, in teardown.StartSessionInput) (teardown.FailStartResult, error) {
	session, begun, err := f.Store.FailStart(ctx, in.ID, startHash(in))
	fault.Point("start failed")
	return teardown.FailStartResult{Begun: begun, Generation: session.Generation}, failure(err)
}

// CreateResource makes one file, directory, FIFO or secret of a session that is
// being started. Its content goes from file to file on the host. An earlier
// attempt's is filled anew; what somebody else has put there is path_occupied
// and stays.
func (h *Host) CreateResource(ctx context.Context, in teardown.CreateResourceInput) error {
	work, a := begin(ctx, "Waiting for the session's lock")
	defer a.stop()
	return failure(h.createResource(work, a, in))
}

func (h *Host) createResource(ctx context.Context, a *attempt, in teardown.CreateResourceInput) error {
	held, err := h.starting(ctx, a, in.Start)
	if err != nil {
		return err
	}
	defer held.Release()
	spec := teardown.ResourceSpec{Kind: in.Resource.Kind, Path: in.Resource.Path}
	id, again, err := h.Store.IntendedResource(ctx, in.Start, spec.Path)
	if err != nil {
		return err
	}
	if !again {
		if err := h.Resources.Absent(spec); err != nil {
			return err
		}
		if id, err = h.Store.IntendResource(ctx, in.Start, store.NewResource{Kind: spec.Kind, Path: spec.Path}); err != nil {
			return err
		}
		fault.Point("resource intended")
	}
	err = h.Resources.Create(spec, in.Resource.From, again)
	if !again && teardown.CodeOf(err) == teardown.CodePathOccupied {
		if forgotten := h.Store.ForgetResource(ctx, in.Start, id); forgotten != nil {
			return forgotten
		}
	}
	fault.Point("resource made")
	return err
}

// CreateWorktree makes one worktree of a session that is being started, under
// the session's and the path's lock, which git inherits. One that an earlier
// attempt has made is taken up.
func (h *Host) CreateWorktree(ctx context.Context, in teardown.CreateWorktreeInput) (teardown.StartedWorktree, error) {
	work, a := begin(ctx, "Waiting for the session's lock")
	defer a.stop()
	made, err := h.createWorktree(work, a, in)
	return made, failure(err)
}

func (h *Host) createWorktree(ctx context.Context, a *attempt, in teardown.CreateWorktreeInput) (teardown.StartedWorktree, error) {
	var nothing teardown.StartedWorktree
	session, err := h.starting(ctx, a, in.Start)
	if err != nil {
		return nothing, err
	}
	defer session.Release()
	row, err := h.Store.Worktree(ctx, in.Worktree.ID)
	if err != nil {
		return nothing, err
	}
	switch row.State {
	case store.WorktreeCreating:
	case store.WorktreeActive:
		return teardown.StartedWorktree{ID: row.ID, Path: row.Path, Branch: row.Branch}, nil
	default: // what is made for such a row would be nobody's
		return nothing, &teardown.Error{Code: teardown.CodePathOccupied,
			Message: "Something was at " + row.Path + " when the worktree was to be made; choose another path"}
	}
	path, err := h.Locks.Path(ctx, row.Path, a.lockWait(h.LockWait))
	if err != nil {
		return nothing, err
	}
	defer path.Release()
	a.doing("Making the worktree")
	made, err := h.Worktrees.Create(ctx, worktree.NewTree{Repository: row.Repository, Path: row.Path, Branch: row.Branch,
		Base: in.Worktree.Base, Commit: in.Worktree.Commit, Nonce: row.Nonce}, worktree.Hooks{Progress: a.report, Inherit: files(session, path)})
	fault.Point("worktree made")
	if teardown.CodeOf(err) == teardown.CodePathOccupied {
		if noted := h.Store.WorktreeNotCreated(ctx, in.Start, row.ID); noted != nil {
			return nothing, noted
		}
	}
	if err != nil {
		return nothing, err
	}
	err = h.Store.WorktreeCreated(ctx, in.Start, row.ID, made.Branch)
	fault.Point("worktree recorded")
	return teardown.StartedWorktree{ID: row.ID, Path: row.Path, Branch: made.Branch}, err
}

func files(locks ...*lock.Held) []*os.File {
	open := make([]*os.File, len(locks))
	for i, held := range locks {
		open[i] = held.File()
	}
	return open
}

// StartRuntime starts one runtime of a session that is being started, under the
// session's lock, which the runtime does not inherit. One that an earlier
// attempt has started is found by its tag.
func (h *Host) StartRuntime(ctx context.Context, in teardown.StartRuntimeInput) (teardown.StartedRuntime, error) {
	work, a := begin(ctx, "Waiting for the session's lock")
	defer a.stop()
	started, err := h.startRuntime(work, a, in)
	return started, failure(err)
}

func (h *Host) startRuntime(ctx context.Context, a *attempt, in teardown.StartRuntimeInput) (teardown.StartedRuntime, error) {
	var nothing teardown.StartedRuntime
	held, err := h.starting(ctx, a, in.Start)
	if err != nil {
		return nothing, err
	}
	defer held.Release()
	row, err := h.Store.Runtime(ctx, in.RuntimeID)
	if err != nil {
		return nothing, err
	}
	if row.State != store.RuntimeCreating {
		return startedRuntime(row.ID, row.Handle.V), nil
	}
	kind, err := h.Runtimes.For(row.Handle.V)
	if err != nil {
		return nothing, err
	}
	starter, ok := kind.(runtime.Starter)
	if !ok {
		return nothing, unfit("A runtime of kind %q cannot be started; use tmux or process", row.Kind)
	}
	a.doing("Starting the runtime")
	rt, found, err := starter.Find(ctx, row.Handle.V)
	if err == nil && !found {
		rt, err = starter.Start(ctx, row.Handle.V, runtime.Launch{
			Command: in.Launch.Command, Directory: in.Launch.Directory, Output: in.Launch.Output})
	}
	fault.Point("runtime started")
	if err != nil {
		return nothing, err
	}
	err = h.Store.RuntimeStarted(ctx, in.Start, row.ID, rt)
	fault.Point("start of runtime recorded")
	return startedRuntime(row.ID, rt), err
}
