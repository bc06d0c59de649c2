package store

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"unwind/teardown"
)

// Restoration is what was found on the host, under the session's lock and the
// path locks of all its worktrees. Ids that are not listed are gone.
type Restoration struct {
	SessionID  string
	Generation int64    // the one that was terminated
	Alive      []string // runtimes that live and are adopted
	// Found is the identity of those among them whose start was not recorded as
	// done, by their id.
	Found  map[string]teardown.Runtime
	Intact []string // worktrees whose directory is at its path, with nothing in quarantine
	By     string   // who asked
}

// Restored is what a restore gave back, at the new generation, and what it found
// gone.
type Restored struct {
	Session       Session
	Runtimes      []Runtime // of the generation that was restored
	RuntimesGone  []Runtime
	Worktrees     []Worktree
	WorktreesGone []Worktree
	Resources     []Resource
	ResourcesGone []Resource
}

// Restorable lists what a restore of the session has to look at: the runtimes
// that are not confirmed gone, and the worktrees that it held at its generation.
func (s *Store) Restorable(ctx context.Context, sessionID string, generation int64) (runtimes []Runtime, worktrees []Worktree, err error) {
	err = s.read(ctx, func(q queries) error {
		if runtimes, err = runtimesLeft(ctx, q, sessionID); err != nil {
			return err
		}
		leased, err := heldAt(ctx, q, Holder{Kind: HolderSession, ID: sessionID, Generation: generation})
		worktrees = worktreesOf(leased)
		return err
	})
	return runtimes, worktrees, err
}

// Restore makes a terminated session live at the next generation, which holds
// what is still there: in one transaction, whatever its finalization has come
// to. The old generation's facts stay as they are, with the outcome restored.
// A hold ends with it. Again is a no-op with the same answer. The caller holds
// the session's lock and the path locks.
//
// Codes: session_not_found, session_live, conflict (it is at another generation
// than asked for), task_closed, and worktree_deleting or worktree_missing if a
// worktree that contains one of these is not there to be used.
func (s *Store) Restore(ctx context.Context, r Restoration) (restored Restored, err error) {
	err = s.write(ctx, func(tx queries) error {
		session, found, err := lockTaskAndSession(ctx, tx, r.SessionID)
		if err != nil {
			return err
		}
		if !found {
			return sessionNotFound(r.SessionID)
		}
		if session.TerminatedAt != nil || session.Generation != r.Generation+1 {
			if session, err = restore(ctx, tx, r, session); err != nil {
				return err
			}
		}
		restored, err = restoredOf(ctx, tx, session)
		return err
	})
	return restored, err
}

func restore(ctx context.Context, tx queries, r Restoration, session Session) (Session, error) {
	switch {
	case session.TerminatedAt == nil:
		return session, &teardown.Error{Code: teardown.CodeSessionLive, Message: fmt.Sprintf(
			"Session %s is live, at generation %d; there is nothing to restore", session.ID, session.Generation)}
	case session.Generation != r.Generation:
		return session, conflict("Session %s was restored and terminated again meanwhile and is at generation %d, not %d; look at it again",
			session.ID, session.Generation, r.Generation)
	}
	if session.TaskID != "" {
		if err := lockOpenTask(ctx, tx, session.TaskID); err != nil {
			return session, err
		}
	}
	session.Generation++
	session.TerminatedAt, session.TerminationSource, session.HeldUntil, session.HeldBy, session.UpdatedAt = nil, "", nil, "", now()
	if _, err := tx.exec(ctx, `UPDATE sessions SET generation = ?, terminated_at = NULL, termination_source = '', held_until = NULL, held_by = '',
		updated_at = ? WHERE id = ?`, session.Generation, session.UpdatedAt, session.ID); err != nil {
		return session, err
	}
	for _, step := range []func(context.Context, queries, Restoration) error{takeBackWorktrees, adoptRuntimes, takeBackResources} {
		if err := step(ctx, tx, r); err != nil {
			return session, err
		}
	}
	if err := takeFromTask(ctx, tx, session, WorktreeCreating); err != nil {
		return session, err
	}
	return session, closeAsRestored(ctx, tx, r.old(), r.By)
}

// lockTaskAndSession locks the task's row before the session's, as everybody
// does.
func lockTaskAndSession(ctx context.Context, tx queries, sessionID string) (session Session, found bool, err error) {
	var taskID string
	if _, err := tx.one(ctx, &taskID, "SELECT COALESCE(task_id, '') FROM sessions WHERE id = ?", sessionID); err != nil {
		return session, false, err
	}
	if taskID != "" {
		if _, _, err := lockTask(ctx, tx, taskID); err != nil {
			return session, false, err
		}
	}
	return lockSession(ctx, tx, sessionID)
}

func (r Restoration) old() Holder {
	return Holder{Kind: HolderSession, ID: r.SessionID, Generation: r.Generation}
}

func (r Restoration) next() Holder {
	return Holder{Kind: HolderSession, ID: r.SessionID, Generation: r.Generation + 1}
}

// adoptedHow is how a runtime that lives on is written in its old generation.
const adoptedHow = "adopted by a restore"

// restoredOf reads what the newest generation has from the one before.
func restoredOf(ctx context.Context, q queries, session Session) (Restored, error) {
	restored := Restored{Session: session}
	var runtimes []Runtime
	if err := q.all(ctx, &runtimes, "SELECT "+runtimeColumns+" FROM runtimes WHERE session_id = ? AND generation = ? ORDER BY id",
		session.ID, session.Generation-1); err != nil {
		return restored, err
	}
	for _, r := range runtimes {
		if r.ReleasedHow == adoptedHow {
			restored.Runtimes = append(restored.Runtimes, r)
		} else {
			restored.RuntimesGone = append(restored.RuntimesGone, r)
		}
	}
	before, err := heldAt(ctx, q, Holder{Kind: HolderSession, ID: session.ID, Generation: session.Generation - 1})
	if err != nil {
		return restored, err
	}
	for _, l := range before {
		_, again, err := leaseOf(ctx, q, l.Worktree.ID, Holder{Kind: HolderSession, ID: session.ID, Generation: session.Generation})
		if err != nil {
			return restored, err
		}
		if again {
			restored.Worktrees = append(restored.Worktrees, l.Worktree)
		} else {
			restored.WorktreesGone = append(restored.WorktreesGone, l.Worktree)
		}
	}
	var resources []Resource
	if err := q.all(ctx, &resources, "SELECT "+resourceColumns+" FROM resources WHERE session_id = ? AND generation = ? ORDER BY id",
		session.ID, session.Generation-1); err != nil {
		return restored, err
	}
	for _, r := range resources {
		if r.ClearedAt == nil {
			restored.Resources = append(restored.Resources, r)
		} else {
			restored.ResourcesGone = append(restored.ResourcesGone, r)
		}
	}
	return restored, nil
}

// heldAt lists the leases that the holder has or had. An ancestor that it was
// only to remove is listed by a lease that was released as it was made.
func heldAt(ctx context.Context, q queries, holder Holder) ([]LeasedWorktree, error) {
	var leases []Lease
	if err := q.all(ctx, &leases, "SELECT "+leaseColumns+" FROM leases"+ofHolder, holder.key()...); err != nil {
		return nil, err
	}
	leases = slices.DeleteFunc(leases, func(l Lease) bool { return l.ReleasedAt != nil && l.ReleasedAt.Equal(l.AcquiredAt) })
	return withWorktrees(ctx, q, leases)
}

func takeBackWorktrees(ctx context.Context, tx queries, r Restoration) error {
	leased, err := heldAt(ctx, tx, r.old())
	if err != nil {
		return err
	}
	locked, above, err := lockTree(ctx, tx, worktreesOf(leased))
	if err != nil {
		return err
	}
	var back []Worktree
	for _, l := range leased {
		w := locked[l.Worktree.ID]
		if w.State != WorktreeRemoved && w.CondemnedAt == nil && slices.Contains(r.Intact, w.ID) {
			back = append(back, w)
		}
	}
	for _, w := range back {
		for _, id := range above[w.ID] {
			if slices.Contains(ids(back), id) {
				continue
			}
			if err := usableAncestor(locked[id], w.Path); err != nil {
				return err
			}
		}
		if err := takeBack(ctx, tx, w, r.next()); err != nil {
			return err
		}
	}
	_, err = tx.exec(ctx, "UPDATE leases SET released_at = ?"+ofHolder+" AND released_at IS NULL", append([]any{now()}, r.old().key()...)...)
	return err
}

func worktreesOf(leased []LeasedWorktree) []Worktree {
	worktrees := make([]Worktree, len(leased))
	for i, l := range leased {
		worktrees[i] = l.Worktree
	}
	return worktrees
}

// lockTree locks the worktrees and all that contain them, in the order of the
// ids, and answers which worktree has which above it.
func lockTree(ctx context.Context, tx queries, worktrees []Worktree) (locked map[string]Worktree, above map[string][]string, err error) {
	above = make(map[string][]string, len(worktrees))
	var all []string
	for _, w := range worktrees {
		if above[w.ID], err = ancestors(ctx, tx, w.Host, w.Path, w.ParentID); err != nil {
			return nil, nil, err
		}
		all = append(append(all, w.ID), above[w.ID]...)
	}
	locked, err = lockWorktrees(ctx, tx, all...)
	return locked, above, err
}

// takeBack makes a worktree usable again, for a holder that has it from now on.
func takeBack(ctx context.Context, tx queries, w Worktree, holder Holder) error {
	at := now()
	if _, err := tx.exec(ctx, `UPDATE worktrees SET state = 'active', remover_kind = '', remover_id = '', remover_generation = 0, kept_code = '',
		quarantine_path = '', updated_at = ? WHERE id = ?`, at, w.ID); err != nil {
		return err
	}
	_, err := tx.exec(ctx, "INSERT INTO leases (worktree_id, holder_kind, holder_id, generation, acquired_at) VALUES (?, ?, ?, ?, ?)",
		w.ID, holder.Kind, holder.ID, holder.Generation, at)
	return err
}

// adoptRuntimes writes a row of the new generation for each runtime that lives.
// All rows of the old one are closed, so that the next finalization is about its
// own alone.
func adoptRuntimes(ctx context.Context, tx queries, r Restoration) error {
	left, err := runtimesLeft(ctx, tx, r.SessionID)
	if err != nil {
		return err
	}
	if len(r.Found) > 0 {
		session, err := sessionOf(ctx, tx, r.SessionID)
		if err != nil {
			return err
		}
		if err := soleHolder(ctx, tx, session.Host, session.ID, slices.Collect(maps.Values(r.Found))); err != nil {
			return err
		}
	}
	for _, old := range left {
		if found, ok := r.Found[old.ID]; ok {
			old.Handle = JSONOf(found)
		}
		how, outcome := "found gone by a restore", teardown.RuntimeAlreadyGone
		if slices.Contains(r.Alive, old.ID) {
			how, outcome = adoptedHow, old.Outcome
			if _, err := tx.exec(ctx, `INSERT INTO runtimes (id, session_id, generation, kind, role, handle, state) VALUES (?, ?, ?, ?, ?, ?, 'running')`,
				NewID(), r.SessionID, r.next().Generation, old.Kind, old.Role, old.Handle); err != nil {
				return err
			}
		}
		if _, err := tx.exec(ctx, "UPDATE runtimes SET handle = ?, state = 'released', released_at = ?, released_how = ?, outcome = ? WHERE id = ?",
			old.Handle, now(), how, string(outcome), old.ID); err != nil {
			return err
		}
	}
	return nil
}

// takeBackResources writes a row of the new generation for each resource that
// was not cleared.
func takeBackResources(ctx context.Context, tx queries, r Restoration) error {
	left, err := resourcesLeft(ctx, tx, r.SessionID, r.Generation)
	if err != nil {
		return err
	}
	for _, old := range left {
		if _, err := tx.exec(ctx, "INSERT INTO resources (id, session_id, generation, kind, path) VALUES (?, ?, ?, ?, ?)",
			NewID(), r.SessionID, r.next().Generation, old.Kind, old.Path); err != nil {
			return err
		}
	}
	return nil
}

// closeAsRestored ends the finalization of a generation that was restored, of a
// task that was reopened. One that was finished stays so, and why one was parked
// stays known.
func closeAsRestored(ctx context.Context, tx queries, old Holder, by string) error {
	f, begun, err := finalizationOf(ctx, tx, old)
	if err != nil || f.FinishedAt != nil {
		return err
	}
	if !begun {
		if _, err := open(ctx, tx, old, nil); err != nil {
			return err
		}
	}
	_, err = tx.exec(ctx, "UPDATE finalizations SET outcome = ?, finished_at = ?, requested_by = ?, next_attempt_at = NULL"+ofHolder,
		append([]any{string(teardown.OutcomeRestored), now(), readable(by, maxText)}, old.key()...)...)
	return err
}
