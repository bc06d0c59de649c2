package store

import (
	"context"
	"time"
)

// Session returns one session; CodeSessionNotFound if there is none.
func (s *Store) Session(ctx context.Context, id string) (session Session, err error) {
	err = s.read(ctx, func(q queries) error {
		session, err = sessionOf(ctx, q, id)
		return err
	})
	return session, err
}

func sessionOf(ctx context.Context, q queries, id string) (session Session, err error) {
	found, err := q.one(ctx, &session, "SELECT "+sessionColumns+" FROM sessions WHERE id = ?", id)
	if err == nil && !found {
		err = sessionNotFound(id)
	}
	return session, err
}

// Detail is a session with all that it holds or held, at every generation.
type Detail struct {
	Session       Session
	Runtimes      []Runtime
	Worktrees     []LeasedWorktree // by generation, then path, so parents come first
	Resources     []Resource
	Links         []Link
	Finalizations []Finalization // by generation
}

// LeasedWorktree is a worktree with one holder's lease on it.
type LeasedWorktree struct {
	Worktree Worktree
	Lease    Lease
}

// SessionDetail returns one session with everything; CodeSessionNotFound if
// there is none.
func (s *Store) SessionDetail(ctx context.Context, id string) (detail Detail, err error) {
	err = s.read(ctx, func(q queries) error {
		detail = Detail{}
		if detail.Session, err = sessionOf(ctx, q, id); err != nil {
			return err
		}
		if err := q.all(ctx, &detail.Runtimes, "SELECT "+runtimeColumns+" FROM runtimes WHERE session_id = ? ORDER BY generation, id", id); err != nil {
			return err
		}
		if err := q.all(ctx, &detail.Resources, "SELECT "+resourceColumns+" FROM resources WHERE session_id = ? ORDER BY generation, id", id); err != nil {
			return err
		}
		if err := q.all(ctx, &detail.Links, "SELECT "+linkColumns+" FROM session_links WHERE session_id = ? ORDER BY kind, repository, number", id); err != nil {
			return err
		}
		if err := q.all(ctx, &detail.Finalizations, "SELECT "+finalizationColumns+` FROM finalizations
			WHERE holder_kind = 'session' AND holder_id = ? ORDER BY generation`, id); err != nil {
			return err
		}
		var leases []Lease
		if err := q.all(ctx, &leases, "SELECT "+leaseColumns+` FROM leases
			WHERE holder_kind = 'session' AND holder_id = ? ORDER BY generation`, id); err != nil {
			return err
		}
		detail.Worktrees, err = withWorktrees(ctx, q, leases)
		return err
	})
	return detail, err
}

// Terminate records the intent to release a session. Changed is false if it was
// recorded before; its time and source then stay as they are.
func (s *Store) Terminate(ctx context.Context, id, source string) (session Session, changed bool, err error) {
	return s.terminate(ctx, id, source, func(Session) bool { return true })
}

// TerminateAt is Terminate for what was observed of one generation: a session
// that was restored since is left alone, and changed is false.
func (s *Store) TerminateAt(ctx context.Context, id string, generation int64, source string) (session Session, changed bool, err error) {
	return s.terminate(ctx, id, source, func(now Session) bool { return now.Generation == generation })
}

func (s *Store) terminate(ctx context.Context, id, source string, still func(Session) bool) (session Session, changed bool, err error) {
	err = s.write(ctx, func(tx queries) error {
		var found bool
		if session, found, err = lockSession(ctx, tx, id); err != nil {
			return err
		}
		if !found {
			return sessionNotFound(id)
		}
		if changed = session.TerminatedAt == nil && still(session); !changed {
			return nil
		}
		session, err = setTerminated(ctx, tx, session, source)
		return err
	})
	return session, changed, err
}

// setTerminated writes the fact for a live session whose row is locked.
func setTerminated(ctx context.Context, tx queries, session Session, source string) (Session, error) {
	if err := takeFromTask(ctx, tx, session, WorktreeCreating); err != nil {
		return session, err
	}
	at := now()
	session.TerminatedAt, session.UpdatedAt, session.TerminationSource = &at, at, readable(source, maxText)
	if _, err := tx.exec(ctx, "DELETE FROM turns WHERE session_id = ?", session.ID); err != nil {
		return session, err
	}
	_, err := tx.exec(ctx, "UPDATE sessions SET terminated_at = ?, termination_source = ?, updated_at = ? WHERE id = ?",
		at, session.TerminationSource, at, session.ID)
	return session, err
}

// Hold keeps the finalizer away from a session until the given time, or until
// further notice if until is nil. Without a time and without a name it lifts
// the hold. It stops no step that is under way.
func (s *Store) Hold(ctx context.Context, id string, until *time.Time, by string) (session Session, err error) {
	err = s.write(ctx, func(tx queries) error {
		var found bool
		if session, found, err = lockSession(ctx, tx, id); err != nil {
			return err
		}
		if !found {
			return sessionNotFound(id)
		}
		session.HeldUntil, session.HeldBy, session.UpdatedAt = nil, readable(by, maxText), now()
		if until != nil {
			at := stamp(*until)
			session.HeldUntil = &at
		}
		_, err = tx.exec(ctx, "UPDATE sessions SET held_until = ?, held_by = ?, updated_at = ? WHERE id = ?",
			session.HeldUntil, session.HeldBy, session.UpdatedAt, id)
		return err
	})
	return session, err
}
