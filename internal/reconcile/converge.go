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

	"unwind/internal/store"
	"unwind/teardown"
)

// lookAgainAfter is how long a worktree that was kept, and that no finalization
// will look at again, is left alone before it is looked at once more.
const lookAgainAfter = time.Hour

// convergeAll has finished what no finalization will: each by a workflow of its
// own, whose steps run on this host, under the same locks, with the same looks
// and the same retries as those of a finalization.
func (p *pass) convergeAll(ctx context.Context) {
	p.unanswered = 0
	each(ctx, p, "finish for sessions that have vanished", func(ctx context.Context, after string) (store.Page[string], error) {
		ids, err := p.Store.Vanished(ctx, p.Host.ID, after, pageSize)
		return paged(ids, func(id string) string { return id }), err
	}, p.releaseVanished)
	each(ctx, p, "finish", func(ctx context.Context, after string) (store.Page[store.Stray], error) {
		page, err := p.Store.Strays(ctx, p.Host.ID, after, pageSize)
		for _, row := range page.Unreadable {
			p.failed(Finding{WorktreeID: row.ID, Doing: "finish"}, row.Err)
		}
		page.Unreadable = nil
		return page, err
	}, p.finishStray)
}

func (p *pass) releaseVanished(ctx context.Context, sessionID string) {
	p.converge(ctx, Finding{SessionID: sessionID, Doing: "release what the vanished session holds"},
		teardown.ConvergeInput{SessionID: sessionID})
}

func (p *pass) finishStray(ctx context.Context, stray store.Stray) {
	about := Finding{WorktreeID: stray.ID, Doing: "finish"}
	switch {
	case !stray.Leased && stray.State != store.WorktreeDeleting:
		p.done.Unclaimed++
		p.noted(about, &teardown.Error{Code: teardown.CodeNotRegistered, Message: fmt.Sprintf(
			"Nobody has ever held the worktree %s, so it is left alone; remove it with `unwind worktree remove`", stray.Path)})
		return
	case stray.State == store.WorktreePreserved && time.Since(stray.UpdatedAt) < lookAgainAfter && stray.UpdatedAt.Before(time.Now()):
		return
	case !filepath.IsAbs(stray.Path) || filepath.Clean(stray.Path) != stray.Path:
		p.failed(about, &teardown.Error{Code: teardown.CodeUnsafeTarget, Message: fmt.Sprintf(
			"The path %q of worktree %s is not absolute and clean; correct it in the database", stray.Path, stray.ID)})
		return
	}
	p.converge(ctx, about, teardown.ConvergeInput{WorktreeID: stray.ID})
}

// converge starts the workflow, or finds the one that is under way.
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
		_, err := p.Temporal.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
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
