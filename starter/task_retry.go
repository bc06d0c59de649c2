package main

import (
	"context"
	"errors"
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
	Signalled bool         `json:"signalled"`
	RequestID string       `json:"request_id"`
	Message   string       `json:"message"`
	Error     *errorObject `json:"error,omitempty"`

	generation int64
}

func (o *taskRetryOptions) run(ctx context.Context) error {
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	r := &retrying{retryOptions: &retryOptions{program: o.program, SaveChanges: o.SaveChanges, Wait: o.Wait}, facts: f}
	defer func() { r.server.Close() }()
	done, err := r.retryTask(ctx, o.ID)
	if err != nil {
		return err
	}
	return asVerdict(r.settleTask(ctx, done))
}

// retryTask is retry for a task.
func (r *retrying) retryTask(ctx context.Context, id string) (retriedTask, error) {
	detail, err := r.facts.TaskDetail(ctx, id)
	if err != nil {
		return retriedTask{}, err
	}
	done := retriedTask{TaskID: id, generation: detail.Task.Generation}
	if detail.Task.Closed() && detail.Finalization().FinishedAt != nil {
		done.Message = "Task " + id + " holds nothing any more; nothing to retry."
		return done, nil
	}
	by := r.whoAmI()
	done.Round, done.Recorded, err = r.facts.RetryTask(ctx, id, store.RetryOptions{SaveChanges: r.SaveChanges, IfParked: r.All, Reason: r.Reason, By: by})
	if err != nil {
		return retriedTask{}, err
	}
	if !done.Recorded {
		done.Message = "Task " + id + " is no longer parked; nothing to retry."
		return done, nil
	}
	done.RequestID = uuid.NewString()
	err = r.signalTask(ctx, done, by)
	done.Signalled = err == nil
	done.Message = fmt.Sprintf("Task %s is being looked at again (round %d).", id, done.Round)
	if err != nil {
		done.Message = fmt.Sprintf("The retry of task %s is recorded (round %d) and will begin when Temporal is back: %s.", id, done.Round, brief(err))
	}
	return done, nil
}

func (r *retrying) signalTask(ctx context.Context, done retriedTask, by string) error {
	server := r.temporal(ctx)
	if server.away != nil {
		return server.away
	}
	_, err := teardown.SignalTaskRetry(ctx, server.Client, r.facts.config.TaskQueue, done.TaskID, teardown.RetryRequest{
		RequestID: done.RequestID, RequestedBy: by, Round: done.Round, SaveChanges: r.SaveChanges})
	return server.Explain(err)
}

// settleTask is settle for a task.
func (r *retrying) settleTask(ctx context.Context, done retriedTask) exitCode {
	if !r.Wait || !done.Recorded {
		r.printTask(done)
		return exitDone
	}
	if !done.Signalled {
		r.printTask(done)
		return exitRetryable
	}
	waiting := awaitingTask{program: r.program, facts: r.facts, id: done.TaskID, generation: done.generation, round: done.Round}
	err := waiting.waitFor(ctx)
	var said verdict
	if err != nil && !errors.As(err, &said) {
		r.note("%s: %s: %s", name, done.TaskID, sentence(err.Error()))
	}
	return exitOf(err)
}

func (r *retrying) printTask(done retriedTask) {
	switch {
	case r.json:
		r.printJSON(done)
	case done.Error != nil:
		r.note("%s: %s", name, done.Message)
	default:
		r.say("%s", done.Message)
	}
}
