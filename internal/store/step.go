package store

import (
	"context"

	"unwind/teardown"
)

// standing is what a step finds when it looks whether it may still write. The
// session's row is locked, and with it the finalization.
type standing struct {
	session      Session
	finalization Finalization
	// open: terminated at the step's generation, begun and not finished.
	open bool
	// current: open, and the step's round is the newest. Otherwise the step is
	// superseded and touches nothing.
	current bool
	// mayGoOn: current, and nobody keeps the finalizer away. What a step has done
	// by then is still written down.
	mayGoOn bool
}

func standingOf(session Session, f Finalization, begun bool, step teardown.Step) standing {
	open := begun && session.TerminatedAtGeneration(step.Generation) && f.FinishedAt == nil
	current := open && f.Round == step.Round
	return standing{session: session, finalization: f, open: open, current: current, mayGoOn: current && !session.Held(now())}
}

func stand(ctx context.Context, tx queries, step teardown.Step) (standing, error) {
	session, found, err := lockSession(ctx, tx, step.SessionID)
	if err != nil || !found {
		return standing{}, err
	}
	finalization, begun, err := finalizationOf(ctx, tx, SessionHolder(step))
	return standingOf(session, finalization, begun, step), err
}

// Current reports whether the session is still terminated at the step's
// generation and not held, the round its newest, and the finalization not
// finished: what a step reads again under the session's file lock before it
// touches anything.
func (s *Store) Current(ctx context.Context, step teardown.Step) (bool, error) {
	var current bool
	err := s.read(ctx, func(q queries) error {
		var session Session
		if found, err := q.one(ctx, &session, "SELECT "+sessionColumns+" FROM sessions WHERE id = ?", step.SessionID); err != nil || !found {
			return err
		}
		finalization, begun, err := finalizationOf(ctx, q, SessionHolder(step))
		current = standingOf(session, finalization, begun, step).mayGoOn
		return err
	})
	return current, err
}

const ofHolder = " WHERE holder_kind = ? AND holder_id = ? AND generation = ?"

// key binds ofHolder.
func (h Holder) key() []any { return []any{h.Kind, h.ID, h.Generation} }

func finalizationOf(ctx context.Context, q queries, holder Holder) (f Finalization, found bool, err error) {
	found, err = q.one(ctx, &f, "SELECT "+finalizationColumns+" FROM finalizations"+ofHolder, holder.key()...)
	return f, found, err
}
