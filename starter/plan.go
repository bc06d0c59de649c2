package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"unwind/internal/resource"
	"unwind/internal/runtime"
	"unwind/internal/store"
	"unwind/internal/worktree"
	"unwind/teardown"
)

type planOptions struct {
	*program
	ID  string
	All bool
}

func newPlanCommand(p *program) *cobra.Command {
	o := &planOptions{program: p}
	command := &cobra.Command{
		Use:   "plan ID | --all",
		Short: "Show what finalization would do and why, changing nothing",
		Long: `Show what finalization would do to a session now, and why: by the same code, with
nothing changed. The session may be live. It has to be asked on the session's host;
with --all, the sessions of this host that are not finalized are looked at.

Exit codes are those that the finalization would end with: 0 all would go, 3
something would be kept, 65 refused, 75 it could not be told or would be retried.`,
		Example: `  unwind plan s1
  unwind plan --all --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.All && len(args) > 0:
				return usageError("give the id of a session or --all, not both")
			case o.All:
				return nil
			case len(args) == 0:
				return usageError("name the session to plan for, or give --all; see `%s list`", name)
			}
			return takesID(&o.ID)(cmd, args)
		},
		ValidArgsFunction: p.completeIDs,
		RunE:              runs(o.run),
	}
	command.Flags().BoolVar(&o.All, "all", false, "all sessions of this host that are not finalized")
	return command
}

// plan is what finalization would come to; with --json, one for each session.
type plan struct {
	SessionID  string             `json:"session_id"`
	Host       string             `json:"host"`
	Generation int64              `json:"generation"`
	State      store.SessionState `json:"state"`
	Runtimes   []plannedRuntime   `json:"runtimes"`
	Worktrees  []worktreeLine     `json:"worktrees"`
	Resources  []plannedResource  `json:"resources"`

	reports []worktree.Report
	seen    sight
}

// plannedRuntime: outcome is what Destroy would come to.
type plannedRuntime struct {
	Kind      string                  `json:"kind"`
	Role      string                  `json:"role"`
	Name      string                  `json:"name"`
	Outcome   teardown.RuntimeOutcome `json:"outcome"`
	Code      teardown.Code           `json:"code"`
	Retryable bool                    `json:"retryable"`
	Message   string                  `json:"message"`
	alive     bool
}

// plannedResource: outcome is "cleared", "kept", "refused" or, where it could
// not be told, "failed".
type plannedResource struct {
	Kind      string        `json:"kind"`
	Path      string        `json:"path"`
	Outcome   string        `json:"outcome"`
	Code      teardown.Code `json:"code"`
	Retryable bool          `json:"retryable"`
	Message   string        `json:"message"`
}

const (
	resourceCleared = "cleared"
	resourceKept    = "kept"
	resourceRefused = "refused"
	resourceFailed  = "failed"
)

func (o *planOptions) run(ctx context.Context) error {
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	if !o.All {
		return o.one(ctx, f, o.ID)
	}
	codes := []exitCode{exitDone}
	elsewhere := map[string]int{}
	err = f.eachSession(ctx, store.SessionFilter{}, func(s store.Summary) error {
		if s.State == store.StateFinished {
			return nil
		}
		if s.Host != f.config.Host {
			elsewhere[s.Host]++
			return nil
		}
		err := o.one(ctx, f, s.ID)
		var said verdict
		if err != nil && !errors.As(err, &said) {
			o.note("%s: %s: %s", name, s.ID, sentence(err.Error()))
		}
		codes = append(codes, exitOf(err))
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	for host, n := range elsewhere {
		o.note("%s of host %s; run `%s plan --all` there.", counted(n, "session is", "sessions are"), host, name)
	}
	if len(codes) == 1 {
		o.say("No session of this host has anything left to release.")
	}
	return asVerdict(worst(codes...))
}

func (o *planOptions) one(ctx context.Context, f *facts, id string) error {
	seen, err := f.look(ctx, id)
	if err != nil {
		return err
	}
	if seen.Session.Host != f.config.Host {
		return &teardown.Error{Code: teardown.CodeForeignHost, Message: fmt.Sprintf(
			"session %s belongs to host %s and this is %s; run `%s plan %s` there", id, seen.Session.Host, f.config.Host, name, id)}
	}
	made, err := o.plan(ctx, f, seen)
	if err != nil {
		return err
	}
	o.print(made)
	return asVerdict(made.exit())
}

func (o *planOptions) plan(ctx context.Context, f *facts, seen sight) (plan, error) {
	made := plan{SessionID: seen.Session.ID, Host: seen.Session.Host, Generation: seen.Session.Generation, State: seen.state,
		Runtimes: []plannedRuntime{}, Worktrees: []worktreeLine{}, Resources: []plannedResource{}, seen: seen}
	for _, rt := range seen.runtimes() {
		made.Runtimes = append(made.Runtimes, o.planRuntime(ctx, rt))
	}
	reports, err := o.planWorktrees(ctx, f, seen, made.anyAlive())
	if err != nil {
		return plan{}, err
	}
	made.reports = reports
	for _, report := range reports {
		made.Worktrees = append(made.Worktrees, worktreeLineOf(report))
	}
	for _, row := range seen.resources() {
		made.Resources = append(made.Resources, planResource(ctx, cleaner(f.config), row, made.keepsWorktree()))
	}
	return made, nil
}

// planResource: what is kept with a worktree is not looked at, for neither would
// the finalization.
func planResource(ctx context.Context, cleaner resource.Cleaner, row store.Resource, keepsWorktree bool) plannedResource {
	planned := plannedResource{Kind: row.Kind, Path: row.Path, Outcome: resourceCleared}
	switch {
	case row.ClearedAt != nil:
		return planned
	case row.Kind != teardown.ResourceSecret && keepsWorktree:
		planned.Outcome = resourceKept
		return planned
	}
	if _, err := cleaner.Inspect(ctx, resource.Item{ID: row.ID, Kind: row.Kind, Path: row.Path}); err != nil {
		told := errorObjectOf(err)
		planned.Outcome, planned.Code, planned.Retryable, planned.Message = resourceRefused, told.Code, told.Retryable, sentence(err.Error())
		if told.Retryable {
			planned.Outcome = resourceFailed
		}
	}
	return planned
}

func (o *planOptions) planRuntime(ctx context.Context, row store.Runtime) plannedRuntime {
	rt := row.Handle.V
	planned := plannedRuntime{Kind: row.Kind, Role: row.Role, Name: runtimeName(rt)}
	if row.ReleasedAt != nil {
		planned.Outcome = teardown.RuntimeAlreadyGone
		return planned
	}
	probe := o.probe
	if row.State == store.RuntimeCreating {
		probe = o.find
	}
	rt, state, err := probe(ctx, rt)
	planned.Name = runtimeName(rt)
	var own *teardown.Error
	switch {
	case errors.As(err, &own):
		planned.Outcome, planned.Code, planned.Retryable = teardown.RuntimeRefused, own.Code, own.Retryable
		if own.Retryable {
			planned.Outcome = teardown.RuntimeFailed
		}
		planned.Message = sentence(own.Error())
	case err != nil:
		planned.Outcome, planned.Code, planned.Message = teardown.RuntimeFailed, teardown.CodeInternal, sentence(err.Error())
	case state == runtime.Alive:
		planned.Outcome, planned.alive = teardown.RuntimeReleased, true
	default:
		planned.Outcome = teardown.RuntimeAlreadyGone
	}
	if err == nil && row.State == store.RuntimeCreating {
		planned.Message = "Its start is not complete, and nothing of it was found."
		if planned.alive {
			planned.Message = "Its start is not complete; it was found by its tag."
		}
	}
	return planned
}

func (o *planOptions) probe(ctx context.Context, rt teardown.Runtime) (teardown.Runtime, runtime.State, error) {
	kind, err := o.kinds().For(rt)
	if err != nil {
		return rt, 0, err
	}
	state, err := kind.Probe(ctx, rt)
	return rt, state, err
}

// find is probe for a runtime whose start was not recorded as done, of which the
// plan alone is known; it answers what there is of it.
func (o *planOptions) find(ctx context.Context, planned teardown.Runtime) (teardown.Runtime, runtime.State, error) {
	kind, err := o.kinds().For(planned)
	if err != nil {
		return planned, 0, err
	}
	starter, ok := kind.(runtime.Starter)
	if !ok {
		return o.probe(ctx, planned)
	}
	found, there, err := starter.Find(ctx, planned)
	switch {
	case err != nil:
		return planned, 0, err
	case there:
		return found, runtime.Alive, nil
	}
	return planned, runtime.Gone, nil
}

// planWorktrees looks at all worktrees that nobody else holds in one go, so that
// what a child comes to is known when its parent is judged.
func (o *planOptions) planWorktrees(ctx context.Context, f *facts, seen sight, alive bool) ([]worktree.Report, error) {
	engine, leased := engine(f.config), seen.leased()
	reports := make([]worktree.Report, len(leased))
	paths := map[string]string{}
	for _, wt := range leased {
		paths[wt.Worktree.ID] = wt.Worktree.Path
	}
	var targets []worktree.Target
	var of []int
	for i, wt := range leased {
		row := wt.Worktree
		target := worktree.Target{Repository: row.Repository, Path: row.Path, Nonce: row.Nonce, Parent: paths[row.ParentID]}
		decided, err := o.decided(ctx, f, seen, wt)
		if err != nil {
			return nil, err
		}
		if decided != nil {
			reports[i] = *decided
			continue
		}
		if engine.Unmarked(target) {
			reports[i] = unmarkedReport(row)
			continue
		}
		targets = append(targets, target)
		of = append(of, i)
	}
	hooks := worktree.AllHooks{SaveChanges: seen.finalization != nil && seen.finalization.SaveRequested, RuntimeEnds: alive}
	for n, report := range engine.InspectAll(ctx, targets, hooks) {
		reports[of[n]] = report
	}
	return reports, nil
}

// unmarkedReport is about a worktree that git has made for the session, whose
// start was cut off before it was recorded: finalization marks it first.
func unmarkedReport(row store.Worktree) worktree.Report {
	return worktree.Report{Path: row.Path, Branch: row.Branch, Repository: row.Repository, Disposition: teardown.DispositionRemoved,
		Notes: []string{"Its start is not complete; it would be looked at first, and kept if anything in it could be lost."}}
}

// decided answers what the facts alone say of a worktree; nil if it has to be
// looked at.
func (o *planOptions) decided(ctx context.Context, f *facts, seen sight, wt store.LeasedWorktree) (*worktree.Report, error) {
	report := worktree.Report{Path: wt.Worktree.Path, Branch: wt.Worktree.Branch, Repository: wt.Worktree.Repository}
	switch {
	case wt.Lease.Disposition.Final():
		report.Disposition, report.Code, report.Details = wt.Lease.Disposition, wt.Lease.Code, wt.Lease.Details.V
		return &report, nil
	case wt.Worktree.State == store.WorktreeRemoved:
		report.Disposition = teardown.DispositionAlreadyGone
		return &report, nil
	case wt.Worktree.QuarantinePath != "":
		report.Disposition, report.Quarantine = teardown.DispositionRemoved, wt.Worktree.QuarantinePath
		report.Notes = []string{"Its removal is under way and would be resumed."}
		return &report, nil
	}
	_, held, found, err := f.WorktreeAt(ctx, wt.Worktree.Host, wt.Worktree.Path)
	if err != nil || !found {
		return nil, err
	}
	for _, lease := range held {
		if lease.WorktreeID == wt.Worktree.ID && (lease.Kind != store.HolderSession || lease.ID != seen.Session.ID) {
			report.Disposition = teardown.DispositionRetained
			report.Message = fmt.Sprintf("%s %s holds it, too.", lease.Kind, lease.ID)
			return &report, nil
		}
	}
	return nil, nil
}

func (p plan) anyAlive() bool {
	for _, rt := range p.Runtimes {
		if rt.alive {
			return true
		}
	}
	return false
}

func (p plan) keepsWorktree() bool {
	for _, report := range p.reports {
		switch report.Disposition {
		case teardown.DispositionPreserved, teardown.DispositionRefused, teardown.DispositionFailed:
			return true
		}
	}
	return false
}

// blocked: a runtime that would not be confirmed gone keeps everything else.
func (p plan) blocked() bool {
	for _, rt := range p.Runtimes {
		if !rt.Outcome.Released() {
			return true
		}
	}
	return false
}

func (p plan) exit() exitCode {
	codes := []exitCode{exitDone}
	for _, rt := range p.Runtimes {
		switch {
		case rt.Outcome.Released():
		case rt.Outcome == teardown.RuntimeRefused:
			codes = append(codes, exitRefused)
		default:
			codes = append(codes, exitRetryable)
		}
	}
	for _, report := range p.reports {
		codes = append(codes, exitOfDisposition(report.Disposition, report.Retryable))
	}
	for _, resource := range p.Resources {
		switch resource.Outcome {
		case resourceRefused:
			codes = append(codes, exitRefused)
		case resourceFailed:
			codes = append(codes, exitRetryable)
		}
	}
	return worst(codes...)
}

func (o *planOptions) print(made plan) {
	if o.json {
		o.printJSON(made)
		return
	}
	words, as := made.seen.words()
	o.say("%s  %s", o.styled("Session "+made.SessionID, bold), o.styled(words, as))
	if made.State == store.StateFinished {
		o.say("Everything is released.")
		return
	}
	for _, rt := range made.Runtimes {
		o.say("%s %s %s: %s%s", rt.Kind, rt.Role, shown(rt.Name), o.styled(runtimePlanWords(rt), runtimeStyle(rt.Outcome)), because(rt.Code))
		if rt.Message != "" {
			o.say("  %s", rt.Message)
		}
	}
	if made.blocked() {
		o.say("Nothing below would be touched before that runtime is confirmed gone.")
	}
	for _, report := range made.reports {
		o.printWorktree(report, true)
	}
	for _, resource := range made.Resources {
		o.say("%s %s: %s%s", resource.Kind, shown(resource.Path), resourcePlanWords(resource.Outcome), because(resource.Code))
		if resource.Message != "" {
			o.say("  %s", resource.Message)
		}
	}
}

func resourcePlanWords(outcome string) string {
	if outcome == resourceFailed {
		return "could not be told"
	}
	return "would be " + outcome
}

func runtimePlanWords(rt plannedRuntime) string {
	switch rt.Outcome {
	case teardown.RuntimeReleased:
		return "alive, would be ended"
	case teardown.RuntimeAlreadyGone:
		return "gone"
	case teardown.RuntimeRefused:
		return "would be refused"
	}
	return "could not be told"
}
