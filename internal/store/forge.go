package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"unwind/teardown"
)

// Link is a pull request or an issue that a session works on.
type Link struct {
	SessionID  string     `db:"session_id"`
	Kind       string     `db:"kind"`       // of teardown's
	Repository string     `db:"repository"` // owner/name in lower case
	Number     int64      `db:"number"`
	ClosedAt   *time.Time `db:"closed_at"` // nil while it is open, as far as it is known
	SeenAt     *time.Time `db:"seen_at"`
}

// LinksOf are the links of a manifest, for NewSession.
func LinksOf(links []teardown.Link) []Link {
	of := make([]Link, len(links))
	for i, link := range links {
		of[i] = Link{Kind: link.Kind, Repository: link.Repository, Number: link.Number}
	}
	return of
}

const linkColumns = "session_id, kind, repository, number, closed_at, seen_at"

// ForgeEvent says that a pull request or an issue is open or closed.
type ForgeEvent struct {
	// DeliveryID is the forge's, Digest that of the body: either of them is taken
	// up once.
	DeliveryID, Digest, Event string

	Kind       string
	Repository string // owner/name
	Number     int64
	// HeadRemote and Branch are where a pull request comes from, as
	// host/owner/name; empty if it is not known, or for an issue.
	HeadRemote, Branch string
	Closed             bool
	Source             string    // of the termination, if Closed
	At                 time.Time // by the forge's clock
}

// ForgeOutcome is what an event came to.
type ForgeOutcome struct {
	// Replayed: it was taken up before, and nothing was done.
	Replayed bool
	Sessions []ForgeSession // those that it is about, by id
}

// ForgeSession is one session that an event is about.
type ForgeSession struct {
	ID string
	// Terminated: by this event.
	Terminated bool
	// Open is a pull request that keeps it, as owner/name#number.
	Open string
}

// ObserveForge takes up one event in one transaction: it notes which of the
// session's pull requests and issues are open, and terminates a live session
// whose pull request or issue was closed unless another pull request of it is
// open. A session is found by its links, and by a worktree that it holds on the
// pull request's branch. Again is a no-op, also for a session that was restored
// meanwhile; what the forge saw before something newer changes nothing.
func (s *Store) ObserveForge(ctx context.Context, e ForgeEvent) (outcome ForgeOutcome, err error) {
	e.Repository, e.HeadRemote = strings.ToLower(e.Repository), strings.ToLower(e.HeadRemote)
	err = s.write(ctx, func(tx queries) error {
		outcome = ForgeOutcome{}
		isNew, err := takeUp(ctx, tx, e)
		if err != nil {
			return err
		}
		if outcome.Replayed = !isNew; outcome.Replayed {
			return nil
		}
		ids, err := concerned(ctx, tx, e)
		if err != nil {
			return err
		}
		for _, id := range ids {
			session, found, err := observeFor(ctx, tx, id, e)
			if err != nil {
				return err
			}
			if found {
				outcome.Sessions = append(outcome.Sessions, session)
			}
		}
		return nil
	})
	return outcome, err
}

// takeUp records a delivery; false if it was recorded before.
func takeUp(ctx context.Context, tx queries, e ForgeEvent) (bool, error) {
	var known string
	if found, err := tx.one(ctx, &known, "SELECT digest FROM webhook_deliveries WHERE id = ?", e.DeliveryID); err != nil || found {
		return false, err
	}
	at := now()
	rows, err := tx.exec(ctx, `INSERT INTO webhook_deliveries (digest, id, event, received_at, received_day) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (digest) DO NOTHING`, e.Digest, readable(e.DeliveryID, maxText), readable(e.Event, maxText), at, day(at))
	return rows == 1, err
}

func day(at time.Time) int64 { return at.Unix() / int64(24*time.Hour/time.Second) }

// concerned lists the sessions that an event is about, in the order in which
// their rows are locked.
func concerned(ctx context.Context, tx queries, e ForgeEvent) ([]string, error) {
	var ids []string
	if err := tx.all(ctx, &ids, "SELECT session_id FROM session_links WHERE kind = ? AND repository = ? AND number = ?",
		e.Kind, e.Repository, e.Number); err != nil {
		return nil, err
	}
	if e.HeadRemote != "" && e.Branch != "" {
		var onBranch []string
		if err := tx.all(ctx, &onBranch, `SELECT DISTINCT s.id
			FROM worktree_remotes r JOIN worktrees w ON w.id = r.worktree_id
				JOIN leases l ON l.worktree_id = w.id AND l.holder_kind = 'session' AND l.released_at IS NULL
				JOIN sessions s ON s.id = l.holder_id AND s.generation = l.generation
			WHERE r.remote = ? AND w.branch = ? AND w.state <> 'removed' AND s.terminated_at IS NULL`, e.HeadRemote, e.Branch); err != nil {
			return nil, err
		}
		ids = append(ids, onBranch...)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

func observeFor(ctx context.Context, tx queries, id string, e ForgeEvent) (ForgeSession, bool, error) {
	session, found, err := lockSession(ctx, tx, id)
	if err != nil || !found {
		return ForgeSession{}, false, err
	}
	about := ForgeSession{ID: id}
	news, err := noteLink(ctx, tx, id, e)
	if err != nil || !news || !e.Closed || session.TerminatedAt != nil {
		return about, true, err
	}
	var open Link
	found, err = tx.one(ctx, &open, "SELECT "+linkColumns+` FROM session_links
		WHERE session_id = ? AND kind = 'pull_request' AND closed_at IS NULL ORDER BY repository, number LIMIT 1`, id)
	if err != nil {
		return about, true, err
	}
	if found {
		about.Open = fmt.Sprintf("%s#%d", open.Repository, open.Number)
		return about, true, nil
	}
	about.Terminated = true
	_, err = setTerminated(ctx, tx, session, e.Source)
	return about, true, err
}

// noteLink writes what the event says of one link; false if something newer is
// written there.
func noteLink(ctx context.Context, tx queries, session string, e ForgeEvent) (bool, error) {
	var link Link
	found, err := tx.one(ctx, &link, "SELECT "+linkColumns+` FROM session_links
		WHERE session_id = ? AND kind = ? AND repository = ? AND number = ?`, session, e.Kind, e.Repository, e.Number)
	if err != nil || found && link.SeenAt != nil && e.At.Before(*link.SeenAt) {
		return false, err
	}
	var closed *time.Time
	if e.Closed {
		at := now()
		closed = &at
	}
	_, err = tx.exec(ctx, `INSERT INTO session_links (session_id, kind, repository, number, closed_at, seen_at) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (session_id, kind, repository, number) DO UPDATE SET closed_at = excluded.closed_at, seen_at = excluded.seen_at`,
		session, e.Kind, e.Repository, e.Number, closed, e.At)
	return err == nil, err
}

// ForgetDeliveries drops the record of deliveries that are older than so many
// days; forges send nothing that old again. It answers how many.
func (s *Store) ForgetDeliveries(ctx context.Context, days int64) (forgotten int64, err error) {
	err = s.write(ctx, func(tx queries) error {
		forgotten, err = tx.exec(ctx, "DELETE FROM webhook_deliveries WHERE received_day < ?", day(now())-days)
		return err
	})
	return forgotten, err
}
