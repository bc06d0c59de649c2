package workflows

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
)

var (
	sessionKey = temporal.NewSearchAttributeKeyKeyword(teardown.SessionAttribute)
	taskKey    = temporal.NewSearchAttributeKeyKeyword(teardown.TaskAttribute)
	hostKey    = temporal.NewSearchAttributeKeyKeyword(teardown.HostAttribute)
	phaseKey   = temporal.NewSearchAttributeKeyKeyword(teardown.PhaseAttribute)
	reasonKey  = temporal.NewSearchAttributeKeyKeyword(teardown.ReasonAttribute)
)

// shownAttributes is what the search attributes say now, so that only a change
// costs an event.
type shownAttributes struct {
	host   string
	task   string
	phase  teardown.Phase
	reason string
}

// show sets what a person sees: the phase, the search attributes, and the
// details in Temporal's web UI.
func (f *finalization) show(ctx workflow.Context, phase teardown.Phase, reason string) {
	f.status.Phase = phase
	workflow.SetCurrentDetails(ctx, describe(f.status))
	now := shownAttributes{host: f.begun.Host, task: cmp.Or(f.begun.TaskID, f.shown.task), phase: phase, reason: reason}
	if !f.begun.SearchAttributes || now == f.shown {
		return
	}
	updates := []temporal.SearchAttributeUpdate{phaseKey.ValueSet(string(phase))}
	if f.shown.host != now.host {
		updates = append(updates, sessionKey.ValueSet(f.in.SessionID), hostKey.ValueSet(now.host))
	}
	if f.shown.task != now.task {
		updates = append(updates, taskKey.ValueSet(now.task))
	}
	switch {
	case reason != "":
		updates = append(updates, reasonKey.ValueSet(reason))
	case f.shown.reason != "":
		updates = append(updates, reasonKey.ValueUnset())
	}
	f.shown = now
	if err := workflow.UpsertTypedSearchAttributes(ctx, updates...); err != nil {
		f.logger.Warn("The search attributes could not be set", "error", err)
	}
}

func (f *finalization) started(summary string) { f.status.Running = append(f.status.Running, summary) }

func (f *finalization) ended(summary string) {
	if i := slices.Index(f.status.Running, summary); i >= 0 {
		f.status.Running = slices.Delete(f.status.Running, i, i+1)
	}
}

// answerStatus copies: a query must not hand out what a later step changes.
func (f *finalization) answerStatus() (teardown.Status, error) {
	status := f.status
	status.PendingRequests = len(f.requests.pending)
	status.HandledRequests = slices.Clone(f.requests.handled)
	status.Running = slices.Clone(f.status.Running)
	if len(status.Running) > teardown.MaxListed {
		status.Running = status.Running[:teardown.MaxListed]
	}
	return status, nil
}

// describe writes, in Temporal's Markdown, what is held, what was released, what
// is kept and why, and how to go on.
func describe(status teardown.Status) string {
	var b strings.Builder
	result := status.Result
	switch status.Phase {
	case teardown.PhaseParked:
		line(&b, "**Waits for a person** (%s). %s\n\n", status.ParkedReason, result.Failure.Message)
		if status.TaskID != "" {
			line(&b, "Go on with `unwind task retry %s`.\n\n", status.TaskID)
		} else {
			line(&b, "Go on with `unwind retry %s`.\n\n", status.SessionID)
		}
	case teardown.PhaseFinished:
		b.WriteString("**Finished.**\n\n")
	default:
		where := ""
		if status.Host != "" {
			where = ", on host " + status.Host
		}
		line(&b, "**%s**, round %d of generation %d%s.\n\n",
			strings.ReplaceAll(string(status.Phase), "_", " "), status.Round, status.Generation, where)
	}
	for _, session := range result.Sessions {
		line(&b, "- session %s: %s%s\n", session.SessionID, cmp.Or(string(session.Outcome), "under way"), because(session.Failure.Code, nil))
	}
	if more := result.SessionsTotal - len(result.Sessions); more > 0 {
		line(&b, "- and %d more sessions\n", more)
	}
	for _, runtime := range result.Runtimes {
		line(&b, "- runtime %s (%s): %s%s\n", runtime.Kind, runtime.Role, runtime.Outcome, because(runtime.Code, runtime.Details))
	}
	for _, worktree := range result.Worktrees {
		line(&b, "- worktree `%s`: %s%s\n", worktree.Path, worktree.Disposition, because(worktree.Code, worktree.Details))
	}
	if more := result.WorktreesTotal - len(result.Worktrees); more > 0 {
		line(&b, "- and %d more worktrees\n", more)
	}
	if result.Resources.Cleared+result.Resources.Kept > 0 {
		line(&b, "- resources: %d cleared, %d kept\n", result.Resources.Cleared, result.Resources.Kept)
	}
	return b.String()
}

func line(b *strings.Builder, format string, args ...any) {
	b.WriteString(fmt.Sprintf(format, args...))
}

// shownDetails is how many of a thing's details fit into the summary for people.
const shownDetails = 5

func because(code teardown.Code, details []string) string {
	if code == "" {
		return ""
	}
	text := " — " + string(code)
	if len(details) == 0 {
		return text
	}
	text += ": `" + strings.Join(details[:min(len(details), shownDetails)], "`, `") + "`"
	if len(details) > shownDetails {
		text += ", …"
	}
	return text
}
