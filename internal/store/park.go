package store

import (
	"context"

	"unwind/teardown"
)

// Park records that the finalization waits, and why. Parked already: it stays
// as it is. Superseded if a newer round or generation has taken over.
//
// For a reason that a person has to look at it is refused (CodeInternal) while a
// worktree of this remover is deleting; used-up attempts and an absent host
// leave such rows behind, to be gone on with.
func (s *Store) Park(ctx context.Context, in teardown.ParkInput) (parked teardown.ParkResult, err error) {
	err = s.write(ctx, func(tx queries) error {
		parked = teardown.ParkResult{}
		at, err := stand(ctx, tx, in.Step)
		if err != nil {
			return err
		}
		parked.Superseded = !at.current
		if at.current && at.finalization.ParkedAt == nil {
			if err := park(ctx, tx, in); err != nil {
				return err
			}
		}
		parked.Result, err = resultOfHolder(ctx, tx, HolderOf(in.Step))
		return err
	})
	return parked, err
}

func park(ctx context.Context, tx queries, in teardown.ParkInput) error {
	me := HolderOf(in.Step)
	left, err := deletingBy(ctx, tx, me)
	if err != nil {
		return err
	}
	if _, err := lockWorktrees(ctx, tx, ids(left)...); err != nil {
		return err
	}
	if left, err = deletingBy(ctx, tx, me); err != nil {
		return err
	}
	switch in.Reason {
	case teardown.ReasonAttemptsExhausted:
		if err := markFailed(ctx, tx, in, left); err != nil {
			return err
		}
	case teardown.ReasonHostUnreachable:
	default:
		if len(left) > 0 {
			return &teardown.Error{Code: teardown.CodeInternal, Details: bounded(paths(left)),
				Message: "The finalization cannot be parked while a worktree is being removed; release the leases again and go on with the plan"}
		}
	}
	_, err = tx.exec(ctx, `UPDATE finalizations SET parked_at = ?, parked_reason = ?, outcome = ?, next_attempt_at = NULL,
		failure_code = ?, failure_message = ?`+ofHolder,
		append([]any{now(), in.Reason, string(teardown.ParkedOutcome(in.Reason)),
			string(in.Failure.Code), readable(in.Failure.Message, maxText)}, me.key()...)...)
	return err
}

// markFailed records what the attempts were used up on.
func markFailed(ctx context.Context, tx queries, in teardown.ParkInput, left []Worktree) error {
	me := HolderOf(in.Step)
	for _, w := range left {
		if _, err := tx.exec(ctx, "UPDATE leases SET disposition = 'failed', code = COALESCE(NULLIF(code, ''), ?), round = ?"+ofHolder+
			" AND worktree_id = ? AND disposition = 'pending'",
			append(append([]any{string(in.Failure.Code), in.Step.Round}, me.key()...), w.ID)...); err != nil {
			return err
		}
	}
	_, err := tx.exec(ctx, `UPDATE runtimes SET outcome = 'failed', code = COALESCE(NULLIF(code, ''), ?)
		WHERE session_id = ? AND released_at IS NULL AND outcome = 'pending'`, string(in.Failure.Code), in.Step.SessionID)
	return err
}

// ParkUnreadable records that a finalization which could not be begun waits for a
// person: somebody has written what unwind does not understand into one of its
// rows. That row is not read again here. A holder that is live, and a finalization
// that is finished or parked, stays as it is.
func (s *Store) ParkUnreadable(ctx context.Context, in teardown.BeginInput, why teardown.Failure) error {
	return s.write(ctx, func(tx queries) error {
		me, closed, err := closedHolder(ctx, tx, in)
		if err != nil || !closed {
			return err
		}
		_, err = tx.exec(ctx, `INSERT INTO finalizations (holder_kind, holder_id, generation, parked_at, parked_reason, outcome, failure_code, failure_message)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (holder_kind, holder_id, generation) DO UPDATE SET parked_at = excluded.parked_at, parked_reason = excluded.parked_reason,
				outcome = excluded.outcome, failure_code = excluded.failure_code, failure_message = excluded.failure_message
			WHERE finalizations.finished_at IS NULL AND finalizations.parked_at IS NULL`,
			append(me.key(), now(), teardown.ReasonAttemptsExhausted, string(teardown.ParkedOutcome(teardown.ReasonAttemptsExhausted)),
				string(why.Code), readable(why.Message, maxText))...)
		return err
	})
}

// closedHolder locks the session that is terminated, or the task that is closed.
func closedHolder(ctx context.Context, tx queries, in teardown.BeginInput) (me Holder, closed bool, err error) {
	if in.TaskID != "" {
		t, found, err := lockTask(ctx, tx, in.TaskID)
		return t.Holder(), found && t.Closed(), err
	}
	session, found, err := lockSession(ctx, tx, in.SessionID)
	return session.holder(), found && session.TerminatedAt != nil, err
}
