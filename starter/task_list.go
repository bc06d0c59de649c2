package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"unwind/internal/store"
	"unwind/teardown"
)

type taskListOptions struct {
	*program
	State  string
	Reason string
}

var taskStates = []string{
	string(store.TaskStateActive), string(store.TaskStateArchiving), string(store.TaskStateArchived),
	string(store.TaskStateDeleting), string(store.TaskStateDeleted), string(store.TaskStateParked),
}

func newTaskListCommand(p *program) *cobra.Command {
	o := &taskListOptions{program: p}
	command := &cobra.Command{
		Use:   "list",
		Short: "List tasks",
		Long: `List tasks, from the database.

States: active; archiving, deleting, the release is under way; parked, waits for a
person, a host or a session; archived; deleted.

` + taskReasonsHelp + `

When piped, the columns are separated by tabs: id, state, reason, generation,
sessions, live sessions, worktrees that it holds.`,
		Example: `  unwind task list
  unwind task list --state parked --json`,
		Args: noArgs,
		RunE: runs(o.run),
	}
	flags := command.Flags()
	flags.StringVar(&o.State, "state", "", "only tasks in this state: "+strings.Join(taskStates, ", "))
	flags.StringVar(&o.Reason, "reason", "", "only tasks parked for this reason: "+strings.Join(parkedTaskReasons, ", "))
	completeWords(command, "state", taskStates)
	completeWords(command, "reason", parkedTaskReasons)
	return command
}

const taskReasonsHelp = `Reasons for which a task is parked are those of "unwind list", but for
runtime_refused, and:
  session_preserved   a session of it is parked, for what a person could miss
  session_failed      a session of it is parked for another reason
  session_held        a session of it is held`

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
	if err := oneOf("state", o.State, taskStates); err != nil {
		return err
	}
	if err := oneOf("reason", o.Reason, parkedTaskReasons); err != nil {
		return err
	}
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	t, some := newTable(o.streams, "ID", "STATE", "REASON", "GEN", "SESSIONS", "LIVE", "WORKTREES"), false
	err = f.eachTask(ctx, func(task store.TaskSummary) {
		if o.State != "" && o.State != string(task.Status) || o.Reason != "" && (o.Reason != task.ParkedReason || task.Status != store.TaskStateParked) {
			return
		}
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
