package store

import "context"

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
