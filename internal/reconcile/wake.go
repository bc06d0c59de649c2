package reconcile

import (
	"context"

	"unwind/internal/store"
	"unwind/teardown"
)

// wakeAll wakes what waits without need.
func (p *pass) wakeAll(ctx context.Context) {
	p.unanswered = 0
	each(ctx, p, part[store.Due]{
		doing: "wake for this host", until: p.shortly(), id: sessionID,
		next: func(ctx context.Context, after string) (store.Page[store.Due], error) {
			return p.Store.Unreachable(ctx, p.Host.ID, after, pageSize)
		},
		act: func(ctx context.Context, due store.Due) { p.wakeParked(ctx, due, teardown.ReasonHostUnreachable) },
	})
	each(ctx, p, part[store.Due]{
		doing: "wake that keeps nothing", until: p.shortly(), id: sessionID,
		next: func(ctx context.Context, after string) (store.Page[store.Due], error) {
			return p.Store.Unbound(ctx, p.Host.ID, after, pageSize)
		},
		act: func(ctx context.Context, due store.Due) { p.wakeParked(ctx, due, due.ParkedReason) },
	})
	p.wakeTasks(ctx)
}

func (p *pass) wakeParked(ctx context.Context, due store.Due, reason string) {
	p.call(ctx, Finding{SessionID: due.SessionID, Doing: "wake"}, func(ctx context.Context) error { return p.wake(ctx, due, reason) })
}

// wake retries a finalization that is parked for the reason. The fact comes
// first; should the signal be lost, deliver hands it over.
func (p *pass) wake(ctx context.Context, due store.Due, reason string) error {
	round, recorded, err := p.Store.Retry(ctx, due.SessionID, store.RetryOptions{
		IfParked: true, Reason: reason, By: p.name()})
	switch teardown.CodeOf(err) {
	case teardown.CodeSessionLive, teardown.CodeSessionNotFound, teardown.CodeConflict:
		return nil // restored, deleted or finished since it was listed
	}
	if err != nil || !recorded {
		return err
	}
	return p.signal(ctx, due.SessionID, round)
}

// deliver tells a run that waits that it waits in vain. Such a run shows that it
// is parked, while the database says that it is not: a retry was recorded, and its
// signal was lost; or what the run waits for was an earlier generation, deleted or
// unarchived since.
func (p *pass) deliver(ctx context.Context, due store.Due) error {
	round, err := p.unheardRound(ctx, due)
	if err != nil || round == 0 || !p.waits(ctx, teardown.FinalizeSessionID(due.SessionID)) {
		return err
	}
	// Once more: parked is a fact before a run shows it, so only what is not
	// parked by now was retried after the run had begun to wait.
	if round, err = p.unheardRound(ctx, due); err != nil || round == 0 {
		return err
	}
	return p.signal(ctx, due.SessionID, round)
}

func (p *pass) unheardRound(ctx context.Context, due store.Due) (int64, error) {
	detail, err := p.Store.SessionDetail(ctx, due.SessionID)
	return unheard(detail.Finalizations, due.Generation), err
}

// unheard is the round of a generation of which a run that waits may not have
// heard: one that a retry began, or the first after a generation that is still
// waited for. It is 0 if there is none, or the generation is parked or finished.
func unheard(finalizations []store.Finalization, generation int64) int64 {
	earlier := false
	for _, f := range finalizations {
		switch {
		case f.Generation < generation:
			// One that was restored while it was parked may not have told its run.
			earlier = earlier || f.FinishedAt == nil || f.Outcome == teardown.OutcomeRestored && f.ParkedAt != nil
		case f.Generation > generation:
		case f.ParkedAt != nil || f.FinishedAt != nil:
			return 0
		case f.Round > 1 || earlier && f.StartedAt == nil:
			return f.Round
		default:
			return 0
		}
	}
	if earlier {
		return 1
	}
	return 0
}

// waits asks a run whether it is parked. One that does not answer is left alone
// until the next pass, and so are the others after a few of them: there may be no
// worker to answer.
func (p *pass) waits(ctx context.Context, workflowID string) bool {
	if p.silent >= giveUpAfter {
		return false
	}
	var status teardown.Status
	answer, err := p.Temporal.Client.QueryWorkflow(ctx, workflowID, "", teardown.StatusQuery)
	if err == nil {
		err = answer.Get(&status)
	}
	if err != nil {
		p.silent++
		p.Logger.Debug("A run did not say what it is doing", "workflow", workflowID, "error", err)
		return false
	}
	p.silent = 0
	return status.Phase == teardown.PhaseParked
}

func (p *pass) signal(ctx context.Context, sessionID string, round int64) error {
	_, err := teardown.SignalRetry(ctx, p.Temporal.Client, p.TaskQueue, sessionID,
		teardown.RetryRequest{Round: round, RequestedBy: p.name()})
	if err == nil {
		p.done.Woken++
	}
	return err
}

// name is how a pass signs its requests.
func (p *pass) name() string { return "reconcile on " + p.Host.ID }
