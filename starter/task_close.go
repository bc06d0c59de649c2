package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"unwind/internal/store"
	"unwind/teardown"
)

// taskCloseOptions are those of task archive and task delete.
type taskCloseOptions struct {
	*program
	ID    string
	State string
	Wait  bool
	Yes   bool
}

const taskStays = `What stays: every branch; worktrees that hold something a person could miss, or
that another task or session holds; work that was saved to a ref.`

func newTaskArchiveCommand(p *program) *cobra.Command {
	o := &taskCloseOptions{program: p, State: store.TaskArchived, Yes: true}
	command := &cobra.Command{
		Use:   "archive ID",
		Short: "Put a task away: its sessions end and its worktrees are given back",
		Long: `Archive a task. From now on no session starts in it. Its live sessions are
terminated and finalized; then the worktrees that only it holds are removed,
unless something could be lost.

` + taskStays + `

The record is what counts: if Temporal does not answer, the work starts when it is
back. With --wait the exit codes are those of terminate.

"unwind task unarchive" makes the worktrees again, from the branches.`,
		Example: `  unwind task archive t1
  unwind task archive t1 --wait --json`,
		Args:              takesTaskID(&o.ID),
		ValidArgsFunction: p.completeTaskIDs,
		RunE:              runs(o.run),
	}
	command.Flags().BoolVar(&o.Wait, "wait", false, "wait until all is released or a person has to decide")
	return command
}

func newTaskDeleteCommand(p *program) *cobra.Command {
	o := &taskCloseOptions{program: p, State: store.TaskDeleted}
	command := &cobra.Command{
		Use:   "delete ID",
		Short: "Delete a task: as archive, and for good",
		Long: `Delete a task, active or archived. From now on no session starts in it. Its live
sessions are terminated and finalized; then the worktrees that only it holds are
removed, unless something could be lost. It is listed for as long as that is under
way or a session of it is registered; "unwind task show" knows it after that, too.

` + taskStays + `

On a terminal it asks first; elsewhere it needs --yes.`,
		Example: `  unwind task delete t1
  unwind task delete t1 --yes --wait`,
		Args:              takesTaskID(&o.ID),
		ValidArgsFunction: p.completeTaskIDs,
		RunE:              runs(o.run),
	}
	command.Flags().BoolVar(&o.Wait, "wait", false, "wait until all is released or a person has to decide")
	command.Flags().BoolVar(&o.Yes, "yes", false, "do not ask")
	return command
}

// closedTask is what task archive and task delete print with --json, unless they
// wait.
type closedTask struct {
	TaskID     string          `json:"task_id"`
	Generation int64           `json:"generation"`
	State      store.TaskState `json:"state"`
	// Changed is false if it was so before.
	Changed bool `json:"changed"`
	// Started: a run of the finalization exists.
	Started bool   `json:"started"`
	WebUI   string `json:"web_ui"`
	Message string `json:"message"`
}

func (o *taskCloseOptions) run(ctx context.Context) error {
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	before, err := f.TaskDetail(ctx, o.ID)
	if err != nil {
		return err
	}
	if sure, err := o.sure(before); err != nil || !sure {
		return err
	}
	task, changed, err := f.CloseTask(ctx, o.ID, o.State)
	if err != nil {
		return err
	}
	detail, err := f.TaskDetail(ctx, o.ID)
	if err != nil {
		return err
	}
	done := closedTask{TaskID: o.ID, Generation: task.Generation, State: detail.State, Changed: changed}
	server := o.dial(ctx)
	defer server.Close()
	underWay := detail.State == store.TaskStateArchiving || detail.State == store.TaskStateDeleting
	if underWay {
		server.away = server.startTask(ctx, f.config.TaskQueue, task)
		done.Started = server.away == nil
	}
	if server.Connection != nil {
		done.WebUI = server.WebURL(f.config.UIURL, teardown.FinalizeTaskID(o.ID))
	}
	done.Message = o.message(detail, changed, server.away)
	switch {
	case !o.Wait:
		o.print(done)
		return nil
	case underWay && server.away != nil:
		o.print(done)
		return verdict(exitRetryable)
	}
	waiting := awaitingTask{program: o.program, facts: f, id: o.ID, generation: task.Generation}
	return waiting.waitFor(ctx)
}

// sure asks before something is deleted on a terminal, and says what stays.
func (o *taskCloseOptions) sure(task store.TaskDetail) (bool, error) {
	if o.Yes || task.Task.State == store.TaskDeleted {
		return true, nil
	}
	if !o.inTerminal || o.json {
		return false, usageError("deleting task %s ends its sessions and gives its worktrees back; give --yes if you are sure", o.ID)
	}
	held := 0
	for _, wt := range task.Worktrees {
		if wt.Lease.ReleasedAt == nil {
			held++
			o.note("  %s (branch %s)", shown(wt.Worktree.Path), shown(wt.Worktree.Branch))
		}
	}
	return o.agreed(fmt.Sprintf("Delete task %s, end %s and give back %s? Branches stay, and worktrees with something in them that could be lost.",
		o.ID, counted(task.SessionsLive, "live session", "live sessions"), counted(held, "worktree", "worktrees")), "Nothing was deleted."), nil
}

func (o *taskCloseOptions) message(task store.TaskDetail, changed bool, away error) string {
	did := "Task " + o.ID + " was " + o.State + " before"
	if changed {
		did = "Task " + o.ID + " is " + o.State
	}
	switch task.State {
	case store.TaskStateArchived:
		return did + " and holds nothing any more. Its branches stay; `" + name + " task unarchive " + o.ID + "` makes its worktrees again."
	case store.TaskStateDeleted:
		return did + " and holds nothing any more. Its branches stay."
	case store.TaskStateParked:
		reason := task.Finalization().ParkedReason
		return fmt.Sprintf("%s and waits (%s). %s", did, reason, whatNextForTask(o.ID, reason))
	}
	if away != nil {
		return did + ". Its release will start when Temporal is back: " + brief(away) + "."
	}
	return did + "; its release is under way. Its branches stay."
}

func (o *taskCloseOptions) print(done closedTask) {
	if o.json {
		o.printJSON(done)
		return
	}
	o.say("%s", done.Message)
	if done.Started && done.WebUI != "" {
		o.say("%s", done.WebUI)
	}
}

// whatNextForTask is whatNext for a task.
func whatNextForTask(id, reason string) string {
	retry := "`" + name + " task retry " + id + "`"
	switch reason {
	case teardown.ReasonPreserved:
		return "Commit, move or delete what is listed, then run " + retry + ". With --save-changes it saves uncommitted work to a ref itself."
	case teardown.ReasonRefused:
		return "What is listed is never removed by " + name + "; settle it by hand, then run " + retry + "."
	case teardown.ReasonHostUnreachable:
		return "It goes on by itself when unwind-worker runs on that host again."
	case teardown.ReasonSessionPreserved, teardown.ReasonSessionFailed:
		return "See to the sessions that are listed (`" + name + " status SESSION`), then run " + retry + ", which retries them, too."
	case teardown.ReasonSessionHeld:
		return "It goes on by itself when the sessions that are held are released; `" + name + " hold SESSION --release` lifts a hold."
	case teardown.ReasonCancelled:
		return "Its workflow was cancelled; run " + retry + " to go on."
	}
	return "Run " + retry + " when the cause is gone."
}
