package store

import (
	"context"

	"unwind/teardown"
)

// SeeHost records that the host's worker is there; LastSeen zero means now.
func (s *Store) SeeHost(ctx context.Context, host Host) error {
	if host.LastSeen.IsZero() {
		host.LastSeen = now()
	}
	return s.write(ctx, func(tx queries) error {
		_, err := tx.exec(ctx, `INSERT INTO hosts (id, name, version, last_seen) VALUES (?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET name = excluded.name, version = excluded.version, last_seen = excluded.last_seen`,
			host.ID, readable(host.Name, maxText), readable(host.Version, maxText), host.LastSeen)
		return err
	})
}

// Host returns what is known of a host.
func (s *Store) Host(ctx context.Context, id string) (host Host, found bool, err error) {
	err = s.read(ctx, func(q queries) error {
		found, err = q.one(ctx, &host, "SELECT id, name, version, last_seen FROM hosts WHERE id = ?", id)
		return err
	})
	return host, found, err
}

// Hosts lists all hosts that were ever seen, by id.
func (s *Store) Hosts(ctx context.Context) ([]Host, error) {
	var hosts []Host
	err := s.read(ctx, func(q queries) error {
		hosts = nil
		return q.all(ctx, &hosts, "SELECT id, name, version, last_seen FROM hosts ORDER BY id")
	})
	return hosts, err
}

// HostLoad counts the sessions of one host.
type HostLoad struct {
	Host string `db:"host"`
	// Live sessions; and of the terminated ones that are not finished: those that
	// somebody holds, those under way or to be started, those parked because the
	// host did not answer, and those parked for another reason.
	Live        int `db:"live"`
	Held        int `db:"held"`
	UnderWay    int `db:"under_way"`
	Unreachable int `db:"unreachable"`
	Parked      int `db:"parked"`
}

// HostLoads counts what waits for each host that has sessions, by its id,
// whether or not a worker of it was ever seen. A hold that has ended is counted
// as one until somebody lifts it.
func (s *Store) HostLoads(ctx context.Context) (loads []HostLoad, err error) {
	err = s.read(ctx, func(q queries) error {
		loads = nil
		return q.all(ctx, &loads, `SELECT host, COUNT(CASE WHEN state = 'live' THEN 1 END) AS live,
				COUNT(CASE WHEN state = 'held' THEN 1 END) AS held,
				COUNT(CASE WHEN state = 'under_way' THEN 1 END) AS under_way,
				COUNT(CASE WHEN state = 'unreachable' THEN 1 END) AS unreachable,
				COUNT(CASE WHEN state = 'parked' THEN 1 END) AS parked
			FROM (SELECT s.host, CASE
					WHEN s.terminated_at IS NULL THEN 'live'
					WHEN f.finished_at IS NOT NULL THEN 'finished'
					WHEN s.held_by <> '' OR s.held_until IS NOT NULL THEN 'held'
					WHEN f.parked_at IS NULL THEN 'under_way'
					WHEN f.parked_reason = ? THEN 'unreachable'
					ELSE 'parked' END AS state
				FROM sessions s LEFT JOIN finalizations f
					ON f.holder_kind = 'session' AND f.holder_id = s.id AND f.generation = s.generation) counted
			GROUP BY host ORDER BY host`, teardown.ReasonHostUnreachable)
	})
	return loads, err
}
