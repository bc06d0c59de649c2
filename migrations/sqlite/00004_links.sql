-- +goose Up

-- The pull requests and issues that a session works on, as a forge knows them.
CREATE TABLE session_links (
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    kind       TEXT NOT NULL CHECK (kind IN ('pull_request', 'issue')),
    repository TEXT NOT NULL, -- owner/name in lower case
    number     INTEGER NOT NULL,
    closed_at  TIMESTAMP,
    -- Of the newest event about it, by the forge's clock: events may arrive late.
    seen_at    TIMESTAMP,
    PRIMARY KEY (session_id, kind, repository, number)
);
CREATE INDEX session_links_by_target ON session_links (repository, kind, number);

-- What the repository of a worktree calls its remotes: host/owner/name in lower case.
CREATE TABLE worktree_remotes (
    worktree_id TEXT NOT NULL REFERENCES worktrees (id) ON DELETE CASCADE,
    remote      TEXT NOT NULL,
    PRIMARY KEY (worktree_id, remote)
);
CREATE INDEX worktree_remotes_by_remote ON worktree_remotes (remote);

-- Deliveries that were taken up, so that none is taken up twice. The digest is
-- that of the body, which is what a signature vouches for.
CREATE TABLE webhook_deliveries (
    digest       TEXT NOT NULL PRIMARY KEY,
    id           TEXT NOT NULL,
    event        TEXT NOT NULL,
    received_at  TIMESTAMP NOT NULL,
    received_day INTEGER NOT NULL -- since the epoch
);
CREATE INDEX webhook_deliveries_by_id ON webhook_deliveries (id);
CREATE INDEX webhook_deliveries_by_day ON webhook_deliveries (received_day);

-- A program that sets the fact by itself need not say what it is.
-- +goose StatementBegin
CREATE TRIGGER sessions_inserted_without_source AFTER INSERT ON sessions
    WHEN NEW.terminated_at IS NOT NULL AND NEW.termination_source = ''
BEGIN
    UPDATE sessions SET termination_source = 'sql' WHERE id = NEW.id;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER sessions_terminated_without_source AFTER UPDATE OF terminated_at ON sessions
    WHEN OLD.terminated_at IS NULL AND NEW.terminated_at IS NOT NULL AND NEW.termination_source = ''
BEGIN
    UPDATE sessions SET termination_source = 'sql' WHERE id = NEW.id;
END;
-- +goose StatementEnd
