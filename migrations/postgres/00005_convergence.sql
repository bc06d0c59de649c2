-- +goose Up

-- What is held is little beside what was once held.
CREATE INDEX leases_held ON leases (holder_id) WHERE released_at IS NULL;

-- What is under way or parked is little beside what is finished.
CREATE INDEX finalizations_open ON finalizations (holder_kind, holder_id) WHERE finished_at IS NULL;
