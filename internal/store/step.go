package store

import (
	"context"

	"unwind/teardown"
)

// standing is what a step finds when it looks whether it may still write. The
// holder's row is locked, and with it the finalization.
type standing struct {
	holder       holderRow
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

// holderRow is what a step asks of its holder's row.
type holderRow struct {
	known      bool
	generation int64
	terminated bool
	held       bool // somebody keeps the finalizer away
}

func standingOf(row holderRow, f Finalization, begun bool, step teardown.Step) standing {
	open := begun && row.terminated && row.generation == step.Generation && f.FinishedAt == nil
	current := open && f.Round == step.Round
	return standing{holder: row, finalization: f, open: open, current: current, mayGoOn: current && !row.held}
}

func stand(ctx context.Context, tx queries, step teardown.Step) (standing, error) {
	me := HolderOf(step)
	row, err := lockHolder(ctx, tx, me)
	if err != nil || !row.known {
		return standing{}, err
	}
	finalization, begun, err := finalizationOf(ctx, tx, me)
	return standingOf(row, finalization, begun, step), err
}

// lockHolder locks the holder's row. A task whose row is gone is as good as
// deleted: what it still holds is released all the same.
func lockHolder(ctx context.Context, tx queries, me Holder) (holderRow, error) {
	if me.Kind == HolderSession {
		session, found, err := lockSession(ctx, tx, me.ID)
		if err != nil || !found {
			return holderRow{}, err
		}
		return rowOfSession(session), nil
	}
	t, found, err := lockTask(ctx, tx, me.ID)
	if err != nil {
		return holderRow{}, err
	}
	if found {
		return holderRow{known: true, generation: t.Generation, terminated: t.Closed()}, nil
	}
	// The finalization's row is what is left to lock.
	left, err := tx.exec(ctx, "UPDATE finalizations SET round = round"+ofHolder, me.key()...)
	return holderRow{known: left > 0, generation: me.Generation, terminated: true}, err
}

func rowOfSession(s Session) holderRow {
	return holderRow{known: true, generation: s.Generation, terminated: s.TerminatedAt != nil, held: s.Held(now())}
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
		finalization, begun, err := finalizationOf(ctx, q, HolderOf(step))
		current = standingOf(rowOfSession(session), finalization, begun, step).mayGoOn
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
