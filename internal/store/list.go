package store

import (
	"context"
	"time"

	"unwind/teardown"
)

// SessionState is derived from the facts when it is shown.
type SessionState string

// A terminated session is finished, else held, else parked, else simply
// terminated: its finalization is under way or to be started.
const (
	StateLive       SessionState = "live"
	StateTerminated SessionState = "terminated"
	StateParked     SessionState = "parked"
	StateFinished   SessionState = "finished"
	StateHeld       SessionState = "held"
)

// SessionFilter selects a page of sessions, by id. What is empty selects all.
type SessionFilter struct {
	State  SessionState
	Host   string
	Task   string
	Reason string // parked for this reason
	After  string // the last id of the page before
	Limit  int    // 0 means 100
}

// Summary is one session in a list.
type Summary struct {
	Session
	State          SessionState  `db:"-"`
	Round          int64         `db:"round"` // 0 if it was never begun
	ParkedAt       *time.Time    `db:"parked_at"`
	ParkedReason   string        `db:"parked_reason"`
	FailureCode    teardown.Code `db:"failure_code"`
	FailureMessage string        `db:"failure_message"`
	AttemptCount   int           `db:"attempt_count"`
	NextAttemptAt  *time.Time    `db:"next_attempt_at"`
	FinishedAt     *time.Time    `db:"finished_at"`
	StartedAt      *time.Time    `db:"started_at"`
	LastAttemptAt  *time.Time    `db:"last_attempt_at"`
	// When the runtimes were all gone, and the resources.
	RuntimeReleasedAt  *time.Time       `db:"runtime_released_at"`
	ResourcesClearedAt *time.Time       `db:"resources_cleared_at"`
	Outcome            teardown.Outcome `db:"outcome"`
	// Of this generation: all, and those not confirmed gone.
	Runtimes     int `db:"runtimes"`
	RuntimesLeft int `db:"runtimes_left"`
	// Leases of this generation: all, and those preserved, refused or failed,
	// with what these hold on disk.
	Worktrees     int   `db:"worktrees"`
	WorktreesKept int   `db:"worktrees_kept"`
	BytesKept     int64 `db:"bytes_kept"`
}

const summaryQuery = `SELECT s.id, s.host, COALESCE(s.task_id, '') AS task_id, s.generation, s.terminated_at, s.termination_source,
		s.held_until, s.held_by, s.manifest_hash, s.created_at, s.updated_at,
		COALESCE(f.round, 0) AS round, f.parked_at, COALESCE(f.parked_reason, '') AS parked_reason,
		COALESCE(f.failure_code, '') AS failure_code, COALESCE(f.failure_message, '') AS failure_message,
		COALESCE(f.attempt_count, 0) AS attempt_count, f.next_attempt_at, f.finished_at,
		f.started_at, f.last_attempt_at, f.runtime_released_at, f.resources_cleared_at, COALESCE(f.outcome, '') AS outcome,
		(SELECT COUNT(*) FROM runtimes r WHERE r.session_id = s.id AND r.generation = s.generation) AS runtimes,
		(SELECT COUNT(*) FROM runtimes r WHERE r.session_id = s.id AND r.generation = s.generation AND r.released_at IS NULL) AS runtimes_left,
		(SELECT COUNT(*) FROM leases l WHERE l.holder_kind = 'session' AND l.holder_id = s.id AND l.generation = s.generation) AS worktrees,
		(SELECT COUNT(*) FROM leases l WHERE l.holder_kind = 'session' AND l.holder_id = s.id AND l.generation = s.generation
			AND l.disposition IN ('preserved', 'refused', 'failed')) AS worktrees_kept,
		(SELECT CAST(COALESCE(SUM(l.bytes), 0) AS BIGINT) FROM leases l WHERE l.holder_kind = 'session' AND l.holder_id = s.id
			AND l.generation = s.generation AND l.disposition IN ('preserved', 'refused', 'failed')) AS bytes_kept
	FROM sessions s LEFT JOIN finalizations f
		ON f.holder_kind = 'session' AND f.holder_id = s.id AND f.generation = s.generation
	WHERE s.id > ? AND (? = '' OR s.host = ?) AND (? = '' OR s.task_id = ?) AND (? = '' OR COALESCE(f.parked_reason, '') = ?)`

// What each state requires of the rows. Whether a hold has ended is decided in
// Go, for times are not compared in SQL.
var stateConditions = map[SessionState]string{
	"":              "",
	StateLive:       " AND s.terminated_at IS NULL",
	StateTerminated: " AND s.terminated_at IS NOT NULL AND f.finished_at IS NULL AND f.parked_at IS NULL",
	StateParked:     " AND s.terminated_at IS NOT NULL AND f.finished_at IS NULL AND f.parked_at IS NOT NULL",
	StateFinished:   " AND s.terminated_at IS NOT NULL AND f.finished_at IS NOT NULL",
	StateHeld:       " AND s.terminated_at IS NOT NULL AND f.finished_at IS NULL AND (s.held_by <> '' OR s.held_until IS NOT NULL)",
}

// Sessions lists a page of sessions by id. A page is short only if it is the
// last.
func (s *Store) Sessions(ctx context.Context, filter SessionFilter) ([]Summary, error) {
	condition, known := stateConditions[filter.State]
	if !known {
		return nil, internal("There is no state %q; use live, terminated, parked, finished or held", filter.State)
	}
	limit := filter.Limit
	if limit <= 0 {
		limit = 100
	}
	var page []Summary
	err := s.read(ctx, func(q queries) error {
		page = nil
		at, after := now(), filter.After
		for len(page) < limit {
			var rows []Summary
			if err := q.all(ctx, &rows, summaryQuery+condition+" ORDER BY s.id LIMIT ?",
				after, filter.Host, filter.Host, filter.Task, filter.Task, filter.Reason, filter.Reason, limit); err != nil {
				return err
			}
			for _, row := range rows {
				row.State = row.stateAt(at)
				if (filter.State == "" || filter.State == row.State) && len(page) < limit {
					page = append(page, row)
				}
				after = row.ID
			}
			if len(rows) < limit {
				return nil
			}
		}
		return nil
	})
	return page, err
}

// ChangedAt is the time of the newest fact, the session's or its finalization's.
func (s Summary) ChangedAt() time.Time {
	newest := s.UpdatedAt
	for _, at := range []*time.Time{s.StartedAt, s.LastAttemptAt, s.RuntimeReleasedAt, s.ResourcesClearedAt, s.ParkedAt, s.FinishedAt} {
		if at != nil && at.After(newest) {
			newest = *at
		}
	}
	return newest
}

func (s Summary) stateAt(at time.Time) SessionState {
	switch {
	case s.TerminatedAt == nil:
		return StateLive
	case s.FinishedAt != nil:
		return StateFinished
	case s.Held(at):
		return StateHeld
	case s.ParkedAt != nil:
		return StateParked
	}
	return StateTerminated
}
