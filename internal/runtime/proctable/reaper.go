package proctable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Times of the end of a process.
const (
	// Grace is what a process gets between SIGTERM and SIGKILL.
	Grace = 3 * time.Second
	// deafGrace is what it gets if it ignores SIGTERM: time for what it waits for.
	deafGrace = time.Second
	// deniedGrace is how long a process that we may not signal may take to end by
	// itself, for its parent is gone.
	deniedGrace = time.Second
	// pollInterval bounds every single wait; scanInterval is between two scans
	// while something that is held on to still runs.
	pollInterval = 50 * time.Millisecond
	scanInterval = 200 * time.Millisecond
)

// Reaper ends the processes of one run: it asks each of them once, and kills
// what is still there after its grace. Use it for one call, then Close it.
type Reaper struct {
	Claim *Claim
	// Progress is told what is waited for, at least every scanInterval; may be nil.
	Progress func(doing string)

	targets map[Ref]*target
	found   Belongings // by Look
}

type target struct {
	Process
	handle *Handle // nil if it could not be opened
	asked  time.Time
	deaf   bool // ignores SIGTERM
	denied time.Time
}

// Remains are processes that could not be ended.
type Remains struct {
	Survivors []Process // seen by the last scan, asked and killed in vain
	Denied    []Process // not ours to signal
	Untold    []Process // may be the run's, may not be looked into
	// Table is the last scan.
	Table Table
}

// Touched reports whether a process of the run was found and signalled.
func (r *Reaper) Touched() bool { return len(r.targets) > 0 }

// Close lets go of all processes.
func (r *Reaper) Close() {
	for _, t := range r.targets {
		if t.handle != nil {
			t.handle.Close()
		}
	}
}

// Look finds the processes of the run that Ask asks. It touches nothing.
func (r *Reaper) Look(table Table) (err error) {
	r.found, err = r.Claim.Find(table)
	return err
}

// Adopted are the processes that Look has found and that nothing proves to be the
// run's once those that started them have ended.
func (r *Reaper) Adopted() []Process { return r.found.Adopted }

// Ask sends every process that Look has found SIGTERM, and SIGCONT so that those that are
// stopped, or about to be, hear it. Then it waits until they have ended, but no
// longer than Grace, and not for those that ignore the signal. What they start
// meanwhile, to save their work, is left alone.
func (r *Reaper) Ask(ctx context.Context) {
	var listening []*Handle
	for _, p := range r.found.Owned {
		if t := r.ask(p); t != nil && !t.deaf && t.denied.IsZero() {
			listening = append(listening, t.handle)
		}
	}
	for end := time.Now().Add(Grace); len(listening) > 0 && ctx.Err() == nil && time.Now().Before(end); {
		r.tell("waiting for %d processes to end", len(listening))
		Await(ctx, listening, pollInterval)
		running := listening[:0]
		for _, h := range listening {
			if !h.Ended() {
				running = append(running, h)
			}
		}
		listening = running
	}
}

// End ends every process of the run and returns when two successive scans have
// found none. It kills nothing before patience has passed. When ctx is done, or
// when all that is left may not be signalled, it returns what is left.
func (r *Reaper) End(ctx context.Context, patience time.Duration) (Remains, error) {
	begun := time.Now()
	for empty := 0; ; {
		table, found, err := r.scan()
		if err != nil {
			return Remains{}, err
		}
		if len(found.Owned)+len(found.Untold) == 0 {
			if empty++; empty == 2 {
				if group, err := openCgroup(r.Claim.Cgroup); err == nil {
					group.remove()
				}
				return Remains{Table: table}, nil
			}
			continue
		}
		empty = 0
		elapsed := time.Since(begun)
		remains := r.press(found, elapsed >= patience)
		remains.Table = table
		if elapsed > patience+Grace && found.sole != nil {
			// Ends at once what forks faster than it can be ended one by one.
			found.sole.kill()
		}
		hopeless := len(remains.Survivors) == 0 && elapsed > patience+deniedGrace
		if hopeless || ctx.Err() != nil {
			return remains, nil
		}
		r.tell("waiting for %d processes to end", len(found.Owned)+len(found.Untold))
		r.await(ctx, found.Owned)
	}
}

// press asks those not asked yet and kills those whose grace is over.
func (r *Reaper) press(found Belongings, kill bool) Remains {
	remains := Remains{Untold: found.Untold}
	for _, p := range found.Owned {
		t := r.targets[p.Ref]
		switch {
		case t == nil:
			t = r.ask(p)
		case kill && t.handle != nil && t.overdue():
			t.signal(unix.SIGKILL)
		}
		if t != nil && !t.denied.IsZero() {
			remains.Denied = append(remains.Denied, p)
			continue
		}
		// Also one that has ended since the scan: what it may have started by then
		// is found by the next scan only.
		remains.Survivors = append(remains.Survivors, p)
	}
	return remains
}

// ask sends a process SIGTERM and wakes it; nil if it has ended meanwhile.
func (r *Reaper) ask(p Process) *target {
	if r.targets == nil {
		r.targets = map[Ref]*target{}
	}
	handle, err := Open(p.Ref)
	if errors.Is(err, ErrGone) {
		return nil
	}
	t := &target{Process: p, handle: handle, asked: time.Now(), deaf: Ignores(p.PID, unix.SIGTERM)}
	r.targets[p.Ref] = t
	if err != nil {
		t.handle, t.denied = nil, time.Now()
		return t
	}
	t.signal(unix.SIGTERM)
	t.signal(unix.SIGCONT)
	return t
}

func (t *target) signal(signal unix.Signal) {
	if err := t.handle.Signal(signal); err != nil && !errors.Is(err, ErrGone) && t.denied.IsZero() {
		t.denied = time.Now()
	}
}

func (t *target) overdue() bool {
	grace := Grace
	if t.deaf {
		grace = deafGrace
	}
	return time.Since(t.asked) >= grace
}

func (r *Reaper) scan() (Table, Belongings, error) {
	table, err := Scan()
	if err != nil {
		return nil, Belongings{}, err
	}
	found, err := r.Claim.Find(table)
	return table, found, err
}

func (r *Reaper) await(ctx context.Context, processes []Process) {
	var handles []*Handle
	for _, p := range processes {
		if t := r.targets[p.Ref]; t != nil && t.handle != nil {
			handles = append(handles, t.handle)
		}
	}
	if len(handles) == 0 {
		time.Sleep(pollInterval)
		return
	}
	Await(ctx, handles, scanInterval)
}

func (r *Reaper) tell(format string, args ...any) {
	if r.Progress != nil {
		r.Progress(fmt.Sprintf(format, args...))
	}
}
