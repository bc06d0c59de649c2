-- +goose Up

-- What is left to do is little beside what was ever done. With these a pass costs
-- what is left, however much there was before.
CREATE INDEX worktrees_left ON worktrees (host, id) WHERE state <> 'removed';
CREATE INDEX runtimes_left ON runtimes (session_id) WHERE released_at IS NULL;
CREATE INDEX resources_left ON resources (session_id) WHERE cleared_at IS NULL;

-- The newest generation that a finalization was begun for. It only narrows down
-- where a pass looks; whether one was begun is what finalizations says.
ALTER TABLE sessions ADD COLUMN begun_generation INTEGER;
UPDATE sessions SET begun_generation = generation WHERE EXISTS (SELECT 1 FROM finalizations f
    WHERE f.holder_kind = 'session' AND f.holder_id = sessions.id AND f.generation = sessions.generation);
CREATE INDEX sessions_never_begun ON sessions (id)
    WHERE terminated_at IS NOT NULL AND (begun_generation IS NULL OR begun_generation <> generation);

-- +goose StatementBegin
CREATE TRIGGER finalizations_inserted AFTER INSERT ON finalizations
    WHEN NEW.holder_kind = 'session'
BEGIN
    UPDATE sessions SET begun_generation = NEW.generation WHERE id = NEW.holder_id AND generation = NEW.generation;
END;
-- +goose StatementEnd

-- A row that somebody deletes or gives to another is begun anew.
-- +goose StatementBegin
CREATE TRIGGER finalizations_deleted AFTER DELETE ON finalizations
    WHEN OLD.holder_kind = 'session'
BEGIN
    UPDATE sessions SET begun_generation = NULL WHERE id = OLD.holder_id AND begun_generation = OLD.generation;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER finalizations_renamed AFTER UPDATE OF holder_kind, holder_id, generation ON finalizations
    WHEN OLD.holder_kind = 'session'
BEGIN
    UPDATE sessions SET begun_generation = NULL WHERE id = OLD.holder_id AND begun_generation = OLD.generation;
END;
-- +goose StatementEnd

-- Why a worktree stays that nobody holds: what the newest look at it found.
ALTER TABLE worktrees ADD COLUMN kept_code TEXT NOT NULL DEFAULT '';
ALTER TABLE worktrees ADD COLUMN kept_details TEXT NOT NULL DEFAULT '[]';
