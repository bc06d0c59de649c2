package store

import (
	"context"
	"time"

	"github.com/lib/pq"
)

// changeInterval is how often a SQLite database is asked for terminations: one
// look at the end of a small table.
const changeInterval = 250 * time.Millisecond

// Terminations tells of sessions that are terminated, by id, whoever does it. An
// empty id says that something may have been missed: the connection was lost for
// a while, or there was more than is kept. It makes the usual case fast and is
// nothing to rely on. The channel is closed when ctx is over.
func (s *Store) Terminations(ctx context.Context) <-chan string {
	told := make(chan string)
	if s.at.dialect == SQLite {
		last, err := s.lastTermination(ctx)
		go s.follow(ctx, told, last, err != nil)
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

// follow asks SQLite for what came after the line last. With missed set it does
// not know where to begin.
func (s *Store) follow(ctx context.Context, told chan<- string, last int64, missed bool) {
	defer close(told)
	tick := time.NewTicker(changeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if missed {
			var err error
			if last, err = s.lastTermination(ctx); err != nil {
				continue
			}
		}
		ids, newest, gap, err := s.terminationsAfter(ctx, last)
		if err != nil {
			missed = true
			continue
		}
		if missed || gap {
			ids = append([]string{""}, ids...)
		}
		last, missed = newest, false
		for _, id := range ids {
			select {
			case <-ctx.Done():
				return
			case told <- id:
			}
		}
	}
}

func (s *Store) lastTermination(ctx context.Context) (last int64, err error) {
	_, err = queries{s.db}.one(ctx, &last, "SELECT COALESCE(MAX(seq), 0) FROM terminations")
	return last, err
}

// terminationsAfter answers the sessions of the lines after last, and whether
// lines between were dropped.
func (s *Store) terminationsAfter(ctx context.Context, last int64) (ids []string, newest int64, gap bool, err error) {
	var lines []struct {
		Seq       int64  `db:"seq"`
		SessionID string `db:"session_id"`
	}
	err = queries{s.db}.all(ctx, &lines, "SELECT seq, session_id FROM terminations WHERE seq > ? ORDER BY seq", last)
	newest = last
	for _, line := range lines {
		gap = gap || line.Seq != newest+1
		newest = line.Seq
		ids = append(ids, line.SessionID)
	}
	return ids, newest, gap, err
}
