package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	temporalsdk "go.temporal.io/sdk/temporal"

	"unwind/teardown"
)

type taskUnarchiveOptions struct {
	*program
	ID string
}

func newTaskUnarchiveCommand(p *program) *cobra.Command {
	o := &taskUnarchiveOptions{program: p}
	return &cobra.Command{
		Use:   "unarchive ID",
		Short: "Make an archived task active again, with its worktrees",
		Long: `Make an archived task active again, at its next generation. What was kept of its
worktrees it holds again; what was removed is made again on its host, from the
branch that was kept, as "git worktree add" does. Sessions that ended stay ended.

It waits for that. A worktree that could not be made is listed with the reason, and
so is one that was kept and that somebody has taken away since (worktree_missing);
run it again when that is settled. Needs Temporal and a worker on the host.`,
		Example: `  unwind task unarchive t1
  unwind task unarchive t1 --json`,
		Args:              takesTaskID(&o.ID),
		ValidArgsFunction: p.completeTaskIDs,
		RunE:              runs(o.run),
	}
}

func (o *taskUnarchiveOptions) run(ctx context.Context) error {
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	if _, err := f.TaskDetail(ctx, o.ID); err != nil {
		return err
	}
	server := o.dial(ctx)
	defer server.Close()
	if server.away != nil {
		return server.away
	}
	run, err := teardown.UnarchiveTask(ctx, server.Client, f.config.TaskQueue, o.ID)
	if err != nil {
		return server.Explain(err)
	}
	var result teardown.UnarchiveTaskResult
	if err := run.Get(ctx, &result); err != nil {
		var refused *temporalsdk.ApplicationError
		if errors.As(err, &refused) {
			code := teardown.Code(refused.Type())
			return &teardown.Error{Code: code, Message: refused.Message(), Retryable: code == teardown.CodeBusy}
		}
		return server.Explain(err)
	}
	o.print(result)
	codes := []exitCode{exitOfOutcome(result.Outcome)}
	for _, wt := range result.Worktrees {
		if wt.Failure.Code == teardown.ReasonHostUnreachable {
			codes = append(codes, exitRetryable)
		}
	}
	return asVerdict(worst(codes...))
}

func (o *taskUnarchiveOptions) print(result teardown.UnarchiveTaskResult) {
	if o.json {
		o.printJSON(result)
		return
	}
	o.say("Task %s is active again, at generation %d.", o.ID, result.Generation)
	for _, wt := range result.Worktrees {
		became := o.styled("held", green)
		if !wt.Held {
			became = o.styled("not there", red) + because(wt.Failure.Code) + " " + sentence(wt.Failure.Message)
		}
		o.say("  worktree %s (branch %s): %s", shown(wt.Path), shown(wt.Branch), became)
	}
	if result.Outcome == teardown.OutcomeFailed {
		o.say("Settle that, then run `%s task unarchive %s` again.", name, o.ID)
	}
}
