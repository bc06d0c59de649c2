package store

import "context"

// Snapshot is a file that holds what a runtime showed before it was ended.
type Snapshot struct {
	RuntimeID string `db:"id"`
	Path      string `db:"snapshot_path"`
	// Finished: the finalization of the runtime's generation is finished, so that
	// nobody has to decide anything any more.
	Finished bool `db:"finished"`
}

// Snapshots lists the files that the facts name on a host, by path.
func (s *Store) Snapshots(ctx context.Context, host string) (snapshots []Snapshot, err error) {
	err = s.read(ctx, func(q queries) error {
		snapshots = nil
		return q.all(ctx, &snapshots, `SELECT r.id, r.snapshot_path, (f.finished_at IS NOT NULL) AS finished
			FROM runtimes r JOIN sessions s ON s.id = r.session_id
			LEFT JOIN finalizations f ON f.holder_kind = 'session' AND f.holder_id = r.session_id AND f.generation = r.generation
			WHERE s.host = ? AND r.snapshot_path <> '' ORDER BY r.snapshot_path, r.id`, host)
	})
	return snapshots, err
}

// ForgetSnapshot takes a file that was removed out of the facts, so that nobody
// is pointed to it.
func (s *Store) ForgetSnapshot(ctx context.Context, host, path string) error {
	return s.write(ctx, func(tx queries) error {
		_, err := tx.exec(ctx, `UPDATE runtimes SET snapshot_path = '' WHERE snapshot_path = ?
			AND session_id IN (SELECT id FROM sessions WHERE host = ?)`, path, host)
		return err
	})
}
