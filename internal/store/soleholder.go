package store

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"unwind/teardown"
)

// soleHolder refuses runtimes that another session has registered and that are
// not released yet: whoever is finalized first would end the other's.
func soleHolder(ctx context.Context, tx queries, host, sessionID string, handles []teardown.Runtime) error {
	if len(handles) == 0 {
		return nil
	}
	if err := lockRuntimes(ctx, tx, host); err != nil {
		return err
	}
	// As text: what cannot be read is nobody's to end, and no reason to register
	// nothing any more.
	var others []struct {
		SessionID string `db:"session_id"`
		Handle    string `db:"handle"`
	}
	if err := tx.all(ctx, &others, `SELECT r.session_id, r.handle FROM runtimes r JOIN sessions s ON s.id = r.session_id
		WHERE s.host = ? AND s.id <> ? AND r.state = 'running' ORDER BY r.session_id`, host, sessionID); err != nil {
		return err
	}
	for _, other := range others {
		var theirs teardown.Runtime
		if json.Unmarshal([]byte(other.Handle), &theirs) != nil {
			continue
		}
		if slices.ContainsFunc(handles, func(mine teardown.Runtime) bool { return sameRuntime(mine, theirs) }) {
			return conflict("The %s is held by session %s already, whose end would be the end of it; finalize that session first, or register another runtime",
				nameOfRuntime(theirs), other.SessionID)
		}
	}
	return nil
}

// lockRuntimes lets one transaction at a time register runtimes of a host: two
// at once would not see each other. SQLite has one writer anyway.
func lockRuntimes(ctx context.Context, tx queries, host string) error {
	if tx.on.DriverName() != string(Postgres) {
		return nil
	}
	_, err := tx.exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('unwind runtimes of ' || ?, 0))", host)
	return err
}

// sameRuntime compares what is pinned; names prove nothing. A runtime without
// an identity, or one that was gone when it was registered, is nobody's.
func sameRuntime(a, b teardown.Runtime) bool {
	if a.Kind != b.Kind || a.Gone || b.Gone || a.Identity == nil || b.Identity == nil || a.Identity.BootID != b.Identity.BootID {
		return false
	}
	if a.Kind == teardown.KindProcess {
		return a.PID != 0 && a.PID == b.PID && a.StartTime == b.StartTime
	}
	return a.Identity.SessionID != "" && a.Identity.SessionID == b.Identity.SessionID &&
		a.Identity.ServerPID == b.Identity.ServerPID && a.Identity.ServerStartTime == b.Identity.ServerStartTime
}

func nameOfRuntime(rt teardown.Runtime) string {
	if rt.Kind == teardown.KindProcess {
		return "process " + strconv.Itoa(rt.PID)
	}
	return rt.Kind + " session " + strconv.Quote(rt.Session) + " at " + rt.Socket
}
