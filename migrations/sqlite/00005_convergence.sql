-- +goose Up

-- SQLite tells nobody of a change. Whoever terminates a session, with whatever
-- program, leaves a line here, so that workers need not look at every session to
-- find it. Only the newest lines are kept: who has missed some looks at all.
CREATE TABLE terminations (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL
);

-- +goose StatementBegin
CREATE TRIGGER sessions_inserted_terminated AFTER INSERT ON sessions
    WHEN NEW.terminated_at IS NOT NULL
BEGIN
    INSERT INTO terminations (session_id) VALUES (NEW.id);
    DELETE FROM terminations WHERE seq <= (SELECT MAX(seq) FROM terminations) - 1000;
END;
-- +goose StatementEnd

-- Not "UPDATE OF terminated_at": another trigger may be what sets it.
-- +goose StatementBegin
CREATE TRIGGER sessions_updated_terminated AFTER UPDATE ON sessions
    WHEN OLD.terminated_at IS NULL AND NEW.terminated_at IS NOT NULL
BEGIN
    INSERT INTO terminations (session_id) VALUES (NEW.id);
    DELETE FROM terminations WHERE seq <= (SELECT MAX(seq) FROM terminations) - 1000;
END;
-- +goose StatementEnd

-- What is held is little beside what was once held.
CREATE INDEX leases_held ON leases (holder_id) WHERE released_at IS NULL;

-- What is under way or parked is little beside what is finished.
CREATE INDEX finalizations_open ON finalizations (holder_kind, holder_id) WHERE finished_at IS NULL;
