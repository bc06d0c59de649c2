package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"unwind/internal/store"
	"unwind/teardown"
)

type taskListOptions struct{ *program }

func newTaskListCommand(p *program) *cobra.Command {
	o := &taskListOptions{program: p}
	return &cobra.Command{
		Use:   "list",
		Short: "List tasks",
		Long: `List tasks, from the database.

When piped, the columns are separated by tabs: id, state, reason, generation,
sessions, live sessions, worktrees that it holds.`,
		Example: `  unwind task list
  unwind task list --json`,
		Args: noArgs,
		RunE: runs(o.run),
	}
}

// taskLine is one task in a list with --json.
type taskLine struct {
	TaskID       string           `json:"task_id"`
	Generation   int64            `json:"generation"`
	State        store.TaskState  `json:"state"`
	CreatedAt    time.Time        `json:"created_at"`
	UpdatedAt    time.Time        `json:"updated_at"`
	TerminatedAt *time.Time       `json:"terminated_at"`
	Round        int64            `json:"round"`
	ParkedReason string           `json:"parked_reason"`
	FinishedAt   *time.Time       `json:"finished_at"`
	Outcome      teardown.Outcome `json:"outcome"`
	Sessions     int              `json:"sessions"`
	SessionsLive int              `json:"sessions_live"`
	Worktrees    int              `json:"worktrees"`
}

func (o *taskListOptions) run(ctx context.Context) error {
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	t, some := newTable(o.streams, "ID", "STATE", "REASON", "GEN", "SESSIONS", "LIVE", "WORKTREES"), false
	err = f.eachTask(ctx, func(task store.TaskSummary) {
		some = true
		if o.json {
			o.printJSON(taskLine{TaskID: task.ID, Generation: task.Generation, State: task.Status, CreatedAt: task.CreatedAt, UpdatedAt: task.UpdatedAt,
				TerminatedAt: task.TerminatedAt, Round: task.Round, ParkedReason: task.ParkedReason, FinishedAt: task.FinishedAt, Outcome: task.Outcome,
				Sessions: task.Sessions, SessionsLive: task.SessionsLive, Worktrees: task.Worktrees})
			return
		}
		t.add(cell{task.ID, bold}, cell{string(task.Status), taskStyle(task.Status)}, cell{text: task.ParkedReason}, cell{text: fmt.Sprint(task.Generation)},
			cell{text: itoa(task.Sessions)}, cell{text: itoa(task.SessionsLive)}, cell{text: itoa(task.Worktrees)})
	})
	switch {
	case err != nil:
		return err
	case o.json:
	case some:
		t.print()
	case o.outTerminal:
		o.note("No tasks. Open one with `%s task add ID`, or name it as \"task_id\" in a session's manifest.", name)
	}
	return nil
}
