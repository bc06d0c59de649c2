package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"unwind/internal/store"
	"unwind/teardown"
)

// awaiting waits for the end of one generation's finalization. What has ended is
// the database's word; Temporal adds what is under way, and which requests were
// taken up.
type awaiting struct {
	*program
	facts      *facts
	server     temporal
	id         string
	generation int64
	// request, if set, has to be taken up before being parked counts as the end.
	request string
	// round is the one that the request has begun.
	round int64
	// show is called with each new sight; nil shows nothing.
	show func(sight)
	// line, if set, is taken away before anything else is printed.
	line *progressLine
}

const (
	awaitPause = 250 * time.Millisecond
	// awaitPatience is how long the database may be away while we wait.
	awaitPatience = time.Minute
	// requestPatience is how long to wait for a request to be taken up although
	// its round has ended: the workflow may have been lost meanwhile.
	requestPatience = 20 * time.Second
)

// wait returns the result of the generation that is waited for, never that of an
// older one. When ctx ends, the error is a verdict: the finalization goes on.
func (a *awaiting) wait(ctx context.Context) (teardown.Result, error) {
	ticker := time.NewTicker(awaitPause)
	defer ticker.Stop()
	var away, ended time.Time
	for {
		seen, err := a.facts.look(ctx, a.id)
		switch {
		case ctx.Err() != nil:
			return teardown.Result{}, a.leave()
		case err != nil && teardown.CodeOf(err) == teardown.CodeDatabaseUnavailable:
			if away.IsZero() {
				away = now()
			}
			if now().Sub(away) > awaitPatience {
				return teardown.Result{}, err
			}
		case err != nil:
			return teardown.Result{}, err
		default:
			away = time.Time{}
			seen.live = lookLive(ctx, a.server, a.facts.config.UIURL, a.id)
			if a.show != nil {
				a.show(seen)
			}
			if outcome, over := a.over(seen); over {
				if ended.IsZero() {
					ended = now()
				}
				if a.takenUp(seen) || now().Sub(ended) > requestPatience {
					return a.result(ctx, outcome)
				}
			} else {
				ended = time.Time{}
			}
		}
		select {
		case <-ctx.Done():
			return teardown.Result{}, a.leave()
		case <-ticker.C:
		}
	}
}

// over answers how the generation ended, or why it does not go on by itself.
func (a *awaiting) over(seen sight) (teardown.Outcome, bool) {
	if seen.Session.Generation != a.generation {
		for _, f := range seen.Finalizations {
			if f.Generation == a.generation && f.Outcome != "" {
				return f.Outcome, true
			}
		}
		return teardown.OutcomeSuperseded, true
	}
	switch seen.state {
	case store.StateFinished:
		return seen.finalization.Outcome, true
	case store.StateParked:
		if seen.finalization.Round < a.round {
			return "", false
		}
		return teardown.ParkedOutcome(seen.finalization.ParkedReason), true
	case store.StateHeld:
		return teardown.OutcomeDeferred, true
	}
	return "", false
}

// takenUp: a request may carry more than the fact of a retry, so the end of its
// round is not enough.
func (a *awaiting) takenUp(seen sight) bool {
	return a.request == "" || seen.state != store.StateParked || !seen.live.Available ||
		slices.Contains(seen.live.HandledRequests, a.request)
}

func (a *awaiting) result(ctx context.Context, outcome teardown.Outcome) (teardown.Result, error) {
	result, err := a.facts.Result(ctx, a.id, a.generation)
	if err != nil {
		return teardown.Result{}, err
	}
	result.Outcome = outcome
	return result, nil
}

// leave says that nothing was stopped by no longer waiting.
func (a *awaiting) leave() error {
	a.line.clear()
	a.note("No longer waiting; the finalization of %s goes on. See `%s status %s`.", a.id, name, a.id)
	return verdict(exitRetryable)
}

// progressLine is shown on a terminal while a command waits, and takes itself
// away when something else is printed.
type progressLine struct {
	streams
	shown bool
}

func (l *progressLine) show(s sight) {
	l.print(l.text(s))
}

func (l *progressLine) print(text string) {
	width := l.width
	if width == 0 {
		width = 80
	}
	fmt.Fprintf(l.err, "\r\x1b[K%s", cut(text, width-1))
	l.shown = true
}

func (l *progressLine) clear() {
	if l != nil && l.shown {
		fmt.Fprint(l.err, "\r\x1b[K")
		l.shown = false
	}
}

func (l *progressLine) text(s sight) string {
	words, _ := stateWords(s.state, "", 0)
	parts := []string{s.Session.ID + ": " + words}
	for _, step := range s.live.Steps {
		parts = append(parts, step.text(s.at))
	}
	if len(s.live.Steps) == 0 && s.live.Phase != "" {
		parts = append(parts, strings.ReplaceAll(string(s.live.Phase), "_", " "))
	}
	if hint := s.hostHint(); hint != "" {
		parts = append(parts, hint)
	}
	return strings.Join(parts, " · ")
}

// waitFor waits with progress on a terminal and prints the result.
func (a *awaiting) waitFor(ctx context.Context) (exitCode, error) {
	if a.errTerminal && !a.json {
		a.line = &progressLine{streams: a.streams}
		a.show = a.line.show
	}
	result, err := a.wait(ctx)
	a.line.clear()
	if err != nil {
		return exitOf(err), err
	}
	a.printResult(result)
	return exitOfResult(result), nil
}

// printResult prints a finalization's result, as the object that the workflow
// returns or for a person.
func (p *program) printResult(r teardown.Result) {
	if p.json {
		p.printJSON(r)
		return
	}
	as := green
	switch r.Outcome {
	case teardown.OutcomePreserved, teardown.OutcomeDeferred, teardown.OutcomeSuperseded:
		as = yellow
	case teardown.OutcomeFailed:
		as = red
	}
	subject, see := "Session "+r.SessionID, name+" status "+r.SessionID
	if r.TaskID != "" {
		subject, see = "Task "+r.TaskID, name+" task show "+r.TaskID
	}
	p.say("%s: %s", subject, p.styled(string(r.Outcome), as))
	for _, s := range r.Sessions {
		p.say("  session %s: %s%s", s.SessionID, cmp.Or(string(s.Outcome), "under way"), because(s.Failure.Code))
	}
	if more := r.SessionsTotal - len(r.Sessions); more > 0 {
		p.say("  and %s; see `%s`", counted(more, "more session", "more sessions"), see)
	}
	for _, rt := range r.Runtimes {
		p.say("  runtime %s %s: %s%s", rt.Kind, rt.Role, p.styled(string(rt.Outcome), runtimeStyle(rt.Outcome)), because(rt.Code))
		p.sayDetails(rt.Details)
	}
	for _, wt := range r.Worktrees {
		p.say("  worktree %s: %s%s", shown(wt.Path), p.styled(string(wt.Disposition), dispositionStyle(wt.Disposition)), because(wt.Code))
		p.sayDetails(wt.Details)
		if wt.SavedRef != "" {
			p.say("    uncommitted work saved in %s; `%s recover %s` brings it back", shown(wt.SavedRef), name, cmp.Or(r.SessionID, shown(wt.SavedRef)))
		}
	}
	if more := r.WorktreesTotal - len(r.Worktrees); more > 0 {
		p.say("  and %s; see `%s`", counted(more, "more worktree", "more worktrees"), see)
	}
	if r.Resources.Cleared+r.Resources.Kept > 0 {
		refused := ""
		if r.Resources.Refused > 0 {
			refused = fmt.Sprintf(", %d of them refused", r.Resources.Refused)
		}
		p.say("  resources: %d cleared, %d kept%s", r.Resources.Cleared, r.Resources.Kept, refused)
	}
	if r.Failure.Message != "" {
		p.say("  %s", sentence(r.Failure.Message))
	}
	switch r.Outcome {
	case teardown.OutcomePreserved, teardown.OutcomeFailed:
		p.say("See `%s` for what to do.", see)
	case teardown.OutcomeDeferred:
		if r.TaskID == "" {
			p.say("The session is held; `%s hold %s --release` lets the finalization go on.", name, r.SessionID)
		}
	}
}

func (p *program) sayDetails(details []string) {
	for _, detail := range details {
		p.say("    %s", shown(detail))
	}
}
