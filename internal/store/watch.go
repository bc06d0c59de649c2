package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"unwind/teardown"
)

// Watched is a live session whose agent can be looked at.
type Watched struct {
	SessionID  string
	Generation int64
	// Agents are its agent runtimes of this generation, all in state running.
	Agents []Agent
}

// Agent is one of its runtimes.
type Agent struct {
	RuntimeID string
	Handle    teardown.Runtime
	// Err says that the record of the runtime cannot be read; the handle is empty
	// then. It is a *teardown.Error.
	Err error
}

// Watched lists, by id and after the given one, the live sessions among the next
// limit ones of a host that have an agent runtime and are not held at the given
// time. One of which an agent runtime is still being started is left out.
func (s *Store) Watched(ctx context.Context, host, after string, limit int, at time.Time) (page Page[Watched], err error) {
	err = s.read(ctx, func(q queries) error {
		live, err := pageOf[heldSession](ctx, q, s.at, limit, `SELECT id, generation, held_until, held_by FROM sessions
			WHERE host = ? AND terminated_at IS NULL AND id > ? ORDER BY id LIMIT ?`, host, after, limit)
		if err != nil {
			return err
		}
		page = Page[Watched]{Unreadable: live.Unreadable, Next: live.Next}
		live.Rows = slices.DeleteFunc(live.Rows, func(r heldSession) bool { return r.at(at) })
		agents, err := s.agentsOf(ctx, q, live.Rows)
		if err != nil {
			return err
		}
		for _, session := range live.Rows {
			if watched, ok := watch(session, agents[session.ID]); ok {
				page.Rows = append(page.Rows, watched)
			}
		}
		return nil
	})
	return page, err
}

// WatchedSession answers one such session; found is false if it is terminated,
// held or cannot be judged.
func (s *Store) WatchedSession(ctx context.Context, id string, at time.Time) (watched Watched, found bool, err error) {
	err = s.read(ctx, func(q queries) error {
		var session heldSession
		live, err := q.one(ctx, &session, `SELECT id, generation, held_until, held_by FROM sessions
			WHERE id = ? AND terminated_at IS NULL`, id)
		if err != nil || !live || session.at(at) {
			return err
		}
		agents, err := s.agentsOf(ctx, q, []heldSession{session})
		if err == nil {
			watched, found = watch(session, agents[id])
		}
		return err
	})
	return watched, found && err == nil, err
}

type heldSession struct {
	ID         string     `db:"id"`
	Generation int64      `db:"generation"`
	HeldUntil  *time.Time `db:"held_until"`
	HeldBy     string     `db:"held_by"`
}

func (h heldSession) at(at time.Time) bool {
	return Session{HeldUntil: h.HeldUntil, HeldBy: h.HeldBy}.Held(at)
}

// agentRow keeps the handle as text, for somebody else may have written it.
type agentRow struct {
	ID         string `db:"id"`
	SessionID  string `db:"session_id"`
	Generation int64  `db:"generation"`
	State      string `db:"state"`
	Handle     string `db:"handle"`
}

func (s *Store) agentsOf(ctx context.Context, q queries, sessions []heldSession) (map[string][]agentRow, error) {
	var ids []string
	for _, session := range sessions {
		ids = append(ids, session.ID)
	}
	var rows []agentRow
	err := q.among(ctx, &rows, `SELECT id, session_id, generation, state, handle FROM runtimes
		WHERE role = '`+teardown.RoleAgent+`' AND session_id IN (?) ORDER BY id`, ids)
	agents := map[string][]agentRow{}
	for _, row := range rows {
		agents[row.SessionID] = append(agents[row.SessionID], row)
	}
	return agents, err
}

func watch(session heldSession, agents []agentRow) (Watched, bool) {
	watched := Watched{SessionID: session.ID, Generation: session.Generation}
	for _, row := range agents {
		if row.Generation != session.Generation {
			continue
		}
		if row.State != RuntimeRunning {
			return watched, false
		}
		agent := Agent{RuntimeID: row.ID}
		if err := json.Unmarshal([]byte(row.Handle), &agent.Handle); err != nil {
			agent.Err = &teardown.Error{Code: teardown.CodeRuntimeUnroutable, Cause: err, Message: fmt.Sprintf(
				"The record of runtime %s cannot be read; correct its handle in the database", row.ID)}
		}
		watched.Agents = append(watched.Agents, agent)
	}
	return watched, len(watched.Agents) > 0
}

// AgentGone records that a session ended with its agent, unless it is terminated
// or held, at another generation, or has other agent runtimes than those that
// were confirmed gone. The caller holds the session's lock. Changed says whether
// this call recorded it.
func (s *Store) AgentGone(ctx context.Context, gone Watched) (changed bool, err error) {
	err = s.write(ctx, func(tx queries) error {
		changed = false
		session, found, err := lockSession(ctx, tx, gone.SessionID)
		if err != nil || !found || session.TerminatedAt != nil || session.Generation != gone.Generation || session.Held(now()) {
			return err
		}
		held := heldSession{ID: session.ID, Generation: session.Generation}
		agents, err := s.agentsOf(ctx, tx, []heldSession{held})
		if err != nil {
			return err
		}
		if current, ok := watch(held, agents[session.ID]); !ok || !sameRuntimes(current, gone) {
			return nil
		}
		at := now()
		rows, err := tx.exec(ctx, `UPDATE sessions SET terminated_at = ?, termination_source = ?, updated_at = ?
			WHERE id = ? AND terminated_at IS NULL AND generation = ?`, at, teardown.SourceRuntimeExit, at, session.ID, session.Generation)
		changed = rows > 0
		return err
	})
	return changed && err == nil, err
}

func sameRuntimes(a, b Watched) bool {
	return slices.EqualFunc(a.Agents, b.Agents, func(a, b Agent) bool { return a.RuntimeID == b.RuntimeID })
}

// HeldWorktrees lists the worktrees that a holder leases, parents first.
func (s *Store) HeldWorktrees(ctx context.Context, holder Holder) (worktrees []Worktree, err error) {
	err = s.read(ctx, func(q queries) error {
		worktrees = nil
		return q.all(ctx, &worktrees, "SELECT "+worktreeColumns+` FROM worktrees WHERE state = 'active' AND id IN
			(SELECT worktree_id FROM leases`+ofHolder+" AND released_at IS NULL) ORDER BY path", holder.key()...)
	})
	return worktrees, err
}

// SavedBeforehand records on a holder's lease where uncommitted work was saved
// before anything was released.
func (s *Store) SavedBeforehand(ctx context.Context, holder Holder, worktreeID, ref string) error {
	return s.write(ctx, func(tx queries) error { return saved(ctx, tx, holder, worktreeID, ref) })
}
