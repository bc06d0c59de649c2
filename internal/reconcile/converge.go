package reconcile

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"unwind/internal/store"
	"unwind/teardown"
)

// lookAgainAfter is how long what was kept, or failed as often as allowed, is left
// alone before it is looked at once more: a person has to do something first.
const lookAgainAfter = time.Hour

// convergeAll has finished what no finalization will: each by a workflow of its
// own, whose steps run on this host, under the same locks, with the same looks
// and the same retries as those of a finalization.
func (p *pass) convergeAll(ctx context.Context) {
	p.unanswered = 0
	itself := func(id string) string { return id }
	each(ctx, p, part[string]{
		doing: "finish for sessions that have vanished", until: p.shortly(), id: itself,
		next: func(ctx context.Context, after string) (store.Page[string], error) {
			ids, err := p.Store.Vanished(ctx, p.Host.ID, after, pageSize)
			return paged(ids), err
		},
		act: p.releaseVanished,
	})
	each(ctx, p, part[string]{
		doing: "look for where vanished sessions ran", until: p.shortly(), id: itself,
		next: func(ctx context.Context, after string) (store.Page[string], error) {
			ids, err := p.Store.Hostless(ctx, after, pageSize)
			return paged(ids), err
		},
		act: p.noteHostless,
	})
	each(ctx, p, part[store.Stray]{
		doing: "finish", until: p.shortly(), id: func(stray store.Stray) string { return stray.ID },
		next: func(ctx context.Context, after string) (store.Page[store.Stray], error) {
			page, err := p.Store.Strays(ctx, p.Host.ID, after, pageSize)
			for _, row := range page.Unreadable {
				p.failed(Finding{WorktreeID: row.ID, Doing: "finish"}, row.Err)
			}
			page.Unreadable = nil
			return page, err
		},
		act: p.finishStray,
	})
}

func (p *pass) releaseVanished(ctx context.Context, sessionID string) {
	p.converge(ctx, Finding{SessionID: sessionID, Doing: "release what the vanished session holds"},
		teardown.ConvergeInput{SessionID: sessionID})
}

// noteHostless: what is at its paths on this host need not be what it left.
func (p *pass) noteHostless(_ context.Context, sessionID string) {
	p.noted(Finding{SessionID: sessionID, Doing: "release what the vanished session holds"}, &teardown.Error{
		Code: teardown.CodeSessionNotFound, Message: fmt.Sprintf(
			"Runtimes or resources are registered for session %s, which has no row, and nothing says on which host; release them by hand and delete their rows", sessionID)})
}

func (p *pass) finishStray(ctx context.Context, stray store.Stray) {
	about := Finding{WorktreeID: stray.ID, Doing: "finish"}
	if stray.State == store.WorktreePreserved && stray.KeptCode != "" {
		p.done.Kept++
		p.noted(about, stray.Why())
	}
	switch {
	case !stray.Leased && stray.State != store.WorktreeDeleting:
		p.done.Unclaimed++
		p.noted(about, &teardown.Error{Code: teardown.CodeNotRegistered, Message: fmt.Sprintf(
			"Nobody has ever held the worktree %s, so it is left alone; remove it with `unwind worktree remove`", stray.Path)})
		return
	case stray.State == store.WorktreePreserved && stray.KeptCode != "" && lately(stray.UpdatedAt):
		return
	case !filepath.IsAbs(stray.Path) || filepath.Clean(stray.Path) != stray.Path:
		p.failed(about, &teardown.Error{Code: teardown.CodeUnsafeTarget, Message: fmt.Sprintf(
			"The path %q of worktree %s is not absolute and clean; correct it in the database", stray.Path, stray.ID)})
		return
	}
	p.converge(ctx, about, teardown.ConvergeInput{WorktreeID: stray.ID})
}

// lately: less than lookAgainAfter ago. A time that is still to come is none that
// could be waited for.
func lately(at time.Time) bool { return time.Since(at) < lookAgainAfter && at.Before(time.Now()) }

// converge starts the workflow, or finds the one that is under way. One that
// failed lately is noted instead, with why; a person who asks by hand has it tried
// again all the same.
func (p *pass) converge(ctx context.Context, about Finding, in teardown.ConvergeInput) {
	p.call(ctx, about, func(ctx context.Context) error {
		if err := teardown.ValidateID(in.WorktreeID + in.SessionID); err != nil {
			return err
		}
		in.Host, in.Policy = p.Host.ID, p.Policy
		taskQueue := p.TaskQueue
		if taskQueue == "" {
			taskQueue = teardown.DefaultTaskQueue
		}
		failure, err := p.failedLately(ctx, teardown.ConvergeID(in))
		if err != nil {
			return err
		}
		if failure != nil {
			p.noted(about, failure)
			if p.Serving {
				return nil
			}
		}
		_, err = p.Temporal.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
			ID:                                       teardown.ConvergeID(in),
			TaskQueue:                                taskQueue,
			WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
			WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
			StaticSummary:                            "Finish what no finalization will",
			WorkflowExecutionErrorWhenAlreadyStarted: true,
		}, teardown.ConvergeWorkflow, in)
		var already *serviceerror.WorkflowExecutionAlreadyStarted
		if err == nil {
			p.done.Converging++
		}
		if errors.As(err, &already) {
			return nil
		}
		return err
	})
}

// failedLately answers why the last run of a workflow failed, nil if it did not,
// or not lately.
func (p *pass) failedLately(ctx context.Context, workflowID string) (why, err error) {
	run, err := p.Temporal.Client.DescribeWorkflow(ctx, workflowID, "")
	var missing *serviceerror.NotFound
	switch {
	case errors.As(err, &missing):
		return nil, nil
	case err != nil:
		return nil, err
	case run.Status != enumspb.WORKFLOW_EXECUTION_STATUS_FAILED || run.WorkflowCloseTime == nil || !lately(*run.WorkflowCloseTime):
		return nil, nil
	}
	failed := p.Temporal.Client.GetWorkflow(ctx, workflowID, run.WorkflowExecution.RunID).Get(ctx, nil)
	var said *temporal.ApplicationError
	if !errors.As(failed, &said) {
		return nil, failed // it could not be read
	}
	return &teardown.Error{Code: teardown.Code(said.Type()), Message: said.Message()}, nil
}
