package store

import (
	"context"
	"time"

	"github.com/lib/pq"
)

// Terminations tells of sessions that are terminated, by id, whoever does it. An
// empty id says that the connection was lost for a while and something may have
// been missed. It makes the usual case fast and is nothing to rely on; with
// SQLite it tells nothing. The channel is closed when ctx is over.
func (s *Store) Terminations(ctx context.Context) <-chan string {
	told := make(chan string)
	if s.at.dialect == SQLite {
		context.AfterFunc(ctx, func() { close(told) })
		return told
	}
	listener := pq.NewListener(s.at.dsn, time.Second, time.Minute, nil)
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() {
		// It waits until there is a connection, and errs only if it was closed.
		_ = listener.Listen("unwind_terminated")
	}()
	go relay(ctx, listener, told)
	return told
}

func relay(ctx context.Context, listener *pq.Listener, told chan<- string) {
	defer close(told)
	// A connection that is silently gone is found out only by using it.
	alive := time.NewTicker(time.Minute)
	defer alive.Stop()
	for {
		id := ""
		select {
		case <-ctx.Done():
			return
		case <-alive.C:
			go func() { _ = listener.Ping() }()
			continue
		case notification, open := <-listener.Notify:
			if !open {
				return
			}
			if notification != nil { // nil: connected again
				id = notification.Extra
			}
		}
		select {
		case <-ctx.Done():
			return
		case told <- id:
		}
	}
}
