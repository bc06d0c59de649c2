package main

import (
	"context"
	"time"

	"unwind/internal/store"
	"unwind/teardown"
)

// awaitingTask waits for the end of one generation's finalization of a task, by
// the facts.
type awaitingTask struct {
	*program
	facts      *facts
	id         string
	generation int64
	// round is the one that a retry has begun.
	round int64
}

// waitFor waits and prints the result; the error is a verdict if it did not end
// as done.
func (a *awaitingTask) waitFor(ctx context.Context) error {
	ticker := time.NewTicker(awaitPause)
	defer ticker.Stop()
	var away time.Time
	for {
		detail, err := a.facts.TaskDetail(ctx, a.id)
		switch {
		case ctx.Err() != nil:
		case err != nil && teardown.CodeOf(err) == teardown.CodeDatabaseUnavailable:
			if away.IsZero() {
				away = now()
			}
			if now().Sub(away) > awaitPatience {
				return err
			}
		case err != nil:
			return err
		default:
			away = time.Time{}
			if outcome, over := a.over(detail); over {
				return a.end(ctx, outcome)
			}
		}
		select {
		case <-ctx.Done():
			a.note("No longer waiting; the release of task %s goes on. See `%s task show %s`.", a.id, name, a.id)
			return verdict(exitRetryable)
		case <-ticker.C:
		}
	}
}

// over answers how the generation ended, or why it does not go on by itself.
func (a *awaitingTask) over(detail store.TaskDetail) (teardown.Outcome, bool) {
	f := detail.Finalization()
	switch {
	case detail.Task.Generation != a.generation:
		return teardown.OutcomeSuperseded, true
	case f.FinishedAt != nil:
		return f.Outcome, true
	case f.ParkedAt != nil && f.Round >= a.round:
		return teardown.ParkedOutcome(f.ParkedReason), true
	}
	return "", false
}

func (a *awaitingTask) end(ctx context.Context, outcome teardown.Outcome) error {
	result, err := a.facts.TaskResult(ctx, a.id, a.generation)
	if err != nil {
		return err
	}
	result.Outcome = outcome
	a.printResult(result)
	return asVerdict(exitOfResult(result))
}
