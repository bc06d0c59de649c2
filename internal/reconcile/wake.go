package reconcile

import (
	"context"

	"unwind/internal/store"
	"unwind/teardown"
)

// wakeAll wakes what waits without need.
func (p *pass) wakeAll(ctx context.Context) {
	p.unanswered = 0
	each(ctx, p, "wake for this host", func(ctx context.Context, after string) (store.Page[store.Due], error) {
		return p.Store.Unreachable(ctx, p.Host.ID, after, pageSize)
	}, func(ctx context.Context, due store.Due) { p.wakeParked(ctx, due, teardown.ReasonHostUnreachable) })
	each(ctx, p, "wake that keeps nothing", func(ctx context.Context, after string) (store.Page[store.Due], error) {
		return p.Store.Unbound(ctx, p.Host.ID, after, pageSize)
	}, func(ctx context.Context, due store.Due) { p.wakeParked(ctx, due, due.ParkedReason) })
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

// deliver hands a recorded retry to a run that waits for it. Such a run shows
// that it is parked, while the database says that it is not: the signal was lost,
// or Temporal was away.
func (p *pass) deliver(ctx context.Context, due store.Due) error {
	round, err := p.retriedRound(ctx, due)
	if err != nil || round == 0 || !p.waits(ctx, teardown.FinalizeSessionID(due.SessionID)) {
		return err
	}
	// Once more: parked is a fact before a run shows it, so only what is not
	// parked by now was retried after the run had begun to wait.
	if round, err = p.retriedRound(ctx, due); err != nil || round == 0 {
		return err
	}
	return p.signal(ctx, due.SessionID, round)
}

// retriedRound is the round that a retry began, or 0 if none did or the
// finalization is parked or finished.
func (p *pass) retriedRound(ctx context.Context, due store.Due) (int64, error) {
	detail, err := p.Store.SessionDetail(ctx, due.SessionID)
	if err != nil {
		return 0, err
	}
	for _, f := range detail.Finalizations {
		if f.Generation == due.Generation && f.Round > 1 && f.ParkedAt == nil && f.FinishedAt == nil {
			return f.Round, nil
		}
	}
	return 0, nil
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
