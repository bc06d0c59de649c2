package store

import (
	"context"
	"time"

	"unwind/teardown"
)

// Attempt is one attempt at a step.
type Attempt struct {
	Number     int        // counted from 1
	At         time.Time  // when it ended
	Next       *time.Time // when the next one begins; nil if there is none
	Code       teardown.Code
	Message    string
	WorktreeID string // of RemoveWorktree, else ""
	RuntimeID  string // of DestroyRuntime, else ""
}

// step names what was attempted.
func (a Attempt) step() string {
	switch {
	case a.WorktreeID != "":
		return "worktree " + a.WorktreeID
	case a.RuntimeID != "":
		return "runtime " + a.RuntimeID
	}
	return "resources"
}

// AttemptFailed records a failed attempt for people to see. Shown is the failure
// of the step that was tried most. Nothing is recorded for an older round, for a
// parked finalization, or for what is decided by now: such an attempt is late.
func (s *Store) AttemptFailed(ctx context.Context, step teardown.Step, a Attempt) error {
	return s.bookAttempt(ctx, step, func(tx queries, f Finalization) error {
		late, err := attemptIsLate(ctx, tx, step, a)
		if err != nil || late {
			return err
		}
		if err := markAttempted(ctx, tx, step, a); err != nil {
			return err
		}
		if f.FailureCode != "" && a.Number < f.AttemptNumber {
			return nil
		}
		_, err = tx.exec(ctx, `UPDATE finalizations SET attempt_count = ?, attempt_step = ?, attempt_number = ?,
			last_attempt_at = ?, next_attempt_at = ?, failure_code = ?, failure_message = ?`+ofHolder,
			append([]any{max(f.AttemptCount, a.Number), a.step(), a.Number, a.At, a.Next,
				string(a.Code), readable(a.Message, maxText)}, f.Holder.key()...)...)
		return err
	})
}

// AttemptDone records an attempt that succeeded; of a only Number, At,
// WorktreeID and RuntimeID count. The step's failure, if it is the one shown,
// is cleared.
func (s *Store) AttemptDone(ctx context.Context, step teardown.Step, a Attempt) error {
	return s.bookAttempt(ctx, step, func(tx queries, f Finalization) error {
		if f.AttemptStep == a.step() && a.Number >= f.AttemptNumber {
			_, err := tx.exec(ctx, `UPDATE finalizations SET attempt_count = ?, attempt_step = '', attempt_number = 0,
				last_attempt_at = ?, next_attempt_at = NULL, failure_code = '', failure_message = ''`+ofHolder,
				append([]any{max(f.AttemptCount, a.Number), a.At}, f.Holder.key()...)...)
			return err
		}
		_, err := tx.exec(ctx, "UPDATE finalizations SET attempt_count = ?"+ofHolder,
			append([]any{max(f.AttemptCount, a.Number)}, f.Holder.key()...)...)
		return err
	})
}

func (s *Store) bookAttempt(ctx context.Context, step teardown.Step, book func(queries, Finalization) error) error {
	return s.write(ctx, func(tx queries) error {
		at, err := stand(ctx, tx, step)
		if err != nil || !at.current || at.finalization.ParkedAt != nil {
			return err
		}
		return book(tx, at.finalization)
	})
}

// attemptIsLate reports whether the thing was decided by another attempt.
func attemptIsLate(ctx context.Context, tx queries, step teardown.Step, a Attempt) (bool, error) {
	if a.WorktreeID != "" {
		lease, found, err := leaseOf(ctx, tx, a.WorktreeID, HolderOf(step))
		return found && lease.Disposition != teardown.DispositionPending, err
	}
	if a.RuntimeID != "" {
		r, err := runtimeOf(ctx, tx, a.RuntimeID)
		return r.ReleasedAt != nil, err
	}
	return false, nil
}

// markAttempted notes the code where the thing itself is listed.
func markAttempted(ctx context.Context, tx queries, step teardown.Step, a Attempt) error {
	if a.WorktreeID != "" {
		me := HolderOf(step)
		_, err := tx.exec(ctx, "UPDATE leases SET code = ?, details = '[]', round = ?"+ofHolder+" AND worktree_id = ?",
			append(append([]any{string(a.Code), step.Round}, me.key()...), a.WorktreeID)...)
		return err
	}
	if a.RuntimeID != "" {
		_, err := tx.exec(ctx, "UPDATE runtimes SET code = ?, details = '[]', message = ? WHERE id = ? AND session_id = ?",
			string(a.Code), readable(a.Message, maxText), a.RuntimeID, step.SessionID)
		return err
	}
	return nil
}
