// Package reconcile makes the world follow the facts: it starts the
// finalization of what was terminated and wakes what waited for this host. It
// destroys nothing, so it may run anywhere, at any time and several times at
// once.
package reconcile

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"unwind/internal/store"
	"unwind/internal/temporalclient"
	"unwind/teardown"
)

const (
	pageSize = 100
	// startsPerSecond spares a small server when a thousand sessions end at once.
	startsPerSecond = 50
	// callLimit bounds one call to Temporal.
	callLimit = 5 * time.Second
	// giveUpAfter calls in a row that nobody answered, Temporal or the database is
	// away and the part of the pass ends; fewer may be one shard's trouble.
	giveUpAfter = 3
)

// Deps is what a pass needs.
type Deps struct {
	Store    *store.Store
	Temporal *temporalclient.Connection
	// TaskQueue is the queue of the workflows.
	TaskQueue string
	// Host is this machine; its LastSeen is set by the pass.
	Host store.Host
	// Serving: the caller is a worker that takes this host's steps. Only then is
	// the host recorded as seen, for one that was seen counts as busy, not away.
	Serving bool
	Logger  *slog.Logger
}

// Summary counts what one pass did.
type Summary struct {
	Host string `json:"host"`
	// Started finalizations had no run; those under way already had one.
	Started  int `json:"started"`
	UnderWay int `json:"under_way"`
	// Woken were parked because this host did not answer, or waited for a retry
	// that was recorded and never reached their run.
	Woken  int `json:"woken"`
	Failed int `json:"failed"`
	// Failures lists the first teardown.MaxDetails of those that failed. An empty
	// SessionID stands for a whole part of the pass.
	Failures []Failure `json:"failures,omitempty"`
}

// Failure is one thing that a pass tried in vain.
type Failure struct {
	SessionID string        `json:"session_id,omitempty"`
	Doing     string        `json:"doing"`
	Code      teardown.Code `json:"code"`
	Message   string        `json:"message"`
}

// Once does one pass: it records that the host's worker was seen, starts the finalization
// of every terminated session, of any host, that is neither finished, parked nor
// held, and of every closed task, and wakes those that are parked because this host did not answer. A
// retry that was recorded while Temporal was away is handed to its run. A
// failure stops nothing: every part is tried, and the first error is returned
// beside the counts. It is a *teardown.Error.
func Once(ctx context.Context, d Deps) (Summary, error) {
	p := &pass{
		Deps:   d,
		done:   Summary{Host: d.Host.ID},
		starts: rate.NewLimiter(startsPerSecond, startsPerSecond),
	}
	if d.Serving {
		p.see(ctx)
	}
	// Waking first: what was parked for this host has waited longest.
	p.each(ctx, "list what waits for this host", p.unreachable, "wake", p.wake)
	p.each(ctx, "list what is to be finalized", p.due, "start", p.start)
	p.tasks(ctx)
	return p.done, p.first
}

// pass is one call of Once.
type pass struct {
	Deps
	done   Summary
	starts *rate.Limiter
	first  error
	// silent counts the runs in a row that did not answer what they are doing.
	silent int
}

func (p *pass) see(ctx context.Context) {
	host := p.Host
	host.LastSeen = time.Time{}
	if err := p.Store.SeeHost(ctx, host); err != nil {
		p.failed("record that this host was seen", "", err)
	}
}

type (
	list func(ctx context.Context, after string) ([]store.Due, error)
	act  func(ctx context.Context, due store.Due) error
)

func (p *pass) due(ctx context.Context, after string) ([]store.Due, error) {
	return p.Store.Due(ctx, after, pageSize, time.Now())
}

func (p *pass) unreachable(ctx context.Context, after string) ([]store.Due, error) {
	return p.Store.Unreachable(ctx, p.Host.ID, after, pageSize)
}

// each acts on all that is listed, page by page.
func (p *pass) each(ctx context.Context, listing string, next list, doing string, do act) {
	unanswered := 0
	for after := ""; ; {
		page, err := next(ctx, after)
		if err != nil {
			p.failed(listing, "", err)
			return
		}
		for _, due := range page {
			after = due.SessionID
			if err := p.starts.Wait(ctx); err != nil {
				p.failed(doing, "", err)
				return
			}
			err := p.within(ctx, due, do)
			if err == nil {
				unanswered = 0
				continue
			}
			p.failed(doing, due.SessionID, err)
			if !away(err) {
				unanswered = 0
			} else if unanswered++; unanswered == giveUpAfter {
				return
			}
		}
		if len(page) < pageSize {
			return
		}
		// A long pass must not look like an absent host.
		p.see(ctx)
	}
}

func (p *pass) within(ctx context.Context, due store.Due, do act) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return do(ctx, due)
}

// away: nobody answered, so that the next call would fare no better.
func away(err error) bool {
	if code := teardown.CodeOf(err); code != "" {
		return code == teardown.CodeDatabaseUnavailable
	}
	return temporalclient.Away(err)
}

func (p *pass) failed(doing, sessionID string, err error) {
	err = p.Temporal.Explain(err)
	if p.first == nil {
		p.first = err
	}
	p.done.Failed++
	if len(p.done.Failures) < teardown.MaxDetails {
		p.done.Failures = append(p.done.Failures, Failure{SessionID: sessionID, Doing: doing, Code: teardown.CodeOf(err), Message: err.Error()})
	}
}
