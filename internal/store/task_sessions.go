package store

import (
	"context"

	"unwind/teardown"
)

// unfinishedOfTask selects the sessions of a task that are live, or whose
// finalization is not finished.
const unfinishedOfTask = ` FROM sessions s LEFT JOIN finalizations f
		ON f.holder_kind = 'session' AND f.holder_id = s.id AND f.generation = s.generation
	WHERE s.task_id = ? AND f.finished_at IS NULL`

// TerminateTaskSessions terminates, of the sessions of a closed task that come
// after the given id, those that are live, and lists those that are not
// finalized, by id. The barrier is set, so no session joins them.
func (s *Store) TerminateTaskSessions(ctx context.Context, in teardown.TaskSessionsInput) (out teardown.TaskSessionsResult, err error) {
	err = s.write(ctx, func(tx queries) error {
		out = teardown.TaskSessionsResult{}
		at, err := stand(ctx, tx, in.Step)
		if err != nil {
			return err
		}
		if !at.mayGoOn {
			out.Superseded = true
			return nil
		}
		var ids []string
		if err := tx.all(ctx, &ids, "SELECT s.id"+unfinishedOfTask+" AND s.id > ? ORDER BY s.id LIMIT ?",
			in.Step.TaskID, in.After, teardown.MaxListed+1); err != nil {
			return err
		}
		if out.More = len(ids) > teardown.MaxListed; out.More {
			ids = ids[:teardown.MaxListed]
		}
		for _, id := range ids {
			ref, found, err := terminateOfTask(ctx, tx, in.Step, at.finalization, id)
			if err != nil {
				return err
			}
			if found {
				out.Sessions = append(out.Sessions, ref)
			}
		}
		return nil
	})
	return out, err
}

func terminateOfTask(ctx context.Context, tx queries, step teardown.Step, of Finalization, id string) (ref teardown.TaskSessionRef, found bool, err error) {
	session, found, err := lockSession(ctx, tx, id)
	if err != nil || !found {
		return ref, false, err
	}
	if session.TerminatedAt == nil {
		at := now()
		if _, err := tx.exec(ctx, "UPDATE sessions SET terminated_at = ?, termination_source = ?, updated_at = ? WHERE id = ?",
			at, "task "+step.TaskID, at, id); err != nil {
			return ref, false, err
		}
	}
	f, begun, err := finalizationOf(ctx, tx, Holder{Kind: HolderSession, ID: id, Generation: session.Generation})
	if err != nil {
		return ref, false, err
	}
	if !begun && of.SaveRequested {
		// What was asked of the task is asked of its sessions.
		if f, err = open(ctx, tx, Holder{Kind: HolderSession, ID: id, Generation: session.Generation},
			[]teardown.RetryRequest{{SaveChanges: true, RequestedBy: of.RequestedBy}}); err != nil {
			return ref, false, err
		}
	}
	ref = teardown.TaskSessionRef{SessionID: id, Generation: session.Generation}
	if f.Round > 1 && f.ParkedAt == nil {
		ref.RetriedRound = f.Round
	}
	return ref, f.FinishedAt == nil, nil
}

// retrySessions begins a new round of each parked session of the task, whose row
// is locked.
func retrySessions(ctx context.Context, tx queries, taskID string, o RetryOptions) error {
	var ids []string
	if err := tx.all(ctx, &ids, "SELECT s.id"+unfinishedOfTask+" AND s.terminated_at IS NOT NULL AND f.parked_at IS NOT NULL ORDER BY s.id", taskID); err != nil {
		return err
	}
	for _, id := range ids {
		session, found, err := lockSession(ctx, tx, id)
		if err != nil {
			return err
		}
		if !found || session.TerminatedAt == nil {
			continue
		}
		f, begun, err := finalizationOf(ctx, tx, Holder{Kind: HolderSession, ID: id, Generation: session.Generation})
		if err != nil {
			return err
		}
		if !begun || f.ParkedAt == nil || f.FinishedAt != nil {
			continue
		}
		// That a runtime is gone is said of one session, not of all of a task.
		if _, err := nextRound(ctx, tx, f, RetryOptions{SaveChanges: o.SaveChanges, By: o.By}); err != nil {
			return err
		}
	}
	return nil
}

// unfinishedSessions counts the sessions of the task that are not finalized.
func unfinishedSessions(ctx context.Context, q queries, taskID string) (open int, err error) {
	if taskID == "" {
		return 0, nil
	}
	_, err = q.one(ctx, &open, "SELECT COUNT(*)"+unfinishedOfTask, taskID)
	return open, err
}

// addSessionResults lists the task's sessions in its result.
func addSessionResults(ctx context.Context, q queries, result *teardown.Result) (err error) {
	if result.Sessions, err = sessionResults(ctx, q, result.TaskID); err != nil {
		return err
	}
	if total := len(result.Sessions); total > teardown.MaxListed {
		result.SessionsTotal, result.Sessions = total, result.Sessions[:teardown.MaxListed]
	}
	return nil
}

func sessionResults(ctx context.Context, q queries, taskID string) ([]teardown.SessionResult, error) {
	var rows []struct {
		ID         string           `db:"id"`
		Generation int64            `db:"generation"`
		Outcome    teardown.Outcome `db:"outcome"`
		Reason     string           `db:"parked_reason"`
		Code       teardown.Code    `db:"failure_code"`
		Message    string           `db:"failure_message"`
	}
	if err := q.all(ctx, &rows, `SELECT s.id, s.generation, COALESCE(f.outcome, '') AS outcome, COALESCE(f.parked_reason, '') AS parked_reason,
			COALESCE(f.failure_code, '') AS failure_code, COALESCE(f.failure_message, '') AS failure_message
		FROM sessions s LEFT JOIN finalizations f ON f.holder_kind = 'session' AND f.holder_id = s.id AND f.generation = s.generation
		WHERE s.task_id = ? ORDER BY s.id`, taskID); err != nil {
		return nil, err
	}
	var results []teardown.SessionResult
	for _, r := range rows {
		results = append(results, teardown.SessionResult{SessionID: r.ID, Generation: r.Generation, Outcome: r.Outcome,
			ParkedReason: r.Reason, Failure: teardown.Failure{Code: r.Code, Message: r.Message}})
	}
	return results, nil
}
