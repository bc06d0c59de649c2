package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"unwind/teardown"
)

// Due is a session, or a task, whose finalization is to be started or woken.
type Due struct {
	SessionID string `db:"id"`
	TaskID    string `db:"task_id"` // instead of SessionID
	// ParkedReason is set by Unbound and WakeableTasks.
	ParkedReason string `db:"parked_reason"`
	Host         string `db:"host"`
	Generation   int64  `db:"generation"`
}

type dueRow struct {
	Due
	HeldUntil *time.Time `db:"held_until"`
	HeldBy    string     `db:"held_by"`
	// Begun: it was begun after all.
	Begun bool `db:"begun"`
}

func (r dueRow) at(at time.Time) bool {
	return !r.Begun && !(Session{HeldUntil: r.HeldUntil, HeldBy: r.HeldBy}).Held(at)
}

const (
	// begun_generation, which triggers keep, narrows the search down to an index of
	// those that are left. finalizations decides, but not in the WHERE clause, nor by
	// EXISTS: no database can tell how few are left, and Postgres would read all.
	neverBegunQuery = `SELECT s.id, s.host, s.generation, s.held_until, s.held_by, (SELECT COUNT(*) FROM finalizations f
			WHERE f.holder_kind = 'session' AND f.holder_id = s.id AND f.generation = s.generation) > 0 AS begun
		FROM sessions s WHERE s.terminated_at IS NOT NULL AND (s.begun_generation IS NULL OR s.begun_generation <> s.generation)`
	underWayQuery = `SELECT s.id, s.host, s.generation, s.held_until, s.held_by, FALSE AS begun
		FROM finalizations f JOIN sessions s ON s.id = f.holder_id AND s.generation = f.generation
		WHERE f.holder_kind = 'session' AND f.finished_at IS NULL AND f.parked_at IS NULL AND s.terminated_at IS NOT NULL`
)

// NeverBegun lists, by id and after the given one, those among the next limit
// sessions of any host that are terminated and for which no run has ever begun,
// unless they are held at the given time. With UnderWay these are all whose
// finalization is due.
func (s *Store) NeverBegun(ctx context.Context, after string, limit int, at time.Time) (Page[Due], error) {
	return s.due(ctx, neverBegunQuery+" AND s.id > ? ORDER BY s.id LIMIT ?", after, limit, at)
}

// UnderWay lists likewise those that were begun and are neither finished, parked
// nor held. Whether a workflow runs for them is not the database's to know.
func (s *Store) UnderWay(ctx context.Context, after string, limit int, at time.Time) (Page[Due], error) {
	return s.due(ctx, underWayQuery+" AND f.holder_id > ? ORDER BY f.holder_id LIMIT ?", after, limit, at)
}

func (s *Store) due(ctx context.Context, statement, after string, limit int, at time.Time) (page Page[Due], err error) {
	err = s.read(ctx, func(q queries) error {
		rows, err := pageOf[dueRow](ctx, q, s.at, limit, statement, after, limit)
		page = Page[Due]{Unreadable: rows.Unreadable, Next: rows.Next}
		for _, r := range rows.Rows {
			if r.at(at) {
				page.Rows = append(page.Rows, r.Due)
			}
		}
		return err
	})
	return page, err
}

// DueSession answers one such session; found is false if it is not due.
func (s *Store) DueSession(ctx context.Context, id string, at time.Time) (due Due, found bool, err error) {
	err = s.read(ctx, func(q queries) error {
		var row dueRow
		for _, statement := range []string{neverBegunQuery, underWayQuery} {
			if found, err = q.one(ctx, &row, statement+" AND s.id = ?", id); err != nil || found && !row.Begun {
				break
			}
		}
		due, found = row.Due, found && row.at(at)
		return err
	})
	return due, found, err
}

// StillDue answers which of these sessions are due still, begun or not.
func (s *Store) StillDue(ctx context.Context, ids []string) (due []string, err error) {
	err = s.read(ctx, func(q queries) error {
		due = nil
		return q.among(ctx, &due, `SELECT s.id FROM sessions s LEFT JOIN finalizations f
				ON f.holder_kind = 'session' AND f.holder_id = s.id AND f.generation = s.generation
			WHERE s.terminated_at IS NOT NULL AND f.finished_at IS NULL AND f.parked_at IS NULL AND s.id IN (?) ORDER BY s.id`, ids)
	})
	return due, err
}

// Unreachable lists, by id and after the given one, up to limit sessions of a
// host that are parked because it did not answer.
func (s *Store) Unreachable(ctx context.Context, host, after string, limit int) (page Page[Due], err error) {
	err = s.read(ctx, func(q queries) error {
		page, err = pageOf[Due](ctx, q, s.at, limit, `SELECT s.id, s.host, s.generation
			FROM finalizations f JOIN sessions s ON s.id = f.holder_id AND s.generation = f.generation
			WHERE f.holder_kind = 'session' AND f.holder_id > ? AND s.host = ? AND s.terminated_at IS NOT NULL AND f.finished_at IS NULL
				AND f.parked_at IS NOT NULL AND f.parked_reason = ?
			ORDER BY f.holder_id LIMIT ?`, after, host, teardown.ReasonHostUnreachable, limit)
		return err
	})
	return page, err
}

// Unbound lists, by id and after the given one, those among the next limit
// sessions of a host parked on worktrees (preserved or refused) that keep none
// of them any more: somebody else holds them, removes them or has removed them,
// or a worktree that was kept for those inside it has lost the last of these
// since.
func (s *Store) Unbound(ctx context.Context, host, after string, limit int) (page Page[Due], err error) {
	err = s.read(ctx, func(q queries) error {
		page, err = pageOf[Due](ctx, q, s.at, limit, `SELECT s.id, s.host, s.generation, f.parked_reason
			FROM finalizations f JOIN sessions s ON s.id = f.holder_id AND s.generation = f.generation
			WHERE f.holder_kind = 'session' AND f.holder_id > ? AND s.host = ? AND s.terminated_at IS NOT NULL AND f.finished_at IS NULL
				AND f.parked_at IS NOT NULL AND f.parked_reason IN (?, ?)
				AND EXISTS (SELECT 1 FROM leases l WHERE l.holder_kind = f.holder_kind AND l.holder_id = f.holder_id
					AND l.generation = f.generation AND l.disposition IN ('preserved', 'refused'))
			ORDER BY f.holder_id LIMIT ?`, after, host, teardown.ReasonPreserved, teardown.ReasonRefused, limit)
		if err != nil {
			return err
		}
		return s.withoutKeepers(ctx, q, &page)
	})
	return page, err
}

// withoutKeepers leaves out of a page those that are parked on a worktree that
// they still keep. One of whom that cannot be read is unreadable itself.
func (s *Store) withoutKeepers(ctx context.Context, q queries, page *Page[Due]) error {
	parked := page.Rows
	page.Rows = nil
	for _, due := range parked {
		me := Holder{Kind: HolderSession, ID: due.SessionID, Generation: due.Generation}
		if due.TaskID != "" {
			me = Holder{Kind: HolderTask, ID: due.TaskID, Generation: due.Generation}
		}
		keeps := false
		if due.ParkedReason == teardown.ReasonPreserved || due.ParkedReason == teardown.ReasonRefused {
			var err error
			keeps, err = keepsAny(ctx, q, me)
			if err = s.at.explain(err); teardown.CodeOf(err) == teardown.CodeInternal {
				page.Unreadable = append(page.Unreadable, Unreadable{ID: me.ID, Err: err})
				continue
			}
			if err != nil {
				return err
			}
		}
		if !keeps {
			page.Rows = append(page.Rows, due)
		}
	}
	return nil
}

// keepsAny reports whether a parked holder still keeps a worktree for a reason
// that holds.
func keepsAny(ctx context.Context, q queries, me Holder) (bool, error) {
	var kept []Worktree
	if err := q.all(ctx, &kept, "SELECT "+worktreeColumns+` FROM worktrees
		WHERE remover_kind = ? AND remover_id = ? AND remover_generation = ? AND state IN ('deleting', 'preserved')`, me.key()...); err != nil {
		return false, err
	}
	for _, w := range kept {
		lease, leased, err := leaseOf(ctx, q, w.ID, me)
		if err != nil {
			return false, err
		}
		if !leased || lease.Code != teardown.CodeChildPreserved || gitAlone(lease.Details.V) {
			return true, nil
		}
		if left, err := descendants(ctx, q, w); err != nil || len(left) > 0 {
			return true, err
		}
	}
	return false, nil
}

// byGitAlone begins a detail that names a worktree inside another of which only
// git knows. Nothing here tells when that one goes, so whoever keeps the outer one
// for it waits for a person.
const byGitAlone = "registered with git alone: "

func gitAlone(details []string) bool {
	return slices.ContainsFunc(details, func(detail string) bool { return strings.HasPrefix(detail, byGitAlone) })
}

// tellGitAlone says so of what a look has found inside a worktree, with nothing of
// ours there.
func tellGitAlone(details []string) []string {
	told := slices.Clone(details)
	for i, detail := range told {
		if strings.HasPrefix(detail, "/") { // of the reason; others begin with their code
			told[i] = byGitAlone + detail
		}
	}
	return told
}

// DueTasks is Due for tasks: those that are closed and neither finished nor
// parked, also such whose row is gone.
func (s *Store) DueTasks(ctx context.Context, after string, limit int) (page Page[Due], err error) {
	err = s.read(ctx, func(q queries) error {
		page, err = pageOf[Due](ctx, q, s.at, limit, `SELECT id AS task_id, MAX(generation) AS generation FROM (
				SELECT t.id, t.generation FROM tasks t LEFT JOIN finalizations f
						ON f.holder_kind = 'task' AND f.holder_id = t.id AND f.generation = t.generation
					WHERE t.terminated_at IS NOT NULL AND f.finished_at IS NULL AND f.parked_at IS NULL
				UNION
				SELECT f.holder_id, f.generation FROM finalizations f
					WHERE f.holder_kind = 'task' AND f.finished_at IS NULL AND f.parked_at IS NULL
						AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = f.holder_id)
				UNION
				SELECT l.holder_id, l.generation FROM leases l
					WHERE l.holder_kind = 'task' AND l.released_at IS NULL
						AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = l.holder_id)
						AND NOT EXISTS (SELECT 1 FROM finalizations f WHERE f.holder_kind = 'task' AND f.holder_id = l.holder_id AND f.generation = l.generation)
			) AS due WHERE id > ? GROUP BY id ORDER BY id LIMIT ?`, after, limit)
		return err
	})
	return page, err
}

// WakeableTasks lists, by id and after the given one, those among the next limit
// tasks that are parked for something that has passed: the host did not answer,
// and is this one; a session of theirs was not finalized, and all are by now; or
// worktrees were kept, and none of them is any more (see Unbound).
func (s *Store) WakeableTasks(ctx context.Context, host, after string, limit int) (page Page[Due], err error) {
	err = s.read(ctx, func(q queries) error {
		page, err = pageOf[Due](ctx, q, s.at, limit, `SELECT f.holder_id AS task_id, f.generation, f.parked_reason FROM finalizations f
			WHERE f.holder_kind = 'task' AND f.holder_id > ? AND f.finished_at IS NULL AND f.parked_at IS NOT NULL
				AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = f.holder_id AND t.generation <> f.generation)
				AND ((f.parked_reason = ? AND EXISTS (SELECT 1 FROM worktrees w WHERE w.host = ? AND w.state = 'deleting'
						AND w.remover_kind = 'task' AND w.remover_id = f.holder_id AND w.remover_generation = f.generation))
					OR (f.parked_reason IN (?, ?, ?) AND NOT EXISTS (SELECT 1 FROM sessions s LEFT JOIN finalizations g
						ON g.holder_kind = 'session' AND g.holder_id = s.id AND g.generation = s.generation
						WHERE s.task_id = f.holder_id AND g.finished_at IS NULL))
					OR (f.parked_reason IN (?, ?) AND EXISTS (SELECT 1 FROM leases l WHERE l.holder_kind = 'task' AND l.holder_id = f.holder_id
						AND l.generation = f.generation AND l.disposition IN ('preserved', 'refused'))))
			ORDER BY f.holder_id LIMIT ?`, after, teardown.ReasonHostUnreachable, host,
			teardown.ReasonSessionPreserved, teardown.ReasonSessionFailed, teardown.ReasonSessionHeld,
			teardown.ReasonPreserved, teardown.ReasonRefused, limit)
		if err != nil {
			return err
		}
		return s.withoutKeepers(ctx, q, &page)
	})
	return page, err
}
