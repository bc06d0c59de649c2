package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"unwind/internal/runtime/proctable"
	"unwind/teardown"
)

// Plan is how a kind destroys one runtime. Carry it out with Destroy, which does
// what is common to all kinds.
type Plan struct {
	Runtime teardown.Runtime
	// Claim proves which processes are the runtime's. Look and End may add to it,
	// Weigh may take from it.
	Claim *proctable.Claim
	// Check refuses a record that is not an exact identity.
	Check func() error
	// Look reports whether the runtime itself is there, as Kind.Probe does.
	Look func(ctx context.Context) (State, error)
	// Weigh finds out what the claim is worth before it is used; may be nil. With
	// confirmed, what could not be told is not used instead of failing.
	Weigh func(ctx context.Context, confirmed bool) error
	// Snapshot is as Kind.Snapshot. It is called only when the runtime is there.
	Snapshot func(ctx context.Context, dir string) (string, error)
	// Learned returns the record with what Look has found beyond it, and whether
	// there is any such thing; may be nil.
	Learned func() (known teardown.Runtime, more bool)
	// End asks the runtime's processes, ends the runtime itself and confirms that;
	// nil if ending its processes is all there is to do.
	End func(ctx context.Context, reaper *proctable.Reaper) error
	// Contested returns living processes that may be the runtime's or somebody
	// else's, once those are ended that are its for certain; nil if that cannot be.
	Contested func(table proctable.Table) ([]proctable.Process, error)
	// Patience is how long the processes left by End have before they are killed.
	Patience time.Duration
}

// Destroy carries out a plan and promises what Kind.Destroy does.
func (p Plan) Destroy(ctx context.Context, options Options) (Outcome, error) {
	limit := options.Limit
	if limit <= 0 {
		limit = DefaultLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if options.Progress == nil {
		options.Progress = func(string) {}
	}
	outcome := Outcome{Runtime: teardown.RuntimeResult{
		Kind: p.Runtime.Kind, Role: p.Runtime.Role, Outcome: teardown.RuntimeAlreadyGone,
	}}
	d := &destruction{Plan: p, options: options, outcome: &outcome}
	err := d.run(ctx)
	var theirs callers
	if errors.As(err, &theirs) {
		return outcome, theirs.error
	}
	var refusal *teardown.Error
	if errors.As(err, &refusal) && !refusal.Retryable {
		outcome.Runtime.Outcome = teardown.RuntimeRefused
		outcome.Runtime.Code = refusal.Code
		outcome.Runtime.Details = refusal.Details
		outcome.Message = refusal.Message
		return outcome, nil
	}
	return outcome, err
}

// callers is an error of the caller's own, which is no refusal of ours whatever
// it says.
type callers struct{ error }

// destruction is one call of Destroy. Its steps return refusals as errors that
// are not retryable.
type destruction struct {
	Plan
	options Options
	outcome *Outcome
}

func (d *destruction) run(ctx context.Context) error {
	confirmed := d.options.ConfirmedGoneBy != "" || d.Runtime.Gone
	if !confirmed {
		if err := d.Check(); err != nil {
			return err
		}
	}
	earlier, err := EarlierBoot(d.Runtime.Identity)
	if err != nil || earlier {
		return err
	}
	state := Gone
	if !confirmed {
		d.options.Progress("looking for the runtime")
		if state, err = d.Look(ctx); err != nil {
			return err
		}
	}
	if d.Weigh != nil {
		if err := d.Weigh(ctx, confirmed); err != nil {
			return err
		}
	}
	if state == Alive {
		// Before the processes are looked for: it takes its time.
		d.picture(ctx)
	}
	reaper := &proctable.Reaper{Claim: d.Claim, Progress: d.options.Progress}
	defer reaper.Close()
	if err := d.admit(reaper); err != nil {
		return err
	}
	if err := d.record(ctx, reaper); err != nil {
		return err
	}
	if state == Alive {
		d.outcome.Runtime.Outcome = teardown.RuntimeReleased
	}
	if err := d.end(ctx, state, reaper); err != nil {
		return err
	}
	return d.release(ctx, reaper)
}

// admit finds the runtime's processes and makes sure, before anything is touched,
// that the claim holds and that carrying it out does not end the caller.
func (d *destruction) admit(reaper *proctable.Reaper) error {
	table, err := proctable.Scan()
	if err != nil {
		return TableError(err)
	}
	if d.Claim.InvolvesCaller(table) {
		return StillAlive(nil, "unwind runs inside the runtime that it is to end; run it from somewhere else.")
	}
	return TableError(reaper.Look(table))
}

func (d *destruction) picture(ctx context.Context) {
	if d.options.Snapshot == "" || d.Plan.Snapshot == nil {
		return
	}
	d.options.Progress("saving what the runtime shows")
	path, err := d.Plan.Snapshot(ctx, d.options.Snapshot)
	d.outcome.Runtime.Snapshot = path
	if err != nil {
		d.note("No snapshot: %v", err)
	}
}

// maxDescendants bounds what a record may grow by in one attempt.
const maxDescendants = 1000

// record has the caller write down what the end of the runtime takes away.
func (d *destruction) record(ctx context.Context, reaper *proctable.Reaper) error {
	known, more := d.Runtime, false
	if d.Learned != nil {
		known, more = d.Learned()
	}
	if adopted := reaper.Adopted(); len(adopted) > 0 && known.Identity != nil {
		identity := *known.Identity
		identity.Descendants = slices.Clone(identity.Descendants)
		for _, p := range adopted[:min(len(adopted), maxDescendants)] {
			identity.Descendants = append(identity.Descendants, teardown.Descendant{PID: p.PID, StartTime: p.Start, LeadsSession: p.Session == p.PID})
		}
		if len(adopted) > maxDescendants {
			d.note("Of %d processes that only their parents prove to be the runtime's, %d were recorded.", len(adopted), maxDescendants)
		}
		known.Identity, more = &identity, true
	}
	snapshot := d.outcome.Runtime.Snapshot
	if d.options.Record == nil || !more && snapshot == "" {
		return nil
	}
	if err := d.options.Record(ctx, known, snapshot); err != nil {
		return callers{err}
	}
	return nil
}

// end ends the runtime itself; if there is no more to that than ending
// processes, these are asked and have their time.
func (d *destruction) end(ctx context.Context, state State, reaper *proctable.Reaper) error {
	d.options.Progress("ending the runtime")
	if state == Alive && d.End != nil {
		return d.End(ctx, reaper)
	}
	reaper.Ask(ctx)
	return nil
}

// release ends what is left of the runtime's processes and looks who else
// stands in its worktree.
func (d *destruction) release(ctx context.Context, reaper *proctable.Reaper) error {
	d.options.Progress("looking for processes that are left")
	remains, err := reaper.End(ctx, d.Patience)
	if err != nil {
		return TableError(err)
	}
	if err := d.remaining(remains); err != nil {
		return err
	}
	if reaper.Touched() {
		d.outcome.Runtime.Outcome = teardown.RuntimeReleased
	}
	if err := d.contested(remains.Table); err != nil {
		return err
	}
	return d.occupied(remains.Table)
}

func (d *destruction) remaining(remains proctable.Remains) error {
	var lines, reasons []string
	alive := false
	for _, group := range []struct {
		processes []proctable.Process
		reason    string
	}{
		{remains.Denied, "may not be signalled by this user"},
		{remains.Survivors, "did not end"},
		{remains.Untold, "may belong to it but cannot be looked into"},
	} {
		if len(group.processes) == 0 {
			continue
		}
		reasons = append(reasons, fmt.Sprintf("%d %s", len(group.processes), group.reason))
		for _, p := range group.processes {
			lines = append(lines, p.String())
			alive = alive || d.isRoot(p.Ref)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	err := StillAlive(Listed(lines), "Processes of the runtime are left: %s. End them, then try again.",
		strings.Join(reasons, ", "))
	if !alive {
		err.Code = teardown.CodeRuntimeSurvivors
	}
	return err
}

func (d *destruction) isRoot(ref proctable.Ref) bool {
	for _, root := range d.Claim.Roots {
		if root.Ref == ref {
			return true
		}
	}
	return false
}

func (d *destruction) contested(table proctable.Table) error {
	if d.Contested == nil {
		return nil
	}
	processes, err := d.Contested(table)
	if err != nil {
		return TableError(err)
	}
	if len(processes) == 0 {
		return nil
	}
	refusal := Contradiction("It cannot be told whose these processes are, for other sessions have the runtime's env_tag, or show their window; end those that are its own, then try again.")
	refusal.Details = Listed(names(processes))
	return refusal
}

func (d *destruction) occupied(table proctable.Table) error {
	identity := d.Runtime.Identity
	if identity == nil || identity.Worktree == "" || identity.Worktree == "/" {
		return nil
	}
	type answer struct {
		occupants []proctable.Process
		err       error
	}
	answered := make(chan answer, 1)
	go func() {
		occupants, err := proctable.Occupants(table, identity.Worktree)
		answered <- answer{occupants, err}
	}()
	select {
	case a := <-answered:
		return d.stand(a.occupants, a.err)
	case <-time.After(occupantsLimit):
		return d.stand(nil, errNoAnswer)
	}
}

// occupantsLimit is how long the worktree's file system may take to answer: one
// whose server is gone never does, and the runtime is gone all the same.
const occupantsLimit = 5 * time.Second

var errNoAnswer = errors.New("its file system does not answer")

// stand judges who stands in the worktree. Where that cannot be told it is as if
// somebody did.
func (d *destruction) stand(occupants []proctable.Process, err error) error {
	worktree := d.Runtime.Identity.Worktree
	switch {
	case (errors.Is(err, proctable.ErrUnsupported) || errors.Is(err, errNoAnswer)) && d.options.AllowOccupants:
		d.note("Whether somebody stands in the worktree is not known: %v.", err)
		return nil
	case errors.Is(err, errNoAnswer):
		return Unreachable(err, "The runtime is gone, but whether other processes stand in %s could not be told", worktree)
	case errors.Is(err, proctable.ErrUnsupported):
		return &teardown.Error{Code: teardown.CodeRuntimeOccupied, Message: fmt.Sprintf(
			"The runtime is gone, but whether other processes stand in %s cannot be told; install lsof, then try again.", worktree)}
	case err != nil:
		return TableError(err)
	case len(occupants) == 0:
		return nil
	}
	d.outcome.Occupants = Listed(names(occupants))
	if d.options.AllowOccupants {
		return nil
	}
	return &teardown.Error{Code: teardown.CodeRuntimeOccupied, Details: d.outcome.Occupants,
		Message: fmt.Sprintf("Processes that are not the runtime's stand in %s; leave the directory or end them, then try again.", worktree)}
}

func (d *destruction) note(format string, args ...any) {
	d.outcome.Notes = append(d.outcome.Notes, fmt.Sprintf(format, args...))
}

// Listed bounds a list to teardown.MaxDetails entries and, beyond them, one that
// counts the rest.
func Listed(lines []string) []string {
	if len(lines) <= teardown.MaxDetails {
		return lines
	}
	rest := len(lines) - teardown.MaxDetails
	return append(lines[:teardown.MaxDetails:teardown.MaxDetails], fmt.Sprintf("and %d more", rest))
}

func names(processes []proctable.Process) []string {
	lines := make([]string, len(processes))
	for i, p := range processes {
		lines[i] = p.String()
	}
	return lines
}

// TableError is the error for what went wrong while the process table was read
// or a claim was held against it; nil for nil.
func TableError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, proctable.ErrNoCgroup):
		return Contradiction("The recorded cgroup does not belong to this runtime alone: %v.", err)
	}
	return Unreachable(err, "The process table could not be read.")
}
