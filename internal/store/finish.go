package store

import (
	"context"

	"unwind/teardown"
)

// Finish records that the session or the task holds nothing any more. It is superseded, and
// writes nothing, while something is left: a newer round or generation, a parked
// finalization, a runtime that is not released, a worktree that is deleting or
// preserved for this finalization, a lease or resource that is not settled; the
// caller begins again. On a finished one it answers the same result; Again says
// that the session is terminated at a newer generation by now.
func (s *Store) Finish(ctx context.Context, step teardown.Step) (done teardown.FinishResult, err error) {
	err = s.write(ctx, func(tx queries) error {
		done = teardown.FinishResult{}
		at, err := stand(ctx, tx, step)
		if err != nil {
			return err
		}
		if !at.holder.known {
			return notFound(HolderOf(step))
		}
		if at.finalization.FinishedAt == nil {
			settled, err := isSettled(ctx, tx, step)
			if err != nil {
				return err
			}
			done.Superseded = !at.current || at.finalization.ParkedAt != nil || !settled
			if !done.Superseded {
				if err := finish(ctx, tx, step); err != nil {
					return err
				}
			}
		}
		done.Again = at.holder.terminated && at.holder.generation > step.Generation
		if done.Result, err = resultOfHolder(ctx, tx, HolderOf(step)); err != nil {
			return err
		}
		return dropDeletedTask(ctx, tx, step.TaskID)
	})
	return done, err
}

func finish(ctx context.Context, tx queries, step teardown.Step) error {
	if err := markRuntimesReleased(ctx, tx, step); err != nil {
		return err
	}
	at, me := now(), HolderOf(step)
	if me.Kind == HolderSession {
		if _, err := tx.exec(ctx, "UPDATE finalizations SET resources_cleared_at = ?"+ofHolder+" AND resources_cleared_at IS NULL",
			append([]any{at}, me.key()...)...); err != nil {
			return err
		}
	}
	_, err := tx.exec(ctx, `UPDATE finalizations SET finished_at = ?, outcome = ?, next_attempt_at = NULL,
		failure_code = '', failure_message = ''`+ofHolder,
		append([]any{at, string(teardown.OutcomeFinalized)}, me.key()...)...)
	return err
}

// isSettled reports whether nothing is left of what the holder held; of a task,
// no session either that is to be finalized.
func isSettled(ctx context.Context, tx queries, step teardown.Step) (bool, error) {
	me := HolderOf(step)
	runtimes, err := runtimesLeft(ctx, tx, step.SessionID)
	if err != nil {
		return false, err
	}
	resources, err := resourcesLeft(ctx, tx, step.SessionID, step.Generation)
	if err != nil {
		return false, err
	}
	undecided, err := undecidedLeases(ctx, tx, me)
	if err != nil {
		return false, err
	}
	if open, err := unfinishedSessions(ctx, tx, step.TaskID); err != nil || open > 0 {
		return false, err
	}
	var kept int
	_, err = tx.one(ctx, &kept, `SELECT COUNT(*) FROM worktrees WHERE remover_kind = ? AND remover_id = ? AND remover_generation = ?
		AND state IN ('deleting', 'preserved')`, me.key()...)
	return len(runtimes) == 0 && len(resources) == 0 && undecided == 0 && kept == 0, err
}
