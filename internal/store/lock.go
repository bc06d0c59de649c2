package store

import (
	"context"
	"slices"
)

// The columns of each kind of row. Texts that may be NULL are read as "".
const (
	taskColumns    = "id, generation, state, terminated_at, created_at, updated_at"
	sessionColumns = "id, host, COALESCE(task_id, '') AS task_id, generation, terminated_at, termination_source, " +
		"held_until, held_by, manifest_hash, created_at, updated_at"
	runtimeColumns = "id, session_id, generation, kind, role, handle, state, snapshot_path, released_at, released_how, " +
		"outcome, code, details, message"
	worktreeColumns = "id, host, repository, path, branch, COALESCE(parent_id, '') AS parent_id, nonce, state, " +
		"remover_kind, remover_id, remover_generation, quarantine_path, condemned_at, updated_at"
	leaseColumns = "worktree_id, holder_kind, holder_id, generation, acquired_at, released_at, disposition, round, " +
		"code, details, bytes, saved_ref"
	resourceColumns     = "id, session_id, generation, kind, path, cleared_at"
	finalizationColumns = "holder_kind, holder_id, generation, round, save_requested, requested_by, runtime_confirmed_gone, workflow_id, started_at, " +
		"runtime_released_at, resources_cleared_at, attempt_count, attempt_step, attempt_number, last_attempt_at, next_attempt_at, " +
		"failure_code, failure_message, parked_at, parked_reason, outcome, finished_at"
)

// lockTask, lockSession and lockWorktrees hold rows until the transaction ends.
// An update that changes nothing is the lock that both databases have.
func lockTask(ctx context.Context, tx queries, id string) (t Task, found bool, err error) {
	found, err = tx.one(ctx, &t, "UPDATE tasks SET id = id WHERE id = ? RETURNING "+taskColumns, id)
	return t, found, err
}

func lockSession(ctx context.Context, tx queries, id string) (s Session, found bool, err error) {
	found, err = tx.one(ctx, &s, "UPDATE sessions SET id = id WHERE id = ? RETURNING "+sessionColumns, id)
	return s, found, err
}

// lockWorktrees locks one by one in the order of the ids: one statement for all
// would lock in an order of the database's choosing, and two of them deadlock.
// Ids without a row are left out.
func lockWorktrees(ctx context.Context, tx queries, ids ...string) (map[string]Worktree, error) {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	locked := make(map[string]Worktree, len(ids))
	for _, id := range slices.Compact(ids) {
		var w Worktree
		found, err := tx.one(ctx, &w, "UPDATE worktrees SET id = id WHERE id = ? RETURNING "+worktreeColumns, id)
		if err != nil {
			return nil, err
		}
		if found {
			locked[id] = w
		}
	}
	return locked, nil
}
