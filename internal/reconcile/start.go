package reconcile

import (
	"context"
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"golang.org/x/time/rate"

	"unwind/internal/store"
	"unwind/teardown"
)

// startAll starts what is due. What has never begun goes first, and again before
// each page of the others: when thousands are under way, asking after their runs
// must not keep a new one waiting.
func (p *pass) startAll(ctx context.Context) {
	p.unanswered = 0
	tried := map[string]bool{}
	once := func(ctx context.Context, due store.Due) {
		if !tried[due.SessionID] {
			tried[due.SessionID] = true
			p.startDue(ctx, due)
		}
	}
	neverBegun := func(ctx context.Context, after string) (store.Page[store.Due], error) {
		return p.Store.NeverBegun(ctx, after, pageSize, time.Now())
	}
	each(ctx, p, "start", neverBegun, once)
	each(ctx, p, "start", func(ctx context.Context, after string) (store.Page[store.Due], error) {
		if after != "" && !p.away() {
			each(ctx, p, "start", neverBegun, once)
		}
		page, err := p.Store.Due(ctx, after, pageSize, time.Now())
		page.Unreadable = p.unreported(tried, page.Unreadable)
		return page, err
	}, once)
}

// unreported leaves out what an earlier list of this pass has reported.
func (p *pass) unreported(tried map[string]bool, rows []store.Unreadable) (left []store.Unreadable) {
	for _, row := range rows {
		if !tried[row.ID] && !p.reported(row.ID) {
			left = append(left, row)
		}
	}
	return left
}

func (p *pass) reported(id string) bool {
	for _, failure := range p.done.Failures {
		if failure.SessionID == id {
			return true
		}
	}
	return false
}

func (p *pass) startDue(ctx context.Context, due store.Due) {
	p.call(ctx, Finding{SessionID: due.SessionID, Doing: "start"}, func(ctx context.Context) error { return p.start(ctx, due) })
}

// start starts a session's finalization, or finds the run that is under way. The
// two are told apart, which StartOptions alone does not.
func (p *pass) start(ctx context.Context, due store.Due) error {
	if err := teardown.ValidateID(due.SessionID); err != nil {
		return err
	}
	options := teardown.StartOptions(p.TaskQueue, due.SessionID)
	options.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL
	options.WorkflowExecutionErrorWhenAlreadyStarted = true
	_, err := p.Temporal.Client.ExecuteWorkflow(ctx, options, teardown.FinalizeSessionWorkflow,
		teardown.FinalizeSessionInput{SessionID: due.SessionID})
	var already *serviceerror.WorkflowExecutionAlreadyStarted
	switch {
	case errors.As(err, &already):
		p.done.UnderWay++
		return p.deliver(ctx, due)
	case err != nil:
		return err
	}
	p.done.Started++
	return nil
}

// start starts the finalization of one session that was just terminated, if it
// is due: what a pass would come to in its turn.
func start(ctx context.Context, d Deps, starts *rate.Limiter, sessionID string) error {
	due, found, err := d.Store.DueSession(ctx, sessionID, time.Now())
	if err != nil || !found {
		return err
	}
	p := newPass(d)
	p.starts = starts
	p.startDue(ctx, due)
	return p.first
}
