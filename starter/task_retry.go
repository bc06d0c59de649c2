package main

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"unwind/internal/store"
	"unwind/teardown"
)

type taskRetryOptions struct {
	*program
	ID          string
	SaveChanges bool
	Wait        bool
}

func newTaskRetryCommand(p *program) *cobra.Command {
	o := &taskRetryOptions{program: p}
	command := &cobra.Command{
		Use:   "retry ID",
		Short: "Look again at what an archived or deleted task could not give back",
		Long: `Begin one more round of a task's finalization: its sessions that are parked are
retried with it, and everything that is not yet released is looked at again, with
all attempts anew. The retry is recorded first; if Temporal does not answer, the
round begins when it is back.

--save-changes is that of "unwind retry"; it holds for the task's sessions as well.`,
		Example: `  unwind task retry t1 --wait
  unwind task retry t1 --save-changes --wait`,
		Args:              takesTaskID(&o.ID),
		ValidArgsFunction: p.completeTaskIDs,
		RunE:              runs(o.run),
	}
	command.Flags().BoolVar(&o.Wait, "wait", false, "wait until all is released or a person has to decide")
	command.Flags().BoolVar(&o.SaveChanges, "save-changes", false, "save uncommitted work to a ref, then remove")
	return command
}

// retriedTask is what task retry prints with --json, unless it waits.
type retriedTask struct {
	TaskID string `json:"task_id"`
	Round  int64  `json:"round"`
	// Recorded is false if there was nothing to retry.
	Recorded bool `json:"recorded"`
	// Signalled: the finalization's run was told.
	Signalled bool   `json:"signalled"`
	RequestID string `json:"request_id"`
	Message   string `json:"message"`
}

func (o *taskRetryOptions) run(ctx context.Context) error {
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	detail, err := f.TaskDetail(ctx, o.ID)
	if err != nil {
		return err
	}
	done := retriedTask{TaskID: o.ID}
	if detail.Task.Closed() && detail.Finalization().FinishedAt != nil {
		done.Message = "Task " + o.ID + " holds nothing any more; nothing to retry."
		o.print(done)
		return nil
	}
	by := o.whoAmI()
	if done.Round, done.Recorded, err = f.RetryTask(ctx, o.ID, store.RetryOptions{SaveChanges: o.SaveChanges, By: by}); err != nil {
		return err
	}
	done.RequestID = uuid.NewString()
	server := o.dial(ctx)
	defer server.Close()
	err = server.away
	if err == nil {
		_, err = teardown.SignalTaskRetry(ctx, server.Client, f.config.TaskQueue, o.ID, teardown.RetryRequest{
			RequestID: done.RequestID, RequestedBy: by, Round: done.Round, SaveChanges: o.SaveChanges})
		err = server.Explain(err)
	}
	done.Signalled = err == nil
	done.Message = fmt.Sprintf("Task %s is being looked at again (round %d).", o.ID, done.Round)
	if err != nil {
		done.Message = fmt.Sprintf("The retry of task %s is recorded (round %d) and will begin when Temporal is back: %s.", o.ID, done.Round, brief(err))
	}
	switch {
	case !o.Wait:
		o.print(done)
		return nil
	case !done.Signalled:
		o.print(done)
		return verdict(exitRetryable)
	}
	waiting := awaitingTask{program: o.program, facts: f, id: o.ID, generation: detail.Task.Generation, round: done.Round}
	return waiting.waitFor(ctx)
}

func (o *taskRetryOptions) print(done retriedTask) {
	if o.json {
		o.printJSON(done)
		return
	}
	o.say("%s", done.Message)
}
