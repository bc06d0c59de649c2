-- +goose Up

-- The turn that a session runs. It counts while its session is live at this
-- generation, so that a termination ends it, whoever recorded that.
CREATE TABLE turns (
    session_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES sessions (id),
    generation BIGINT NOT NULL,
    id         TEXT NOT NULL,
    begun_at   TIMESTAMPTZ NOT NULL,
    begun_by   TEXT NOT NULL DEFAULT ''
);
