package reconcile

import (
	"cmp"
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

// startAll starts what is due. What the last pass did not see goes first, lest it
// wait for thousands before it; then what else has never begun, and that again now
// and then between those that are under way, for asking after their runs takes its
// time.
func (p *pass) startAll(ctx context.Context) {
	p.unanswered = 0
	half := p.StartFor / 2
	tried, under := map[string]bool{}, &window{}
	once := func(ctx context.Context, due store.Due) {
		if tried[due.SessionID] {
			return
		}
		p.awaitRoom(ctx, under)
		tried[due.SessionID] = true
		if p.startDue(ctx, due) {
			under.add(due.SessionID)
		}
	}
	neverBegun := part[store.Due]{
		doing: "start", until: p.within(half), id: sessionID, act: once,
		next: func(ctx context.Context, after string) (store.Page[store.Due], error) {
			return p.Store.NeverBegun(ctx, after, pageSize, time.Now())
		},
	}
	p.startFresh(ctx, p.within(half/2), once)
	midway := p.Reached.after[neverBegun.doing] != ""
	if more := each(ctx, p, neverBegun); midway && !more {
		p.done.More = true // what is new may be before where the last pass has stopped
	}
	looked := time.Now()
	each(ctx, p, part[store.Due]{
		doing: "start again", until: p.within(half), id: sessionID, act: once,
		next: func(ctx context.Context, after string) (store.Page[store.Due], error) {
			if time.Since(looked) > newestAgainAfter && !p.away() {
				each(ctx, p, neverBegun)
				looked = time.Now()
			}
			return p.Store.UnderWay(ctx, after, pageSize, time.Now())
		},
	})
}

// startFresh starts, until then, what the last pass did not find waiting, whose
// place by id may be far. A pass without bound comes to all of them.
func (p *pass) startFresh(ctx context.Context, until time.Time, once func(context.Context, store.Due)) {
	if until.IsZero() {
		return
	}
	var fresh []store.Due
	waiting := map[string]bool{}
	for after, more := "", true; more; more = after != "" {
		page, err := p.Store.NeverBegun(ctx, after, pageSize, time.Now())
		if err != nil {
			return // the next part hears of it
		}
		for _, due := range page.Rows {
			if p.Reached.waiting != nil && !p.Reached.waiting[due.SessionID] {
				fresh = append(fresh, due)
				continue
			}
			waiting[due.SessionID] = true
		}
		after = page.Next
	}
	for n, due := range fresh {
		if p.away() || ctx.Err() != nil || n > 0 && time.Now().After(until) {
			p.done.More = true
			break
		}
		once(ctx, due)
		waiting[due.SessionID] = true
	}
	p.Reached.waiting = waiting
}

// startDue reports whether a run was started.
func (p *pass) startDue(ctx context.Context, due store.Due) bool {
	before := p.done.Started
	p.call(ctx, Finding{SessionID: due.SessionID, Doing: "start"}, func(ctx context.Context) error { return p.start(ctx, due) })
	return p.done.Started > before
}

const (
	// DefaultWindow is more than a worker has in hand.
	DefaultWindow = 100
	// roomEvery is how often a pass looks whether they are done.
	roomEvery = 200 * time.Millisecond
	// stuckAfter none of them was done, nobody works on them, or their host is away:
	// then they are not waited for.
	stuckAfter = 5 * time.Second
)

// window holds the sessions that were started and may be under way.
type window struct {
	ids []string
	// moved is when it last changed, looked when that was last asked.
	moved, looked time.Time
}

func (w *window) add(id string) { w.ids, w.moved = append(w.ids, id), time.Now() }

// room reports whether another one may be started.
func (p *pass) room(ctx context.Context, under *window) bool {
	size := cmp.Or(p.Window, DefaultWindow)
	if len(under.ids) < size {
		return true
	}
	if time.Since(under.looked) < roomEvery {
		return false
	}
	left, err := p.Store.StillDue(ctx, under.ids)
	if err != nil {
		return true // who starts one will hear of it
	}
	under.looked = time.Now()
	if len(left) < len(under.ids) {
		under.ids, under.moved = left, under.looked
	}
	if under.looked.Sub(under.moved) > stuckAfter {
		under.ids = nil
	}
	return len(under.ids) < size
}

// awaitRoom returns when another one may be started.
func (p *pass) awaitRoom(ctx context.Context, under *window) {
	for !p.room(ctx, under) && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(roomEvery):
		}
	}
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
// is due: what a pass would come to in its turn. It reports whether it did.
func start(ctx context.Context, d Deps, starts *rate.Limiter, sessionID string) (started bool, err error) {
	due, found, err := d.Store.DueSession(ctx, sessionID, time.Now())
	if err != nil || !found {
		return false, err
	}
	p := newPass(d)
	p.starts = starts
	return p.startDue(ctx, due), p.first
}
