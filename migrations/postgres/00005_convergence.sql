-- +goose Up

-- What is held is little beside what was once held.
CREATE INDEX leases_held ON leases (holder_id) WHERE released_at IS NULL;
