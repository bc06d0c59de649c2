package store

import (
	"context"

	"unwind/teardown"
)

// RetryOptions are what a retry asks for.
type RetryOptions struct {
	// SaveChanges saves uncommitted work, then removes. It holds for all later
	// rounds of the generation.
	SaveChanges bool
	// IfParked does nothing unless the finalization is parked; with Reason,
	// unless it is parked for that.
	IfParked bool
	Reason   string
	// RuntimeConfirmedGone: By has seen that the runtimes are gone. It holds for
	// this round only.
	RuntimeConfirmedGone bool
	By                   string // who asks
}

// Retry records a new round and answers its number, which the signal that
// follows carries. Recorded is false if IfParked and it is not parked; the round
// is then the current one. A finalization that was never begun is opened, so
// that the flag is not lost. Live: session_live; finalized already: conflict.
func (s *Store) Retry(ctx context.Context, sessionID string, o RetryOptions) (round int64, recorded bool, err error) {
	err = s.write(ctx, func(tx queries) error {
		round, recorded, err = retry(ctx, tx, sessionID, o)
		return err
	})
	return round, recorded && err == nil, err
}

func retry(ctx context.Context, tx queries, sessionID string, o RetryOptions) (round int64, recorded bool, err error) {
	session, found, err := lockSession(ctx, tx, sessionID)
	if err != nil {
		return 0, false, err
	}
	if !found {
		return 0, false, sessionNotFound(sessionID)
	}
	if session.TerminatedAt == nil {
		return 0, false, sessionLive(sessionID)
	}
	return retryHolder(ctx, tx, Holder{Kind: HolderSession, ID: session.ID, Generation: session.Generation}, o)
}

// RetryTask is Retry for a task that is archived or deleted. Its sessions that
// are parked are retried with it. Active: task_active.
func (s *Store) RetryTask(ctx context.Context, taskID string, o RetryOptions) (round int64, recorded bool, err error) {
	err = s.write(ctx, func(tx queries) error {
		t, found, err := lockTask(ctx, tx, taskID)
		if err != nil {
			return err
		}
		if !found {
			if t.Generation, err = newestTrace(ctx, tx, taskID); err != nil {
				return err
			}
			if t.Generation == 0 {
				return taskNotFound(taskID)
			}
		} else if !t.Closed() {
			return taskActive(taskID)
		}
		round, recorded, err = retryHolder(ctx, tx, Holder{Kind: HolderTask, ID: taskID, Generation: t.Generation}, o)
		return err
	})
	return round, recorded && err == nil, err
}

// retryHolder is for both, with the holder's row locked.
func retryHolder(ctx context.Context, tx queries, me Holder, o RetryOptions) (round int64, recorded bool, err error) {
	f, opened, err := finalizationOf(ctx, tx, me)
	switch {
	case err != nil:
		return 0, false, err
	case f.FinishedAt != nil:
		return f.Round, false, conflict("%s is already finalized; there is nothing to retry", named(me))
	case o.IfParked && (f.ParkedAt == nil || o.Reason != "" && o.Reason != f.ParkedReason):
		return f.Round, false, nil
	case !opened:
		f, err = open(ctx, tx, me, []teardown.RetryRequest{{
			SaveChanges: o.SaveChanges, RuntimeConfirmedGone: o.RuntimeConfirmedGone, RequestedBy: o.By}})
		return f.Round, true, err
	}
	f, err = nextRound(ctx, tx, f, o)
	return f.Round, true, err
}

// nextRound adds a round, in which the attempts start anew. The wish to save
// changes stays: a wake-up by reconcile must not drop what a person asked for.
func nextRound(ctx context.Context, tx queries, f Finalization, o RetryOptions) (Finalization, error) {
	next := Finalization{
		Holder: f.Holder, Round: f.Round + 1, SaveRequested: f.SaveRequested || o.SaveChanges, RequestedBy: readable(o.By, maxText), RuntimeConfirmedGone: o.RuntimeConfirmedGone,
		WorkflowID: f.WorkflowID, StartedAt: f.StartedAt, RuntimeReleasedAt: f.RuntimeReleasedAt, ResourcesClearedAt: f.ResourcesClearedAt,
	}
	if _, err := tx.exec(ctx, `UPDATE finalizations SET round = ?, save_requested = ?, requested_by = ?, runtime_confirmed_gone = ?,
		parked_at = NULL, parked_reason = '', outcome = '', failure_code = '', failure_message = '',
		attempt_count = 0, attempt_step = '', attempt_number = 0, last_attempt_at = NULL, next_attempt_at = NULL`+ofHolder,
		append([]any{next.Round, next.SaveRequested, next.RequestedBy, next.RuntimeConfirmedGone}, f.Holder.key()...)...); err != nil {
		return f, err
	}
	if _, err := tx.exec(ctx, "UPDATE leases SET disposition = 'pending'"+ofHolder+" AND disposition = 'failed'", f.Holder.key()...); err != nil {
		return f, err
	}
	if f.Holder.Kind == HolderTask {
		return next, retrySessions(ctx, tx, f.Holder.ID, o)
	}
	_, err := tx.exec(ctx, `UPDATE runtimes SET outcome = 'pending'
		WHERE session_id = ? AND released_at IS NULL AND outcome IN ('failed', 'refused')`, f.Holder.ID)
	return next, err
}
