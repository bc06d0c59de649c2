// Package reconcile makes the world follow the facts: it records the end of
// agents that are gone, starts the finalization of what was terminated, wakes
// what waited without need, and has finished what no finalization will. It
// destroys nothing itself: that is left to workflows, so a pass may run
// anywhere, at any time and several times at once.
package reconcile

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"unwind/internal/lock"
	"unwind/internal/runtime"
	"unwind/internal/store"
	"unwind/internal/temporalclient"
	"unwind/internal/worktree"
	"unwind/teardown"
)

const (
	pageSize = 200
	// DefaultStartsPerSecond spares a small server when a thousand sessions end at
	// once.
	DefaultStartsPerSecond = 50
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

	// Runtimes, Worktrees and Locks are this machine's: agents are looked at, and
	// uncommitted work is saved.
	Runtimes  runtime.Set
	Worktrees *worktree.Engine
	Locks     lock.Dir
	// Policy is what the workflows are started with that finish what no
	// finalization will.
	Policy teardown.Policy
	// StartsPerSecond bounds how many workflows a pass starts or wakes; zero means
	// DefaultStartsPerSecond.
	StartsPerSecond int
	// Window is how many of the runs that a pass has started may be under way at once;
	// zero means DefaultWindow. More than a worker has in hand wait in Temporal's
	// queues, where a session that is terminated meanwhile would come after them all.
	Window int
	// StartFor is about how long a pass goes on to start sessions, zero as long as
	// there are some: what else a pass looks for must not wait for a long backlog.
	// Each of the other parts has a twentieth of it, and the recording of agents that
	// are gone half, lest a long one keep those waiting that are to be started.
	StartFor time.Duration
	// Reached is where the last pass stopped; passes with a bound that share none all
	// begin at the beginning.
	Reached *Reached
}

// Reached is carried from one pass to the next, of which one runs at a time.
type Reached struct {
	// after is, of each part, the id of what it acted on last; without one it begins
	// at the beginning.
	after map[string]string
	// waiting are the sessions that were terminated and had never begun; nil before
	// the first pass.
	waiting map[string]bool
}

// Summary counts what one pass did.
type Summary struct {
	Host string `json:"host"`
	// Started finalizations had no run; those under way already had one.
	Started  int `json:"started"`
	UnderWay int `json:"under_way"`
	// Woken were parked because this host did not answer, kept nothing any more,
	// or waited for a retry that was recorded and never reached their run.
	Woken int `json:"woken"`
	// Alive sessions of this host have an agent that runs; Terminated ones were
	// recorded, because theirs was confirmed gone; of the Unprobed ones it could
	// not be told, so they are left alone.
	Alive      int `json:"alive"`
	Terminated int `json:"terminated"`
	Unprobed   int `json:"unprobed"`
	// Converging counts workflows that were started to finish what no finalization
	// will: worktrees without a holder, what vanished sessions hold, and what is
	// still to be made for unarchived tasks.
	Converging int `json:"converging"`
	// Kept worktrees are held by nobody and were found to hold what could be lost;
	// the notes say what.
	Kept int `json:"kept"`
	// Unclaimed worktrees are registered and were never leased: nobody's to remove.
	Unclaimed int `json:"unclaimed"`
	Failed    int `json:"failed"`
	// More: a part of the pass ended for want of time, and the next one goes on there.
	More bool `json:"more"`
	// Failures and Notes list the first teardown.MaxDetails. A note says what was
	// found and left alone. An empty ID stands for a whole part of the pass.
	Failures []Finding `json:"failures,omitempty"`
	Notes    []Finding `json:"notes,omitempty"`
}

// Finding is one thing that a pass tried in vain, or left alone. One of the ids
// is set, or none.
type Finding struct {
	SessionID  string        `json:"session_id,omitempty"`
	TaskID     string        `json:"task_id,omitempty"`
	WorktreeID string        `json:"worktree_id,omitempty"`
	Doing      string        `json:"doing"`
	Code       teardown.Code `json:"code"`
	Message    string        `json:"message"`
}

// Once does one pass. It records that the host's worker was seen; wakes what is
// parked because this host did not answer, or on worktrees none of which it
// keeps; records as terminated the live sessions of this host whose agent is
// confirmed gone, after saving their uncommitted work, and those whose start was
// cut off and will not go on; has worktrees finished
// that no finalization will finish, and what sessions without a row hold; has the
// worktrees of unarchived tasks made whose run was lost; and starts the
// finalization of every terminated session, of any host, that is neither finished,
// parked nor held, and of every closed task.
//
// A failure stops nothing: every part is tried, and the first error is returned
// beside the counts. It is a *teardown.Error.
func Once(ctx context.Context, d Deps) (Summary, error) {
	p := newPass(d)
	if p.Reached.after == nil {
		p.Reached.after = map[string]string{}
	}
	if d.Serving {
		if err := p.see(ctx); err != nil {
			p.failed(Finding{Doing: "record that this host was seen"}, err)
		}
		defer p.staySeen(ctx)()
	}
	// The long part comes last: starting what is due takes its time.
	p.wakeAll(ctx)
	p.watchAll(ctx)
	p.takeBackAll(ctx)
	p.convergeAll(ctx)
	p.startTasks(ctx)
	p.unarchiveTasks(ctx)
	p.startAll(ctx)
	return p.done, p.first
}

func newPass(d Deps) *pass {
	perSecond := d.StartsPerSecond
	if perSecond <= 0 {
		perSecond = DefaultStartsPerSecond
	}
	if d.Reached == nil {
		d.Reached = &Reached{}
	}
	return &pass{
		Deps:   d,
		done:   Summary{Host: d.Host.ID},
		starts: rate.NewLimiter(rate.Limit(perSecond), perSecond),
	}
}

// pass is one call of Once.
type pass struct {
	Deps
	done   Summary
	starts *rate.Limiter
	first  error
	// silent counts the runs in a row that did not answer what they are doing.
	silent int
	// unanswered counts the calls in a row that nobody answered.
	unanswered int
}

func (p *pass) see(ctx context.Context) error {
	host := p.Host
	host.LastSeen = time.Time{}
	return p.Store.SeeHost(ctx, host)
}

// seenEvery is well below the time after which a host counts as away.
const seenEvery = 15 * time.Second

// staySeen keeps a long pass from looking like an absent host, until it is told
// to stop.
func (p *pass) staySeen(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var seeing sync.WaitGroup
	seeing.Go(func() {
		tick := time.NewTicker(seenEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := p.see(ctx); err != nil && ctx.Err() == nil {
				p.Logger.Warn("That this host is here could not be recorded", "error", err)
			}
		}
	})
	return func() { cancel(); seeing.Wait() }
}

// part is one thing that a pass does to all that is listed.
type part[T any] struct {
	// doing tells it from the others.
	doing string
	// until is when it lets the others go on; zero has no bound.
	until time.Time
	next  func(ctx context.Context, after string) (store.Page[T], error)
	id    func(T) string
	act   func(context.Context, T)
}

func (d part[T]) timeIsUp() bool { return !d.until.IsZero() && time.Now().After(d.until) }

// each acts on all that is listed, page by page, from where the last pass has
// stopped: on one at least, and then until the time is up, which it reports. What
// cannot be read is a failure of that row alone.
func each[T any](ctx context.Context, p *pass, do part[T]) (more bool) {
	acted := false
	for {
		page, err := do.next(ctx, p.Reached.after[do.doing])
		if err != nil {
			p.failed(Finding{Doing: "list what there is to " + do.doing}, err)
			return false
		}
		for _, row := range page.Unreadable {
			p.failed(Finding{SessionID: row.ID, Doing: do.doing}, row.Err)
		}
		for _, row := range page.Rows {
			if p.away() || ctx.Err() != nil {
				return false
			}
			if acted && do.timeIsUp() {
				p.done.More = true
				return true
			}
			do.act(ctx, row)
			acted = true
			p.Reached.after[do.doing] = do.id(row)
		}
		if page.Next == "" {
			delete(p.Reached.after, do.doing)
			return false
		}
		p.Reached.after[do.doing] = page.Next
		if do.timeIsUp() { // of many pages there may be nothing to act on
			p.done.More = true
			return true
		}
	}
}

// within is the end of a share of the time; zero if there is no bound.
func (p *pass) within(share time.Duration) time.Time {
	if p.StartFor <= 0 {
		return time.Time{}
	}
	return time.Now().Add(share)
}

// shortly is the end of what a part has that comes before the starts.
func (p *pass) shortly() time.Time { return p.within(p.StartFor / 20) }

// paged is a list of at most pageSize ids as a page.
func paged(ids []string) store.Page[string] {
	page := store.Page[string]{Rows: ids}
	if len(ids) == pageSize {
		page.Next = ids[len(ids)-1]
	}
	return page
}

func sessionID(due store.Due) string { return due.SessionID }

// call makes one bounded call to Temporal, at the rate that is allowed, and
// notes whether it was answered.
func (p *pass) call(ctx context.Context, about Finding, do func(context.Context) error) {
	err := p.starts.Wait(ctx)
	if err == nil {
		bounded, cancel := context.WithTimeout(ctx, callLimit)
		err = do(bounded)
		cancel()
	}
	if err == nil || !isAway(err) {
		p.unanswered = 0
	} else {
		p.unanswered++
	}
	if err != nil {
		p.failed(about, err)
	}
}

// away: the next call would fare no better.
func (p *pass) away() bool { return p.unanswered >= giveUpAfter }

func isAway(err error) bool {
	if code := teardown.CodeOf(err); code != "" {
		return code == teardown.CodeDatabaseUnavailable || code == teardown.CodeSchemaVersion
	}
	return temporalclient.Away(err)
}

func (p *pass) failed(about Finding, err error) {
	err = p.Temporal.Explain(err)
	if p.first == nil {
		p.first = err
	}
	p.done.Failed++
	p.done.Failures = listed(p.done.Failures, about, err)
}

// noted keeps what was found and left alone: it is no failure.
func (p *pass) noted(about Finding, err error) {
	p.done.Notes = listed(p.done.Notes, about, err)
}

func listed(list []Finding, about Finding, err error) []Finding {
	if len(list) == teardown.MaxDetails {
		return list
	}
	about.Code, about.Message = teardown.CodeOf(err), err.Error()
	return append(list, about)
}
