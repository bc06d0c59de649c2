package store

import (
	"context"

	"unwind/teardown"
)

// ResourcesLeft lists what is not cleared yet of the step's generation, in the
// order in which it was registered. A restore has written anew what it took over.
func (s *Store) ResourcesLeft(ctx context.Context, step teardown.Step, secretsOnly bool) ([]Resource, error) {
	var left []Resource
	err := s.read(ctx, func(q queries) (err error) {
		left, err = resourcesLeft(ctx, q, step.SessionID, step.Generation)
		return err
	})
	if !secretsOnly {
		return left, err
	}
	return secrets(left), err
}

func secrets(resources []Resource) []Resource {
	var out []Resource
	for _, r := range resources {
		if r.Kind == teardown.ResourceSecret {
			out = append(out, r)
		}
	}
	return out
}

func resourcesLeft(ctx context.Context, q queries, sessionID string, generation int64) ([]Resource, error) {
	var left []Resource
	err := q.all(ctx, &left, "SELECT "+resourceColumns+` FROM resources
		WHERE session_id = ? AND generation = ? AND cleared_at IS NULL ORDER BY id`, sessionID, generation)
	return left, err
}

// ResourceCleared records that a resource is gone. The caller holds the
// session's lock. Again is a no-op. Written is false if a newer round or
// generation has taken over; then nothing is.
func (s *Store) ResourceCleared(ctx context.Context, step teardown.Step, id string) (written bool, err error) {
	err = s.write(ctx, func(tx queries) error {
		written = false
		at, err := stand(ctx, tx, step)
		if err != nil || !at.current {
			return err
		}
		if _, err := tx.exec(ctx, "UPDATE resources SET cleared_at = ? WHERE id = ? AND session_id = ? AND cleared_at IS NULL",
			now(), id, step.SessionID); err != nil {
			return err
		}
		written = true
		left, err := resourcesLeft(ctx, tx, step.SessionID, step.Generation)
		if err != nil || len(left) > 0 {
			return err
		}
		_, err = tx.exec(ctx, "UPDATE finalizations SET resources_cleared_at = ?"+ofHolder+" AND resources_cleared_at IS NULL",
			append([]any{now()}, HolderOf(step).key()...)...)
		return err
	})
	return written && err == nil, err
}

// MayClear reports whether the agent's resources may go: the step is current,
// and of every worktree that its leases name it is decided that it is gone or
// somebody else's. What a restore would need stays with what it would restore.
func (s *Store) MayClear(ctx context.Context, step teardown.Step) (may bool, err error) {
	err = s.read(ctx, func(q queries) error {
		session, err := sessionOf(ctx, q, step.SessionID)
		if err != nil {
			return err
		}
		finalization, begun, err := finalizationOf(ctx, q, HolderOf(step))
		if err != nil {
			return err
		}
		undecided, err := undecidedLeases(ctx, q, HolderOf(step))
		may = standingOf(rowOfSession(session), finalization, begun, step).current && undecided == 0
		return err
	})
	return may && err == nil, err
}

// undecidedLeases counts the leases that are held, or whose disposition is not
// final.
func undecidedLeases(ctx context.Context, q queries, holder Holder) (int, error) {
	var leases []Lease
	if err := q.all(ctx, &leases, "SELECT "+leaseColumns+" FROM leases"+ofHolder, holder.key()...); err != nil {
		return 0, err
	}
	undecided := 0
	for _, lease := range leases {
		if lease.ReleasedAt == nil || !lease.Disposition.Final() {
			undecided++
		}
	}
	return undecided, nil
}
