package store

import (
	"cmp"
	"context"
	"slices"

	"unwind/teardown"
)

// ReopenTask makes an archived task active again at its next generation. Of what
// it held at the last one, it leases what was kept; for what was removed from a
// branch it registers a worktree to be made, in state creating; what had no branch
// is gone. The plan's recreations are all that the task holds then, kept ones, too:
// whether their directories are there is their hosts' to tell.
//
// All or nothing. Codes: task_not_found; conflict if it is deleted, or something
// else is at a path; busy (retryable) while archiving is under way;
// worktree_deleting, worktree_missing if an attempt to remove a worktree was not
// carried to its end: retry the task first.
func (s *Store) ReopenTask(ctx context.Context, id string) (plan teardown.UnarchivePlan, err error) {
	err = s.write(ctx, func(tx queries) error {
		plan = teardown.UnarchivePlan{}
		t, found, err := lockTask(ctx, tx, id)
		if err != nil {
			return err
		}
		if !found {
			if t, err = deletedTask(ctx, tx, id); err != nil {
				return err
			}
		}
		switch {
		case t.State == TaskDeleted:
			return conflict("Task %s is deleted; open another one", id)
		case t.Closed():
			if t, err = reopenTask(ctx, tx, t, &plan); err != nil {
				return err
			}
		}
		plan.Generation = t.Generation
		return addRecreations(ctx, tx, t, &plan)
	})
	return plan, err
}

func reopenTask(ctx context.Context, tx queries, t Task, plan *teardown.UnarchivePlan) (Task, error) {
	old := t.Holder()
	f, opened, err := finalizationOf(ctx, tx, old)
	if err != nil {
		return t, err
	}
	if opened && f.FinishedAt == nil && f.ParkedAt == nil {
		return t, &teardown.Error{Code: teardown.CodeBusy, Retryable: true,
			Message: "Task " + t.ID + " is still being archived; try again when that is done"}
	}
	last, err := lastHeld(ctx, tx, old)
	if err != nil {
		return t, err
	}
	t.Generation, t.State, t.TerminatedAt, t.UpdatedAt = t.Generation+1, TaskActive, nil, now()
	if _, err := tx.exec(ctx, "UPDATE tasks SET generation = ?, state = ?, terminated_at = NULL, updated_at = ? WHERE id = ?",
		t.Generation, t.State, t.UpdatedAt, t.ID); err != nil {
		return t, err
	}
	locked, above, err := lockToReopen(ctx, tx, last)
	if err != nil {
		return t, err
	}
	// It holds them still if its finalization has never begun.
	if _, err := tx.exec(ctx, "UPDATE leases SET released_at = ?"+ofHolder+" AND released_at IS NULL", append([]any{now()}, old.key()...)...); err != nil {
		return t, err
	}
	for _, w := range last {
		if err := holdAgain(ctx, tx, t.Holder(), locked[w.ID], above[w.ID], locked, plan); err != nil {
			return t, err
		}
	}
	return t, closeAsRestored(ctx, tx, old, "")
}

// lastHeld lists the worktrees that a task has held until it was closed, the
// newest at each path, parents first. A lease that no round has decided on was
// given up before, by a start that was taken back; for one that was released as it
// was made, see heldAt.
func lastHeld(ctx context.Context, q queries, holder Holder) ([]Worktree, error) {
	var leases []Lease
	if err := q.all(ctx, &leases, "SELECT "+leaseColumns+" FROM leases"+ofHolder, holder.key()...); err != nil {
		return nil, err
	}
	leases = slices.DeleteFunc(leases, func(l Lease) bool {
		return l.ReleasedAt != nil && (l.Round == 0 || l.ReleasedAt.Equal(l.AcquiredAt))
	})
	leased, err := withWorktrees(ctx, q, leases)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(leased, func(a, b LeasedWorktree) int { return b.Lease.AcquiredAt.Compare(a.Lease.AcquiredAt) })
	type place struct{ host, path string }
	seen := map[place]bool{}
	var last []Worktree
	for _, l := range leased {
		at := place{l.Worktree.Host, l.Worktree.Path}
		if !seen[at] {
			seen[at] = true
			last = append(last, l.Worktree)
		}
	}
	slices.SortFunc(last, func(a, b Worktree) int { return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Path, b.Path)) })
	return last, nil
}

// lockToReopen keeps others from adding worktrees on the hosts, and locks these
// with all that contain them.
func lockToReopen(ctx context.Context, tx queries, last []Worktree) (locked map[string]Worktree, above map[string][]string, err error) {
	for i, w := range last {
		if i == 0 || last[i-1].Host != w.Host {
			if err := lockTrees(ctx, tx, w.Host); err != nil {
				return nil, nil, err
			}
		}
	}
	above = map[string][]string{}
	var toLock []string
	for _, w := range last {
		if above[w.ID], err = ancestors(ctx, tx, w.Host, w.Path, ""); err != nil {
			return nil, nil, err
		}
		toLock = append(append(toLock, above[w.ID]...), w.ID)
	}
	locked, err = lockWorktrees(ctx, tx, toLock...)
	return locked, above, err
}

func holdAgain(ctx context.Context, tx queries, task Holder, w Worktree, above []string, locked map[string]Worktree, plan *teardown.UnarchivePlan) error {
	if w.State != WorktreeRemoved {
		if err := usable(w, above, locked); err != nil {
			return err
		}
		return grant(ctx, tx, task, w)
	}
	if w.Branch == "" {
		plan.Others = append(plan.Others, teardown.UnarchivedWorktree{Path: w.Path, Branch: w.Branch, Host: w.Host,
			Failure: teardown.Failure{Code: teardown.CodeWorktreeRemoved, Message: "It was on no branch, so it cannot be made again"}})
		return nil
	}
	for _, id := range above {
		if err := usableAncestor(locked[id], w.Path); err != nil {
			return err
		}
	}
	// Those around it may have been registered just now.
	around, err := ancestors(ctx, tx, w.Host, w.Path, "")
	if err != nil {
		return err
	}
	again := NewWorktree{ID: NewID(), Repository: w.Repository, Path: w.Path, Branch: w.Branch, Nonce: NewID()}
	if len(around) > 0 {
		again.ParentID = around[0]
	}
	if err := registerWorktree(ctx, tx, w.Host, again, WorktreeCreating); err != nil {
		return err
	}
	return grant(ctx, tx, task, Worktree{ID: again.ID})
}

// unmade selects the worktrees that unarchived tasks hold and that are still to
// be made. What a session holds is its start's to make.
const unmade = ` FROM worktrees w
	JOIN leases l ON l.worktree_id = w.id AND l.holder_kind = 'task' AND l.released_at IS NULL
	JOIN tasks t ON t.id = l.holder_id AND t.generation = l.generation AND t.terminated_at IS NULL
	WHERE w.state = 'creating' AND NOT EXISTS (SELECT 1 FROM leases s
		WHERE s.worktree_id = w.id AND s.holder_kind = 'session' AND s.released_at IS NULL)`

// UnmadeTasks lists, by id and after the given one, up to limit open tasks of
// whose worktrees some are still to be made. Whether a workflow makes them is not
// the database's to know.
func (s *Store) UnmadeTasks(ctx context.Context, after string, limit int) (tasks Page[Due], err error) {
	err = s.read(ctx, func(q queries) error {
		tasks, err = pageOf[Due](ctx, q, s.at, limit, "SELECT DISTINCT t.id AS task_id, t.generation"+unmade+" AND t.id > ? ORDER BY t.id LIMIT ?", after, limit)
		return err
	})
	return tasks, err
}

// addRecreations lists what the task holds, parents first: what is still to be
// made, and what should be there and is to be looked at.
func addRecreations(ctx context.Context, tx queries, t Task, plan *teardown.UnarchivePlan) error {
	var held []Worktree
	if err := tx.all(ctx, &held, "SELECT "+worktreeColumns+` FROM worktrees WHERE
		id IN (SELECT worktree_id FROM leases`+ofHolder+` AND released_at IS NULL)
		AND (state = 'active' OR id IN (SELECT w.id`+unmade+")) ORDER BY host, path", t.Holder().key()...); err != nil {
		return err
	}
	for _, w := range held {
		plan.Recreations = append(plan.Recreations, teardown.Recreation{WorktreeID: w.ID,
			Worktree: teardown.UnarchivedWorktree{Path: w.Path, Branch: w.Branch, Host: w.Host}})
	}
	return nil
}

// WorktreeMade records that a worktree that was to be made is there. The caller
// holds its path lock. One that was given up meanwhile only learns its nonce, by
// which its removal knows it. Again is a no-op.
func (s *Store) WorktreeMade(ctx context.Context, id, nonce string) (active bool, err error) {
	err = s.write(ctx, func(tx queries) error {
		active = false
		locked, err := lockWorktrees(ctx, tx, id)
		if err != nil {
			return err
		}
		switch locked[id].State {
		case WorktreeCreating, WorktreeDeleting:
			_, err = tx.exec(ctx, `UPDATE worktrees SET nonce = ?, state = CASE state WHEN 'creating' THEN 'active' ELSE state END, updated_at = ?
				WHERE id = ?`, readable(nonce, maxText), now(), id)
			active = locked[id].State == WorktreeCreating
		case WorktreeActive:
			active = true
		}
		return err
	})
	return active && err == nil, err
}
