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

// newestAgainAfter is how long a pass goes on with what is under way before it
// looks again for what has never begun.
const newestAgainAfter = 5 * time.Second

// startAll starts what is due. What has never begun goes first, and again now and
// then between the others: when thousands are under way, asking after their runs
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
	looked := time.Now()
	each(ctx, p, "start", func(ctx context.Context, after string) (store.Page[store.Due], error) {
		if time.Since(looked) > newestAgainAfter && !p.away() {
			each(ctx, p, "start", neverBegun, once)
			looked = time.Now()
		}
		return p.Store.UnderWay(ctx, after, pageSize, time.Now())
	}, once)
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
