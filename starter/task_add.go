package main

import (
	"context"

	"github.com/spf13/cobra"

	"unwind/internal/store"
	"unwind/teardown"
)

type taskAddOptions struct {
	*program
	ID   string
	File string
}

func newTaskAddCommand(p *program) *cobra.Command {
	o := &taskAddOptions{program: p}
	command := &cobra.Command{
		Use:   "add ID",
		Short: "Open a task, or give an active one more worktrees",
		Long: `Open a task. With -f it holds worktrees from the start, listed as in a session's
manifest: {"worktrees":[{"repository":"/src/app","path":"/wt/t1","branch":"agent/t1"}]}.
Given again, more worktrees are added; those that it holds are left as they are.

A task is opened by its first session, too, so this is needed only for worktrees
that no session has registered yet.`,
		Example: `  unwind task add t1
  unwind task add t1 -f worktrees.json`,
		Args:              takesTaskID(&o.ID),
		ValidArgsFunction: p.completeTaskIDs,
		RunE:              runs(o.run),
	}
	command.Flags().StringVarP(&o.File, "file", "f", "", "JSON with the worktrees, - for standard input")
	return command
}

// addedTask is what task add prints with --json.
type addedTask struct {
	TaskID     string `json:"task_id"`
	Generation int64  `json:"generation"`
	// Added is false if the task was known.
	Added bool `json:"added"`
	// Worktrees counts those that it did not hold before.
	Worktrees int `json:"worktrees"`
}

func (o *taskAddOptions) run(ctx context.Context) error {
	var listed struct {
		Worktrees []teardown.WorktreeSpec `json:"worktrees"`
	}
	if o.File != "" {
		content, err := o.read(o.File)
		if err != nil {
			return err
		}
		if err := decodeStrict("the list of worktrees", content, &listed); err != nil {
			return err
		}
	}
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	a := addition{program: o.program, facts: f,
		manifest: teardown.Manifest{TaskID: o.ID, Host: f.config.Host, Worktrees: listed.Worktrees}}
	for _, check := range []func(*teardown.Manifest) error{checkWorktrees, checkParents} {
		if err := check(&a.manifest); err != nil {
			return err
		}
	}
	if err := a.canonical(); err != nil {
		return err
	}
	locks, err := a.lockPaths(ctx)
	defer release(locks)
	if err != nil {
		return err
	}
	if err := a.worktreesOf(ctx); err != nil {
		return err
	}
	task, opened, err := f.AddTask(ctx, store.NewTask{ID: o.ID, Host: f.config.Host,
		Worktrees: a.session.Worktrees, Retire: a.session.Retire, Lease: a.session.Lease})
	if err != nil {
		return err
	}
	o.done(addedTask{TaskID: o.ID, Generation: task.Generation, Added: opened, Worktrees: len(a.session.Worktrees)})
	return nil
}

func (o *taskAddOptions) done(added addedTask) {
	if o.json {
		o.printJSON(added)
		return
	}
	worktrees := counted(added.Worktrees, "worktree", "worktrees")
	switch {
	case added.Added && added.Worktrees > 0:
		o.say("Opened task %s with %s.", o.ID, worktrees)
	case added.Added:
		o.say("Opened task %s.", o.ID)
	case added.Worktrees > 0:
		o.say("Task %s holds %s more.", o.ID, worktrees)
	default:
		o.say("Task %s is open already and holds all of that; nothing to do.", o.ID)
	}
}
