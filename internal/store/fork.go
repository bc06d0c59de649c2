package store

import (
	"context"
	"slices"

	"unwind/teardown"
)

// Fork is a session that shares another one's worktrees.
type Fork struct {
	Parent, Child string
	// Seen lists the worktrees whose directories the caller has seen, under their
	// path locks.
	Seen []string
}

// hash tells a fork of the same parent from any other session.
func (f Fork) hash() string { return "fork of " + f.Parent }

// Held lists the worktrees that a session holds, by path; session_not_found if
// it is unknown, session_terminated if it is not live.
func (s *Store) Held(ctx context.Context, sessionID string) (session Session, worktrees []Worktree, err error) {
	err = s.read(ctx, func(q queries) error {
		if session, err = sessionOf(ctx, q, sessionID); err != nil {
			return err
		}
		if session.TerminatedAt != nil {
			return sessionTerminated(sessionID)
		}
		worktrees, err = heldBy(ctx, q, session.holder())
		return err
	})
	return session, worktrees, err
}

func heldBy(ctx context.Context, q queries, holder Holder) ([]Worktree, error) {
	var leases []Lease
	if err := q.all(ctx, &leases, "SELECT "+leaseColumns+" FROM leases"+ofHolder+" AND released_at IS NULL", holder.key()...); err != nil {
		return nil, err
	}
	leased, err := withWorktrees(ctx, q, leases)
	return worktreesOf(leased), err
}

// KnownFork answers the child, and the worktrees that it holds, if it is known as
// a fork of this parent; conflict if its id is another session's.
func (s *Store) KnownFork(ctx context.Context, f Fork) (child Session, worktrees []Worktree, known bool, err error) {
	err = s.read(ctx, func(q queries) error {
		if known, err = knownAlready(ctx, q, NewSession{ID: f.Child, ManifestHash: f.hash()}); err != nil || !known {
			return err
		}
		if child, err = sessionOf(ctx, q, f.Child); err != nil {
			return err
		}
		worktrees, err = heldBy(ctx, q, child.holder())
		return err
	})
	return child, worktrees, known && err == nil, err
}

// Fork registers a live child session on the parent's host and in its task, and
// leases every worktree that the parent holds, all or nothing. Added is false if
// the child is known as a fork of this parent.
//
// Codes: session_not_found and session_terminated (the parent), conflict (the
// child's id is taken), task_closed, busy (the parent holds a worktree that the
// caller has not seen), and what makes a worktree or one that contains it
// unusable: worktree_deleting, worktree_removed, worktree_missing.
func (s *Store) Fork(ctx context.Context, f Fork) (child Session, added bool, err error) {
	for _, id := range []string{f.Parent, f.Child} {
		if err := teardown.ValidateID(id); err != nil {
			return child, false, err
		}
	}
	err = s.write(ctx, func(tx queries) error {
		child, added, err = fork(ctx, tx, f)
		return err
	})
	return child, added && err == nil, err
}

func fork(ctx context.Context, tx queries, f Fork) (child Session, added bool, err error) {
	n := NewSession{ID: f.Child, ManifestHash: f.hash()}
	if known, err := knownAlready(ctx, tx, n); err != nil || known {
		if err == nil {
			child, err = sessionOf(ctx, tx, f.Child)
		}
		return child, false, err
	}
	parent, err := lockLiveSession(ctx, tx, f.Parent)
	if err != nil {
		return child, false, err
	}
	n.Host, n.TaskID = parent.Host, parent.TaskID
	if child, added, err = insertSession(ctx, tx, n); err != nil || !added {
		return child, false, err
	}
	shared, err := heldBy(ctx, tx, parent.holder())
	if err != nil {
		return child, false, err
	}
	locked, above, err := lockTree(ctx, tx, shared)
	if err != nil {
		return child, false, err
	}
	for _, w := range shared {
		if !slices.Contains(f.Seen, w.ID) {
			return child, false, &teardown.Error{Code: teardown.CodeBusy, Retryable: true,
				Message: "Session " + f.Parent + " holds " + w.Path + " since a moment ago; try again"}
		}
		if err := usable(locked[w.ID], above[w.ID], locked); err != nil {
			return child, false, err
		}
		if err := grant(ctx, tx, child.holder(), locked[w.ID]); err != nil {
			return child, false, err
		}
	}
	return child, true, nil
}

// lockLiveSession locks a live session, after its task, whose barrier refuses.
func lockLiveSession(ctx context.Context, tx queries, id string) (Session, error) {
	session, found, err := lockTaskAndSession(ctx, tx, id)
	switch {
	case err != nil:
		return session, err
	case !found:
		return session, sessionNotFound(id)
	case session.TerminatedAt != nil:
		return session, sessionTerminated(id)
	case session.TaskID != "":
		return session, lockOpenTask(ctx, tx, session.TaskID)
	}
	return session, nil
}
