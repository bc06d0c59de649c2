package store

import (
	"context"
	"time"

	"unwind/teardown"
)

// Holder is the task at its generation.
func (t Task) Holder() Holder { return Holder{Kind: HolderTask, ID: t.ID, Generation: t.Generation} }

// NewTask is a task with the worktrees that it holds from the start; what they
// are is said at NewSession.
type NewTask struct {
	ID, Host      string
	Worktrees     []NewWorktree
	Retire, Lease []string
}

// AddTask opens a task, or adds worktrees to an active one. Opened is false if it
// was known. The caller holds the path locks of the worktrees. Codes: those of
// AddSession.
func (s *Store) AddTask(ctx context.Context, n NewTask) (t Task, opened bool, err error) {
	if err := teardown.ValidateID(n.ID); err != nil {
		return Task{}, false, err
	}
	holds := NewSession{TaskID: n.ID, Host: n.Host, Worktrees: n.Worktrees, Retire: n.Retire, Lease: n.Lease}
	if err := holds.check(); err != nil {
		return Task{}, false, err
	}
	holds.complete()
	err = s.write(ctx, func(tx queries) error {
		if t, opened, err = enterTask(ctx, tx, n.ID); err != nil {
			return err
		}
		return addWorktrees(ctx, tx, holds, []Holder{t.Holder()})
	})
	return t, opened && err == nil, err
}

// enterTask opens the task if it is not known, locks its row, and refuses once
// its barrier is set.
func enterTask(ctx context.Context, tx queries, id string) (t Task, opened bool, err error) {
	_, known, err := generationOf(ctx, tx, Holder{Kind: HolderTask, ID: id})
	if err != nil {
		return Task{}, false, err
	}
	if !known {
		// The facts about a deleted task of this id stay as they are.
		newest, err := newestTrace(ctx, tx, id)
		if err != nil {
			return Task{}, false, err
		}
		open, err := unfinishedTraces(ctx, tx, id)
		if err != nil {
			return Task{}, false, err
		}
		if open {
			return Task{}, false, taskClosed(id)
		}
		at := now()
		rows, err := tx.exec(ctx, "INSERT INTO tasks (id, generation, created_at, updated_at) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
			id, newest+1, at, at)
		if err != nil {
			return Task{}, false, err
		}
		opened = rows > 0
	}
	t, found, err := lockTask(ctx, tx, id)
	if err == nil && (!found || t.Closed()) {
		err = taskClosed(id)
	}
	return t, opened, err
}

// newestTrace is the newest generation of which a task without a row has left
// leases or a finalization; 0 if there is none.
func newestTrace(ctx context.Context, q queries, id string) (generation int64, err error) {
	_, err = q.one(ctx, &generation, `SELECT COALESCE(MAX(generation), 0) FROM (
		SELECT generation FROM leases WHERE holder_kind = 'task' AND holder_id = ?
		UNION SELECT generation FROM finalizations WHERE holder_kind = 'task' AND holder_id = ?) AS traces`, id, id)
	return generation, err
}

// unfinishedTraces: a task without a row still holds something, or is to be
// finalized.
func unfinishedTraces(ctx context.Context, q queries, id string) (bool, error) {
	var open int
	_, err := q.one(ctx, &open, `SELECT COUNT(*) FROM (
		SELECT generation FROM leases WHERE holder_kind = 'task' AND holder_id = ? AND released_at IS NULL
		UNION SELECT generation FROM finalizations WHERE holder_kind = 'task' AND holder_id = ? AND finished_at IS NULL) AS traces`, id, id)
	return open > 0, err
}

// CloseTask sets the barrier: nothing is started in the task or leased for it
// any more. State is TaskArchived or TaskDeleted, what the task is to become. An
// archived task may be deleted; a deleted one, also one whose row is gone, stays
// so. Changed is false if it was closed so before. Codes: task_not_found, and
// conflict if a deleted task is to be archived.
func (s *Store) CloseTask(ctx context.Context, id, state string) (t Task, changed bool, err error) {
	if state != TaskArchived && state != TaskDeleted {
		return Task{}, false, internal("A task is closed as archived or deleted, not as %q", state)
	}
	err = s.write(ctx, func(tx queries) error {
		var found bool
		changed = false
		if t, found, err = lockTask(ctx, tx, id); err != nil {
			return err
		}
		if !found {
			t, err = deletedTask(ctx, tx, id)
		}
		switch {
		case err != nil:
			return err
		case t.State == state:
			return dropDeletedTask(ctx, tx, id)
		case t.State == TaskDeleted:
			return conflict("Task %s is deleted; it cannot be archived", id)
		}
		at := now()
		changed = true
		t.State, t.UpdatedAt = state, at
		if t.TerminatedAt == nil {
			t.TerminatedAt = &at
		}
		if _, err := tx.exec(ctx, "UPDATE tasks SET state = ?, terminated_at = ?, updated_at = ? WHERE id = ?", state, t.TerminatedAt, at, id); err != nil {
			return err
		}
		return dropDeletedTask(ctx, tx, id)
	})
	return t, changed && err == nil, err
}

// deletedTask is what is known of a task whose row is gone.
func deletedTask(ctx context.Context, q queries, id string) (Task, error) {
	generation, err := newestTrace(ctx, q, id)
	if err == nil && generation == 0 {
		err = taskNotFound(id)
	}
	return Task{ID: id, Generation: generation, State: TaskDeleted}, err
}

// dropDeletedTask removes the row of a deleted task that is finalized and has no
// sessions left; their rows refer to it. The facts about it stay.
func dropDeletedTask(ctx context.Context, tx queries, id string) error {
	if id == "" {
		return nil
	}
	_, err := tx.exec(ctx, `DELETE FROM tasks WHERE id = ? AND state = 'deleted'
		AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.task_id = tasks.id)
		AND EXISTS (SELECT 1 FROM finalizations f WHERE f.holder_kind = 'task' AND f.holder_id = tasks.id
			AND f.generation = tasks.generation AND f.finished_at IS NOT NULL)`, id)
	return err
}

// TaskState is derived from the facts when it is shown.
type TaskState string

// A task that is closed is archiving or deleting until it is finalized, and
// parked while that waits for a person.
const (
	TaskStateActive    TaskState = "active"
	TaskStateArchiving TaskState = "archiving"
	TaskStateArchived  TaskState = "archived"
	TaskStateDeleting  TaskState = "deleting"
	TaskStateDeleted   TaskState = "deleted"
	TaskStateParked    TaskState = "parked"
)

// TaskDetail is a task with what it holds or held, at every generation.
type TaskDetail struct {
	Task          Task
	State         TaskState
	Sessions      []teardown.SessionResult // at their newest generation; Outcome "" while live or under way
	SessionsLive  int
	Worktrees     []LeasedWorktree // by generation, then path
	Finalizations []Finalization   // by generation
}

// TaskDetail returns one task with everything, also one whose row is gone;
// task_not_found.
func (s *Store) TaskDetail(ctx context.Context, id string) (detail TaskDetail, err error) {
	err = s.read(ctx, func(q queries) error {
		detail = TaskDetail{}
		found, err := q.one(ctx, &detail.Task, "SELECT "+taskColumns+" FROM tasks WHERE id = ?", id)
		if err == nil && !found {
			detail.Task, err = deletedTask(ctx, q, id)
		}
		if err != nil {
			return err
		}
		if detail.Sessions, err = sessionResults(ctx, q, id); err != nil {
			return err
		}
		if _, err := q.one(ctx, &detail.SessionsLive, "SELECT COUNT(*) FROM sessions WHERE task_id = ? AND terminated_at IS NULL", id); err != nil {
			return err
		}
		if err := q.all(ctx, &detail.Finalizations, "SELECT "+finalizationColumns+` FROM finalizations
			WHERE holder_kind = 'task' AND holder_id = ? ORDER BY generation`, id); err != nil {
			return err
		}
		detail.State = stateOfTask(detail.Task, detail.Finalization())
		var leases []Lease
		if err := q.all(ctx, &leases, "SELECT "+leaseColumns+` FROM leases
			WHERE holder_kind = 'task' AND holder_id = ? ORDER BY generation`, id); err != nil {
			return err
		}
		detail.Worktrees, err = withWorktrees(ctx, q, leases)
		return err
	})
	return detail, err
}

// Finalization is that of the task's generation; zero while there is none.
func (d TaskDetail) Finalization() Finalization {
	for _, f := range d.Finalizations {
		if f.Generation == d.Task.Generation {
			return f
		}
	}
	return Finalization{}
}

func stateOfTask(t Task, f Finalization) TaskState {
	switch {
	case !t.Closed():
		return TaskStateActive
	case f.FinishedAt != nil:
		return TaskState(t.State)
	case f.ParkedAt != nil:
		return TaskStateParked
	case t.State == TaskDeleted:
		return TaskStateDeleting
	}
	return TaskStateArchiving
}

// TaskSummary is one task in a list.
type TaskSummary struct {
	Task
	Status       TaskState        `db:"-"`
	Round        int64            `db:"round"` // 0 if it was never begun
	ParkedAt     *time.Time       `db:"parked_at"`
	ParkedReason string           `db:"parked_reason"`
	FinishedAt   *time.Time       `db:"finished_at"`
	Outcome      teardown.Outcome `db:"outcome"`
	Sessions     int              `db:"sessions"`
	SessionsLive int              `db:"sessions_live"`
	// Worktrees are those that it holds now.
	Worktrees int `db:"worktrees"`
}

// Tasks lists, by id and after the given one, up to limit tasks that have a row.
func (s *Store) Tasks(ctx context.Context, after string, limit int) ([]TaskSummary, error) {
	var page []TaskSummary
	err := s.read(ctx, func(q queries) error {
		page = nil
		if err := q.all(ctx, &page, `SELECT t.id, t.generation, t.state, t.terminated_at, t.created_at, t.updated_at,
				COALESCE(f.round, 0) AS round, f.parked_at, COALESCE(f.parked_reason, '') AS parked_reason, f.finished_at,
				COALESCE(f.outcome, '') AS outcome,
				(SELECT COUNT(*) FROM sessions s WHERE s.task_id = t.id) AS sessions,
				(SELECT COUNT(*) FROM sessions s WHERE s.task_id = t.id AND s.terminated_at IS NULL) AS sessions_live,
				(SELECT COUNT(*) FROM leases l WHERE l.holder_kind = 'task' AND l.holder_id = t.id AND l.released_at IS NULL) AS worktrees
			FROM tasks t LEFT JOIN finalizations f ON f.holder_kind = 'task' AND f.holder_id = t.id AND f.generation = t.generation
			WHERE t.id > ? ORDER BY t.id LIMIT ?`, after, limit); err != nil {
			return err
		}
		for i := range page {
			page[i].Status = stateOfTask(page[i].Task, Finalization{ParkedAt: page[i].ParkedAt, FinishedAt: page[i].FinishedAt})
		}
		return nil
	})
	return page, err
}
