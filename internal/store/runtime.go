package store

import (
	"context"

	"unwind/teardown"
)

// Runtime returns one runtime.
func (s *Store) Runtime(ctx context.Context, id string) (r Runtime, err error) {
	err = s.read(ctx, func(q queries) error {
		r, err = runtimeOf(ctx, q, id)
		return err
	})
	return r, err
}

func runtimeOf(ctx context.Context, q queries, id string) (r Runtime, err error) {
	found, err := q.one(ctx, &r, "SELECT "+runtimeColumns+" FROM runtimes WHERE id = ?", id)
	if err == nil && !found {
		err = internal("There is no runtime with id %s", id)
	}
	return r, err
}

// keptSnapshot sets a snapshot's path, but never replaces one by none: an attempt
// that finds the runtime gone takes no picture of it, and the one that was taken
// before it ended is still there.
const keptSnapshot = "snapshot_path = COALESCE(NULLIF(?, ''), snapshot_path)"

// RuntimeToEnd records what could not be found out any more once a runtime is
// ended, right before that: more of what it is, and where its picture is ("" if
// there is none). The caller holds the session's lock. Written as for
// RuntimeReleased; the caller ends nothing if it is false.
func (s *Store) RuntimeToEnd(ctx context.Context, step teardown.Step, runtimeID string, known teardown.Runtime, snapshot string) (written bool, err error) {
	return s.writeRuntime(ctx, step, runtimeID, func(tx queries) error {
		_, err := tx.exec(ctx, "UPDATE runtimes SET handle = ?, "+keptSnapshot+" WHERE id = ?",
			JSONOf(known), readable(snapshot, maxText), runtimeID)
		return err
	})
}

// RuntimeReleased records that a runtime is confirmed gone, and how that is
// known, in words. The caller holds the session's lock. Again is a no-op.
// Written is false if a newer round or generation has taken over; then nothing
// is.
func (s *Store) RuntimeReleased(ctx context.Context, step teardown.Step, runtimeID, how, snapshot string, r teardown.RuntimeResult) (written bool, err error) {
	if !r.Outcome.Released() {
		return false, internal("A released runtime cannot have the outcome %q", r.Outcome)
	}
	return s.writeRuntime(ctx, step, runtimeID, func(tx queries) error {
		if _, err := tx.exec(ctx, `UPDATE runtimes SET state = 'released', released_at = ?, released_how = ?, `+keptSnapshot+`,
			outcome = ?, code = ?, details = ?, message = '' WHERE id = ?`,
			now(), readable(how, maxText), readable(snapshot, maxText),
			string(r.Outcome), string(r.Code), JSONOf(bounded(r.Details)), runtimeID); err != nil {
			return err
		}
		return markRuntimesReleased(ctx, tx, step)
	})
}

// RuntimeRefused records why a runtime was not touched. Message is for a
// person. Written as for RuntimeReleased.
func (s *Store) RuntimeRefused(ctx context.Context, step teardown.Step, runtimeID string, r teardown.RuntimeResult, message string) (written bool, err error) {
	return s.writeRuntime(ctx, step, runtimeID, func(tx queries) error {
		_, err := tx.exec(ctx, "UPDATE runtimes SET outcome = ?, code = ?, details = ?, message = ?, "+keptSnapshot+" WHERE id = ?",
			string(teardown.RuntimeRefused), string(r.Code), JSONOf(bounded(r.Details)), readable(message, maxText),
			readable(r.Snapshot, maxText), runtimeID)
		return err
	})
}

// writeRuntime runs do unless the step is superseded or the runtime released.
func (s *Store) writeRuntime(ctx context.Context, step teardown.Step, id string, do func(queries) error) (written bool, err error) {
	err = s.write(ctx, func(tx queries) error {
		written = false
		at, err := stand(ctx, tx, step)
		if err != nil || !at.current {
			return err
		}
		r, err := runtimeOf(ctx, tx, id)
		if err != nil {
			return err
		}
		if r.SessionID != step.SessionID {
			return internal("Runtime %s belongs to session %s, not to %s", id, r.SessionID, step.SessionID)
		}
		written = true
		if r.ReleasedAt != nil {
			return nil
		}
		return do(tx)
	})
	return written && err == nil, err
}

// runtimesLeft lists what is not confirmed gone, whatever its generation:
// auxiliary ones first, for the agent may depend on them less than they on it.
func runtimesLeft(ctx context.Context, q queries, sessionID string) ([]Runtime, error) {
	var left []Runtime
	err := q.all(ctx, &left, "SELECT "+runtimeColumns+` FROM runtimes WHERE session_id = ? AND released_at IS NULL
		ORDER BY CASE role WHEN 'agent' THEN 1 ELSE 0 END, generation, id`, sessionID)
	return left, err
}

func requireRuntimesReleased(ctx context.Context, tx queries, step teardown.Step) error {
	left, err := runtimesLeft(ctx, tx, step.SessionID)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return internal("Session %s still has %d runtimes that are not released; no worktree may be touched", step.SessionID, len(left))
	}
	return nil
}

// markRuntimesReleased dates the fact once nothing is left.
func markRuntimesReleased(ctx context.Context, tx queries, step teardown.Step) error {
	if step.SessionID == "" { // a task has none
		return nil
	}
	left, err := runtimesLeft(ctx, tx, step.SessionID)
	if err != nil || len(left) > 0 {
		return err
	}
	_, err = tx.exec(ctx, "UPDATE finalizations SET runtime_released_at = ?"+ofHolder+" AND runtime_released_at IS NULL",
		append([]any{now()}, HolderOf(step).key()...)...)
	return err
}
