-- +goose Up

-- Ids and paths sort by their bytes, as in Go: rows are locked in that order,
-- and what lies below a directory is a range of paths.
-- Hence the collation. Times are written and read by Go alone.

CREATE TABLE hosts (
    id        TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name      TEXT NOT NULL DEFAULT '',
    version   TEXT NOT NULL DEFAULT '',
    last_seen TIMESTAMPTZ NOT NULL
);

CREATE TABLE tasks (
    id            TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    generation    BIGINT NOT NULL DEFAULT 1,
    state         TEXT NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'archived', 'deleted')),
    terminated_at TIMESTAMPTZ,
    created_at    TIMESTAMPTZ NOT NULL,
    updated_at    TIMESTAMPTZ NOT NULL
);

CREATE TABLE sessions (
    id                 TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    host               TEXT COLLATE "C" NOT NULL,
    task_id            TEXT COLLATE "C" REFERENCES tasks (id),
    generation         BIGINT NOT NULL DEFAULT 1,
    terminated_at      TIMESTAMPTZ,
    termination_source TEXT NOT NULL DEFAULT '',
    held_until         TIMESTAMPTZ,
    held_by            TEXT NOT NULL DEFAULT '',
    manifest_hash      TEXT NOT NULL DEFAULT '',
    created_at         TIMESTAMPTZ NOT NULL,
    updated_at         TIMESTAMPTZ NOT NULL
);
CREATE INDEX sessions_by_task ON sessions (task_id);
-- Most sessions of an old installation are finished; this keeps the live ones at hand.
CREATE INDEX sessions_live ON sessions (host, id) WHERE terminated_at IS NULL;

CREATE TABLE runtimes (
    id            TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    session_id    TEXT COLLATE "C" NOT NULL REFERENCES sessions (id),
    generation    BIGINT NOT NULL,
    kind          TEXT NOT NULL,
    role          TEXT NOT NULL,
    handle        TEXT NOT NULL DEFAULT '{}',
    state         TEXT NOT NULL CHECK (state IN ('creating', 'running', 'released')),
    snapshot_path TEXT NOT NULL DEFAULT '',
    released_at   TIMESTAMPTZ,
    released_how  TEXT NOT NULL DEFAULT '',
    outcome       TEXT NOT NULL DEFAULT 'pending',
    code          TEXT NOT NULL DEFAULT '',
    details       TEXT NOT NULL DEFAULT '[]',
    message       TEXT NOT NULL DEFAULT ''
);
CREATE INDEX runtimes_by_session ON runtimes (session_id);

CREATE TABLE worktrees (
    id                 TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    host               TEXT COLLATE "C" NOT NULL,
    repository         TEXT NOT NULL,
    path               TEXT COLLATE "C" NOT NULL,
    branch             TEXT NOT NULL DEFAULT '',
    parent_id          TEXT COLLATE "C" REFERENCES worktrees (id),
    nonce              TEXT NOT NULL DEFAULT '',
    state              TEXT NOT NULL CHECK (state IN ('creating', 'active', 'deleting', 'preserved', 'removed')),
    remover_kind       TEXT NOT NULL DEFAULT '',
    remover_id         TEXT COLLATE "C" NOT NULL DEFAULT '',
    remover_generation BIGINT NOT NULL DEFAULT 0,
    quarantine_path    TEXT NOT NULL DEFAULT '',
    condemned_at       TIMESTAMPTZ,
    created_at         TIMESTAMPTZ NOT NULL,
    updated_at         TIMESTAMPTZ NOT NULL
);
-- A path may be used again once its worktree was removed.
CREATE UNIQUE INDEX worktrees_at_path ON worktrees (host, path) WHERE state <> 'removed';
CREATE INDEX worktrees_by_parent ON worktrees (parent_id);
CREATE INDEX worktrees_by_remover ON worktrees (remover_id, remover_kind, remover_generation);

-- No foreign key to the holder: the work order outlives the row that caused it.
CREATE TABLE leases (
    worktree_id TEXT COLLATE "C" NOT NULL REFERENCES worktrees (id),
    holder_kind TEXT NOT NULL CHECK (holder_kind IN ('session', 'task')),
    holder_id   TEXT COLLATE "C" NOT NULL,
    generation  BIGINT NOT NULL,
    acquired_at TIMESTAMPTZ NOT NULL,
    released_at TIMESTAMPTZ,
    disposition TEXT NOT NULL DEFAULT 'pending',
    -- The round that decided the disposition: a release that is late must not
    -- take up again what its own round has decided since.
    round       BIGINT NOT NULL DEFAULT 0,
    code        TEXT NOT NULL DEFAULT '',
    details     TEXT NOT NULL DEFAULT '[]',
    bytes       BIGINT NOT NULL DEFAULT 0,
    saved_ref   TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (worktree_id, holder_kind, holder_id, generation)
);
CREATE INDEX leases_by_holder ON leases (holder_id, holder_kind, generation);

CREATE TABLE resources (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    session_id TEXT COLLATE "C" NOT NULL REFERENCES sessions (id),
    generation BIGINT NOT NULL,
    kind       TEXT NOT NULL,
    path       TEXT NOT NULL,
    cleared_at TIMESTAMPTZ
);
CREATE INDEX resources_by_session ON resources (session_id);

-- No foreign key to the holder, as for leases.
CREATE TABLE finalizations (
    holder_kind          TEXT NOT NULL CHECK (holder_kind IN ('session', 'task')),
    holder_id            TEXT COLLATE "C" NOT NULL,
    generation           BIGINT NOT NULL,
    round                BIGINT NOT NULL DEFAULT 1,
    save_requested       BOOLEAN NOT NULL DEFAULT FALSE,
    requested_by         TEXT NOT NULL DEFAULT '',
    runtime_confirmed_gone BOOLEAN NOT NULL DEFAULT FALSE,
    workflow_id          TEXT NOT NULL DEFAULT '',
    started_at           TIMESTAMPTZ,
    runtime_released_at  TIMESTAMPTZ,
    resources_cleared_at TIMESTAMPTZ,
    attempt_count        BIGINT NOT NULL DEFAULT 0,
    attempt_step         TEXT NOT NULL DEFAULT '',
    attempt_number       BIGINT NOT NULL DEFAULT 0,
    last_attempt_at      TIMESTAMPTZ,
    next_attempt_at      TIMESTAMPTZ,
    failure_code         TEXT NOT NULL DEFAULT '',
    failure_message      TEXT NOT NULL DEFAULT '',
    parked_at            TIMESTAMPTZ,
    parked_reason        TEXT NOT NULL DEFAULT '',
    outcome              TEXT NOT NULL DEFAULT '',
    finished_at          TIMESTAMPTZ,
    PRIMARY KEY (holder_kind, holder_id, generation)
);

-- +goose StatementBegin
CREATE FUNCTION unwind_notify_terminated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('unwind_terminated', NEW.id);
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER sessions_inserted_terminated AFTER INSERT ON sessions
    FOR EACH ROW WHEN (NEW.terminated_at IS NOT NULL)
    EXECUTE FUNCTION unwind_notify_terminated();
-- Not "UPDATE OF terminated_at": another trigger may be what sets it.
CREATE TRIGGER sessions_updated_terminated AFTER UPDATE ON sessions
    FOR EACH ROW WHEN (OLD.terminated_at IS NULL AND NEW.terminated_at IS NOT NULL)
    EXECUTE FUNCTION unwind_notify_terminated();
