package main

import (
	"context"

	"github.com/spf13/cobra"

	"unwind/internal/store"
	"unwind/teardown"
)

func newTaskCommand(p *program) *cobra.Command {
	command := &cobra.Command{
		Use:   "task",
		Short: "Keep worktrees beyond their sessions",
		Long: `Keep worktrees beyond their sessions. A task groups sessions ("task_id" in their
manifests) and holds their worktrees itself, so that they stay when a session
ends: a later session of the task finds them as they were left. They are given
back when the task is archived or deleted.`,
	}
	command.AddCommand(newTaskAddCommand(p), newTaskShowCommand(p), newTaskListCommand(p), newTaskArchiveCommand(p),
		newTaskUnarchiveCommand(p), newTaskDeleteCommand(p), newTaskRetryCommand(p))
	group(command)
	return command
}

// takesTaskID is takesID for a task.
func takesTaskID(id *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return usageError("%s needs the id of a task; see %s task list", cmd.CommandPath(), name)
		case 1:
			*id = args[0]
			return teardown.ValidateID(args[0])
		}
		return usageError("%s takes the id of one task, %q is one too many; see %s --help", cmd.CommandPath(), args[1], cmd.CommandPath())
	}
}

// eachTask walks all tasks, page by page.
func (f *facts) eachTask(ctx context.Context, do func(store.TaskSummary)) error {
	for after := ""; ; {
		page, err := f.Tasks(ctx, after, pageSize)
		if err != nil {
			return err
		}
		for _, task := range page {
			after = task.ID
			do(task)
		}
		if len(page) < pageSize {
			return nil
		}
	}
}

// completeTaskIDs offers the ids of tasks to the shell.
func (p *program) completeTaskIDs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
	defer cancel()
	f, err := p.openFacts(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer f.close()
	var ids []string
	// What could be read so far is offered.
	_ = f.eachTask(ctx, func(task store.TaskSummary) { ids = append(ids, task.ID+"\t"+string(task.Status)) })
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// startTask makes sure that a run of the task's finalization exists.
func (t temporal) startTask(ctx context.Context, taskQueue string, task store.Task) error {
	if t.away != nil {
		return t.away
	}
	_, err := teardown.StartTask(ctx, t.Client, taskQueue, teardown.FinalizeTaskInput{TaskID: task.ID, Generation: task.Generation})
	return t.Explain(err)
}
