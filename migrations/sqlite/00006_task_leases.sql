-- +goose Up

-- What a session of an open task holds, its task holds, too. Sessions that were
-- registered before tasks held worktrees have no such lease yet.
INSERT INTO leases (worktree_id, holder_kind, holder_id, generation, acquired_at)
SELECT l.worktree_id, 'task', t.id, t.generation, MIN(l.acquired_at)
FROM leases l
    JOIN sessions s ON s.id = l.holder_id
    JOIN tasks t ON t.id = s.task_id
    JOIN worktrees w ON w.id = l.worktree_id
WHERE l.holder_kind = 'session' AND l.released_at IS NULL AND w.state = 'active'
    AND t.state = 'active' AND t.terminated_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM leases known WHERE known.worktree_id = l.worktree_id
        AND known.holder_kind = 'task' AND known.holder_id = t.id AND known.generation = t.generation)
GROUP BY l.worktree_id, t.id, t.generation;
