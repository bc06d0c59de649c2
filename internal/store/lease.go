package store

import (
	"context"

	"unwind/teardown"
)

// Lease gives a live holder a claim on a registered worktree; again is a no-op.
// A preserved worktree becomes active with it. The caller holds the path lock
// and has seen the directory. Codes: worktree_deleting, worktree_removed (also
// an unknown id), worktree_missing (it was moved aside); these of an ancestor,
// too; task_closed, session_not_found, and conflict if the holder is terminated
// or at another generation.
func (s *Store) Lease(ctx context.Context, holder Holder, worktreeID string) error {
	return s.write(ctx, func(tx queries) error {
		if err := lockLiveHolder(ctx, tx, holder); err != nil {
			return err
		}
		w, err := lockUsable(ctx, tx, worktreeID)
		if err != nil {
			return err
		}
		return grant(ctx, tx, holder, w)
	})
}

// grant writes a lease on a worktree that is locked and usable. A preserved one
// is in use again with it.
func grant(ctx context.Context, tx queries, holder Holder, w Worktree) error {
	at := now()
	if _, err := tx.exec(ctx, `INSERT INTO leases (worktree_id, holder_kind, holder_id, generation, acquired_at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (worktree_id, holder_kind, holder_id, generation)
		DO UPDATE SET released_at = NULL, disposition = 'pending', code = '', details = '[]', bytes = 0, saved_ref = ''`,
		w.ID, holder.Kind, holder.ID, holder.Generation, at); err != nil {
		return err
	}
	_, err := tx.exec(ctx, `UPDATE worktrees SET state = 'active', remover_kind = '', remover_id = '', remover_generation = 0, kept_code = '', updated_at = ?
		WHERE id = ? AND state = 'preserved'`, at, w.ID)
	return err
}

// lockLiveHolder locks the task before the session, as everybody does.
func lockLiveHolder(ctx context.Context, tx queries, holder Holder) error {
	if holder.Kind == HolderTask {
		t, found, err := lockTask(ctx, tx, holder.ID)
		if err != nil {
			return err
		}
		if !found || t.Closed() {
			return taskClosed(holder.ID)
		}
		if t.Generation != holder.Generation {
			return conflict("Task %s is at generation %d, not %d; read it again", t.ID, t.Generation, holder.Generation)
		}
		return nil
	}
	var taskID string
	if _, err := tx.one(ctx, &taskID, "SELECT COALESCE(task_id, '') FROM sessions WHERE id = ?", holder.ID); err != nil {
		return err
	}
	if taskID != "" {
		if err := lockOpenTask(ctx, tx, taskID); err != nil {
			return err
		}
	}
	session, found, err := lockSession(ctx, tx, holder.ID)
	if err != nil {
		return err
	}
	if !found {
		return sessionNotFound(holder.ID)
	}
	if session.TerminatedAt != nil || session.Generation != holder.Generation {
		return conflict("Session %s is terminated or at another generation than %d; only a live session can hold a worktree",
			session.ID, holder.Generation)
	}
	return nil
}

// lockUsable locks the worktree and its ancestors, and refuses one that is not
// there to be used.
func lockUsable(ctx context.Context, tx queries, id string) (Worktree, error) {
	w, above, err := registeredWith(ctx, tx, id)
	if err != nil {
		return w, err
	}
	locked, err := lockWorktrees(ctx, tx, append(above, id)...)
	if err != nil {
		return w, err
	}
	return locked[id], usable(locked[id], above, locked)
}

// registeredWith reads a worktree and the ids of those that contain it.
func registeredWith(ctx context.Context, q queries, id string) (w Worktree, above []string, err error) {
	found, err := q.one(ctx, &w, "SELECT "+worktreeColumns+" FROM worktrees WHERE id = ?", id)
	if err != nil {
		return w, nil, err
	}
	if !found {
		return w, nil, unusable(teardown.CodeWorktreeRemoved, "There is no worktree with id %s", id)
	}
	above, err = ancestors(ctx, q, w.Host, w.Path, w.ParentID)
	return w, above, err
}

// usable refuses a worktree that is not there to be used, given the locked rows
// of it and of those that contain it.
func usable(w Worktree, above []string, locked map[string]Worktree) error {
	switch {
	case w.State == WorktreeRemoved:
		return unusable(teardown.CodeWorktreeRemoved, "The worktree %s was removed; make one anew with `git worktree add` and register that", w.Path)
	case w.State == WorktreeDeleting:
		return unusable(teardown.CodeWorktreeDeleting, "The worktree %s is being removed; use another one, or make it anew when it is gone", w.Path)
	case w.State == WorktreeCreating:
		return unusable(teardown.CodeWorktreeMissing, "The worktree %s is not made yet; try again when it is", w.Path)
	case w.QuarantinePath != "":
		return unusable(teardown.CodeWorktreeMissing, "The worktree %s was moved aside to %s by a removal that was not carried to its end; retry that first", w.Path, w.QuarantinePath)
	}
	for _, ancestor := range above {
		if err := usableAncestor(locked[ancestor], w.Path); err != nil {
			return err
		}
	}
	return nil
}
