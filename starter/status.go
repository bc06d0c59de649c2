package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"unwind/internal/store"
	"unwind/teardown"
)

type statusOptions struct {
	*program
	ID  string
	All bool
}

func newStatusCommand(p *program) *cobra.Command {
	o := &statusOptions{program: p}
	command := &cobra.Command{
		Use:   "status ID",
		Short: "Show what a session holds, what was released, and what was kept and why",
		Long: `Show what a session holds, what was released, and what was kept and why.

The facts come from the database, so this works without Temporal too. While a
finalization runs, Temporal adds what is being done at the moment.

A session that was restored has earlier generations; --all shows what became of
each, too.`,
		Example: `  unwind status s1
  unwind status s1 --all
  unwind status s1 --json | jq -r '.worktrees[] | select(.disposition == "preserved") | .path'`,
		Args:              takesID(&o.ID),
		ValidArgsFunction: p.completeIDs,
		RunE:              runs(o.run),
	}
	command.Flags().BoolVar(&o.All, "all", false, "earlier generations, too")
	return command
}

func (o *statusOptions) run(ctx context.Context) error {
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	seen, err := f.look(ctx, o.ID)
	if err != nil {
		return err
	}
	if seen.state != store.StateLive {
		server := o.dial(ctx)
		defer server.Close()
		seen.live = lookLive(ctx, server, f.config.UIURL, o.ID)
	}
	var earlier []teardown.Result
	if o.All {
		if earlier, err = f.earlier(ctx, seen); err != nil {
			return err
		}
	}
	if o.json {
		r := seen.report()
		r.Earlier = earlier
		o.printJSON(r)
		return nil
	}
	o.printSight(seen)
	for _, result := range earlier {
		o.say("\nGeneration %d", result.Generation)
		o.printResult(result)
	}
	return nil
}

// earlier answers what became of the generations before the session's own, the
// newest first.
func (f *facts) earlier(ctx context.Context, s sight) ([]teardown.Result, error) {
	results := []teardown.Result{}
	for generation := s.Session.Generation - 1; generation > 0; generation-- {
		result, err := f.Result(ctx, s.Session.ID, generation)
		if err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	return results, nil
}

// report is the status of a session with --json.
type report struct {
	SessionID         string             `json:"session_id"`
	Host              string             `json:"host"`
	TaskID            string             `json:"task_id"`
	Generation        int64              `json:"generation"`
	State             store.SessionState `json:"state"`
	CreatedAt         time.Time          `json:"created_at"`
	TerminatedAt      *time.Time         `json:"terminated_at"`
	TerminationSource string             `json:"termination_source"`
	HeldUntil         *time.Time         `json:"held_until"`
	HeldBy            string             `json:"held_by"`
	Runtimes          []runtimeReport    `json:"runtimes"`
	Worktrees         []worktreeReport   `json:"worktrees"`
	Resources         []resourceReport   `json:"resources"`
	Links             []linkReport       `json:"links"`
	Finalization      *finalizationView  `json:"finalization"`
	Live              *live              `json:"live,omitempty"`
	// Earlier holds the results of earlier generations, with --all.
	Earlier []teardown.Result `json:"earlier,omitempty"`
}

type runtimeReport struct {
	Kind       string                  `json:"kind"`
	Role       string                  `json:"role"`
	Name       string                  `json:"name"`
	State      string                  `json:"state"`
	Outcome    teardown.RuntimeOutcome `json:"outcome"`
	Code       teardown.Code           `json:"code"`
	Details    []string                `json:"details"`
	Message    string                  `json:"message"`
	Snapshot   string                  `json:"snapshot"`
	ReleasedAt *time.Time              `json:"released_at"`
}

type worktreeReport struct {
	Path        string               `json:"path"`
	Repository  string               `json:"repository"`
	Branch      string               `json:"branch"`
	State       string               `json:"state"`
	Disposition teardown.Disposition `json:"disposition"`
	Code        teardown.Code        `json:"code"`
	Details     []string             `json:"details"`
	Bytes       int64                `json:"bytes"`
	SavedRef    string               `json:"saved_ref"`
	Quarantine  string               `json:"quarantine"`
}

type resourceReport struct {
	Kind      string     `json:"kind"`
	Path      string     `json:"path"`
	ClearedAt *time.Time `json:"cleared_at"`
}

// linkReport is a pull request or an issue that the session works on.
type linkReport struct {
	Kind       string     `json:"kind"`
	Repository string     `json:"repository"`
	Number     int64      `json:"number"`
	ClosedAt   *time.Time `json:"closed_at"`
}

// finalizationView is the record of the session's generation.
type finalizationView struct {
	Round         int64            `json:"round"`
	StartedAt     *time.Time       `json:"started_at"`
	Attempts      int              `json:"attempts"`
	LastAttemptAt *time.Time       `json:"last_attempt_at"`
	NextAttemptAt *time.Time       `json:"next_attempt_at"`
	Failure       teardown.Failure `json:"failure"`
	ParkedAt      *time.Time       `json:"parked_at"`
	ParkedReason  string           `json:"parked_reason"`
	Outcome       teardown.Outcome `json:"outcome"`
	FinishedAt    *time.Time       `json:"finished_at"`
	WorkflowID    string           `json:"workflow_id"`
}

func (s sight) report() report {
	r := report{
		SessionID: s.Session.ID, Host: s.Session.Host, TaskID: s.Session.TaskID, Generation: s.Session.Generation,
		State: s.state, CreatedAt: s.Session.CreatedAt, TerminatedAt: s.Session.TerminatedAt,
		TerminationSource: s.Session.TerminationSource, HeldUntil: s.Session.HeldUntil, HeldBy: s.Session.HeldBy,
		Runtimes: []runtimeReport{}, Worktrees: []worktreeReport{}, Resources: []resourceReport{},
		Links: []linkReport{},
	}
	for _, rt := range s.runtimes() {
		r.Runtimes = append(r.Runtimes, runtimeReport{Kind: rt.Kind, Role: rt.Role, Name: runtimeName(rt.Handle.V), State: rt.State,
			Outcome: rt.Outcome, Code: rt.Code, Details: listed(rt.Details.V), Message: rt.Message, Snapshot: rt.SnapshotPath, ReleasedAt: rt.ReleasedAt})
	}
	for _, wt := range s.leased() {
		r.Worktrees = append(r.Worktrees, worktreeReport{Path: wt.Worktree.Path, Repository: wt.Worktree.Repository, Branch: wt.Worktree.Branch,
			State: wt.Worktree.State, Disposition: wt.Lease.Disposition, Code: wt.Lease.Code, Details: listed(wt.Lease.Details.V),
			Bytes: wt.Lease.Bytes, SavedRef: wt.Lease.SavedRef, Quarantine: wt.Worktree.QuarantinePath})
	}
	for _, resource := range s.resources() {
		r.Resources = append(r.Resources, resourceReport{Kind: resource.Kind, Path: resource.Path, ClearedAt: resource.ClearedAt})
	}
	for _, link := range s.Links {
		r.Links = append(r.Links, linkReport{Kind: link.Kind, Repository: link.Repository, Number: link.Number, ClosedAt: link.ClosedAt})
	}
	if f := s.finalization; f != nil {
		r.Finalization = &finalizationView{Round: f.Round, StartedAt: f.StartedAt, Attempts: f.AttemptCount, LastAttemptAt: f.LastAttemptAt,
			NextAttemptAt: f.NextAttemptAt, Failure: teardown.Failure{Code: f.FailureCode, Message: f.FailureMessage},
			ParkedAt: f.ParkedAt, ParkedReason: f.ParkedReason, Outcome: f.Outcome, FinishedAt: f.FinishedAt, WorkflowID: f.WorkflowID}
	}
	if s.state != store.StateLive {
		r.Live = &s.live
	}
	return r
}

func listed(details []string) []string {
	if details == nil {
		return []string{}
	}
	return details
}

// runtimes, leased and resources are those of the session's generation, with
// runtimes that earlier ones have left behind.
func (s sight) runtimes() []store.Runtime {
	return of(s.Runtimes, func(rt store.Runtime) bool {
		return rt.Generation == s.Session.Generation || rt.ReleasedAt == nil
	})
}

func (s sight) leased() []store.LeasedWorktree {
	return of(s.Worktrees, func(wt store.LeasedWorktree) bool { return wt.Lease.Generation == s.Session.Generation })
}

func (s sight) resources() []store.Resource {
	return of(s.Resources, func(r store.Resource) bool { return r.Generation == s.Session.Generation })
}

func isKept(wt store.LeasedWorktree) bool {
	switch wt.Lease.Disposition {
	case teardown.DispositionPreserved, teardown.DispositionRefused, teardown.DispositionFailed:
		return true
	}
	return false
}

func of[T any](all []T, wanted func(T) bool) []T {
	var some []T
	for _, one := range all {
		if wanted(one) {
			some = append(some, one)
		}
	}
	return some
}

func (p *program) printSight(s sight) { fmt.Fprint(p.out, p.sightText(s)) }

// sightText is the status for a person.
func (p *program) sightText(s sight) string {
	var b bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	words, as := s.words()
	line("%s  %s", p.styled("Session "+s.Session.ID, bold), p.styled(words, as))
	line("%s", p.styled(s.summary(), faint))
	p.sightRuntimes(&b, s)
	p.sightWorktrees(&b, s)
	p.sightResources(&b, s)
	p.sightProgress(&b, s)
	p.sightAdvice(&b, s)
	return b.String()
}

func (s sight) words() (words string, as style) {
	reason := ""
	if s.finalization != nil {
		reason = s.finalization.ParkedReason
	}
	return stateWords(s.state, reason, len(of(s.leased(), isKept)))
}

func (s sight) summary() string {
	parts := []string{"host " + s.Session.Host, "generation " + strconv.FormatInt(s.Session.Generation, 10)}
	if s.finalization != nil {
		parts = append(parts, "round "+strconv.FormatInt(s.finalization.Round, 10))
	}
	if s.Session.TerminatedAt == nil {
		return strings.Join(append(parts, "registered "+ago(s.Session.CreatedAt, s.at)), ", ")
	}
	return strings.Join(append(parts, "terminated "+ago(*s.Session.TerminatedAt, s.at)+" ("+shown(s.Session.TerminationSource)+")"), ", ")
}

func (p *program) sightRuntimes(b *bytes.Buffer, s sight) {
	for i, rt := range s.runtimes() {
		if i == 0 {
			fmt.Fprintln(b, "\nRuntimes")
		}
		outcome := rt.Outcome
		text := string(outcome)
		if outcome == "" || outcome == teardown.RuntimePending {
			text = rt.State
		}
		fmt.Fprintf(b, "  %s %s %s: %s%s\n", rt.Kind, rt.Role, shown(runtimeName(rt.Handle.V)),
			p.styled(text, runtimeStyle(outcome)), because(rt.Code))
		p.sightDetails(b, rt.Details.V)
		if rt.Message != "" {
			fmt.Fprintf(b, "    %s\n", sentence(rt.Message))
		}
		if rt.SnapshotPath != "" {
			fmt.Fprintf(b, "    last screen: %s; `%s snapshot %s` prints it\n", shown(rt.SnapshotPath), name, s.Session.ID)
		}
	}
}

func (p *program) sightWorktrees(b *bytes.Buffer, s sight) {
	for i, wt := range s.leased() {
		if i == 0 {
			fmt.Fprintln(b, "\nWorktrees")
		}
		text := string(wt.Lease.Disposition)
		if wt.Lease.Disposition == teardown.DispositionPending || text == "" {
			text = wt.Worktree.State
		}
		size := ""
		if wt.Lease.Bytes > 0 {
			size = ", " + bytesText(wt.Lease.Bytes)
		}
		fmt.Fprintf(b, "  %s: %s%s%s\n", shown(wt.Worktree.Path), p.styled(text, dispositionStyle(wt.Lease.Disposition)),
			because(wt.Lease.Code), size)
		p.sightDetails(b, wt.Lease.Details.V)
		if wt.Worktree.QuarantinePath != "" {
			fmt.Fprintf(b, "    moved aside to %s\n", shown(wt.Worktree.QuarantinePath))
		}
		if wt.Lease.SavedRef != "" {
			fmt.Fprintf(b, "    uncommitted work saved in %s; `%s recover %s` brings it back\n", shown(wt.Lease.SavedRef), name, s.Session.ID)
		}
	}
}

func (p *program) sightDetails(b *bytes.Buffer, details []string) {
	for _, detail := range details {
		fmt.Fprintf(b, "    %s\n", shown(detail))
	}
}

func (p *program) sightResources(b *bytes.Buffer, s sight) {
	all, cleared := s.resources(), 0
	for _, resource := range all {
		if resource.ClearedAt != nil {
			cleared++
		}
	}
	if len(all) > 0 {
		fmt.Fprintf(b, "\nResources\n  %d cleared, %d left\n", cleared, len(all)-cleared)
	}
}

// sightProgress says what is being done at the moment.
func (p *program) sightProgress(b *bytes.Buffer, s sight) {
	if s.state != store.StateTerminated {
		return
	}
	var lines []string
	if s.live.Phase != "" {
		lines = append(lines, "Now: "+strings.ReplaceAll(string(s.live.Phase), "_", " "))
	}
	for _, step := range s.live.Steps {
		lines = append(lines, "  "+step.text(s.at))
		if p.outTerminal && step.Progress != nil {
			lines = append(lines, barLines(*step.Progress)...)
		}
	}
	if len(s.live.Steps) == 0 && s.finalization != nil && s.finalization.FailureCode != "" {
		lines = append(lines, "Last failure"+because(s.finalization.FailureCode)+": "+sentence(s.finalization.FailureMessage))
	}
	if s.live.Why != "" {
		lines = append(lines, "Live progress is not available: "+s.live.Why)
	}
	paragraph(b, lines)
}

// paragraph prints lines below an empty one.
func paragraph(b *bytes.Buffer, lines []string) {
	for i, line := range lines {
		if i == 0 {
			fmt.Fprintln(b)
		}
		fmt.Fprintln(b, line)
	}
}

// text is a step in one line.
func (step pendingStep) text(at time.Time) string {
	parts := []string{cmp.Or(step.Summary, step.Step)}
	if step.Progress != nil {
		parts = append(parts, progressText(*step.Progress))
	}
	if step.Attempt > 1 || step.Failure.Code != "" {
		parts = append(parts, fmt.Sprintf("attempt %d of %d", step.Attempt, step.MaximumAttempts))
	}
	if step.State == stepWaiting {
		switch {
		case step.NextAttemptAt != nil && step.NextAttemptAt.After(at):
			parts = append(parts, "next "+ago(*step.NextAttemptAt, at))
		default:
			parts = append(parts, "waiting for a worker")
		}
	}
	text := strings.Join(parts, ", ")
	if step.Failure.Message != "" {
		text += "; last failure" + because(step.Failure.Code) + ": " + sentence(step.Failure.Message)
	}
	return text
}

const barWidth = 40

// barLines draws how much of a step is done, where its size is known.
func barLines(progress teardown.Progress) []string {
	if progress.TotalFiles <= 0 {
		return nil
	}
	done := min(max(progress.Files, 0), progress.TotalFiles)
	full := int(done * barWidth / progress.TotalFiles)
	return []string{fmt.Sprintf("  [%s%s] %d%%", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), done*100/progress.TotalFiles)}
}

func progressText(progress teardown.Progress) string {
	text := sentence(progress.Step)
	switch {
	case progress.TotalFiles > 0:
		text += fmt.Sprintf(" (%d of %d files, %s)", progress.Files, progress.TotalFiles, bytesText(progress.Bytes))
	case progress.Files > 0:
		text += fmt.Sprintf(" (%d files, %s)", progress.Files, bytesText(progress.Bytes))
	}
	return text
}

func (p *program) sightAdvice(b *bytes.Buffer, s sight) {
	var lines []string
	switch s.state {
	case store.StateParked:
		f := s.finalization
		lines = append(lines, fmt.Sprintf("Parked %s (%s): %s", ago(*f.ParkedAt, s.at), f.ParkedReason, sentence(f.FailureMessage)),
			whatNext(s.Session.ID, f.ParkedReason))
		if !s.live.Available && s.live.Why != "" {
			lines = append(lines, "Live progress is not available: "+s.live.Why)
		}
	case store.StateHeld:
		lines = append(lines, heldText(s.Session)+" Lift it with `"+name+" hold "+s.Session.ID+" --release`.")
	case store.StateFinished:
		lines = append(lines, "Finished "+ago(*s.finalization.FinishedAt, s.at)+": "+string(s.finalization.Outcome)+".")
	case store.StateLive:
		if s.Session.Held(s.at) {
			lines = append(lines, heldText(s.Session))
		}
	}
	if hint := s.hostHint(); hint != "" {
		lines = append(lines, hint)
	}
	if s.live.WebUI != "" {
		lines = append(lines, s.live.WebUI)
	}
	paragraph(b, lines)
}

func heldText(session store.Session) string {
	until := "until further notice"
	if session.HeldUntil != nil {
		until = "until " + session.HeldUntil.Local().Format(time.DateTime)
	}
	return fmt.Sprintf("Held %s by %s.", until, shown(session.HeldBy))
}

// because is a code in brackets.
func because(code teardown.Code) string {
	if code == "" {
		return ""
	}
	return " (" + string(code) + ")"
}

func itoa(n int) string { return strconv.Itoa(n) }
