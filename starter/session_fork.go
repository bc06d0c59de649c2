package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"unwind/internal/lock"
	"unwind/internal/store"
	"unwind/internal/worktree"
	"unwind/teardown"
)

type sessionForkOptions struct {
	*program
	Parent, Child string
}

func newSessionForkCommand(p *program) *cobra.Command {
	o := &sessionForkOptions{program: p}
	return &cobra.Command{
		Use:   "fork PARENT CHILD",
		Short: "Register a session that shares another one's worktrees",
		Long: `Register session CHILD, which holds the worktrees that the live session PARENT
holds, on the same host and in the same task. A worktree goes when the last of the
sessions that hold it is finalized, whichever that is; "unwind session attach"
gives the child its own runtime and resources.

All worktrees or none: it is refused (65) if PARENT is unknown (session_not_found)
or not live (session_terminated), if a worktree is being removed
(worktree_deleting), was removed (worktree_removed), is not at its path on this
host (worktree_missing), or if the task is closed (task_closed). Again is a no-op,
whatever has become of PARENT.`,
		Example:           `  unwind session fork s1 s1-review`,
		Args:              o.args,
		ValidArgsFunction: p.completeIDs,
		RunE:              runs(o.run),
	}
}

func (o *sessionForkOptions) args(cmd *cobra.Command, args []string) error {
	if len(args) != 2 {
		return usageError("%s takes two ids, the session that is forked and the new one; see %s --help", cmd.CommandPath(), cmd.CommandPath())
	}
	o.Parent, o.Child = args[0], args[1]
	for _, id := range args {
		if err := teardown.ValidateID(id); err != nil {
			return err
		}
	}
	if o.Parent == o.Child {
		return usageError("a session cannot be its own fork; give the new one another id")
	}
	return nil
}

// forked is what session fork prints with --json.
type forked struct {
	SessionID  string   `json:"session_id"`
	Parent     string   `json:"parent"`
	Host       string   `json:"host"`
	Generation int64    `json:"generation"`
	Added      bool     `json:"added"`
	Worktrees  []string `json:"worktrees"`
}

func (o *sessionForkOptions) run(ctx context.Context) error {
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	fork := store.Fork{Parent: o.Parent, Child: o.Child}
	if child, worktrees, known, err := f.KnownFork(ctx, fork); err != nil || known {
		if err == nil {
			o.done(child, false, worktrees)
		}
		return err
	}
	parent, err := f.Session(ctx, o.Parent)
	if err != nil {
		return err
	}
	if parent.Host != f.config.Host {
		return &teardown.Error{Code: teardown.CodeForeignHost, Message: fmt.Sprintf(
			"session %s belongs to host %s and this is %s; run `%s session fork` there", o.Parent, parent.Host, f.config.Host, name)}
	}
	_, worktrees, err := f.Held(ctx, o.Parent)
	if err != nil {
		return err
	}
	locks, seen, err := o.see(ctx, f, worktrees)
	defer release(locks)
	if err != nil {
		return err
	}
	fork.Seen = seen
	child, added, err := f.Fork(ctx, fork)
	if err != nil {
		return err
	}
	o.done(child, added, worktrees)
	return nil
}

// see takes the path lock of each worktree and looks whether its directory is
// there: what is leased has to exist.
func (o *sessionForkOptions) see(ctx context.Context, f *facts, worktrees []store.Worktree) (locks []*lock.Held, seen []string, err error) {
	git := engine(f.config)
	for _, w := range worktrees { // by path, the order of the locks
		held, err := f.config.Locks().Path(ctx, w.Path, o.lockWait(f.config, shown(w.Path)))
		if err != nil {
			return locks, nil, err
		}
		locks = append(locks, held)
		at, err := git.Locate(worktree.Target{Repository: w.Repository, Path: w.Path, Nonce: w.Nonce}, w.QuarantinePath)
		if err == nil && at != worktree.AtPath {
			err = &teardown.Error{Code: teardown.CodeWorktreeMissing, Message: fmt.Sprintf(
				"the worktree %s of session %s is not at its path any more, so it cannot be shared; move it back (`git worktree move`)", shown(w.Path), o.Parent)}
		}
		if err != nil {
			return locks, nil, err
		}
		seen = append(seen, w.ID)
	}
	return locks, seen, nil
}

func (o *sessionForkOptions) done(child store.Session, added bool, worktrees []store.Worktree) {
	if o.json {
		paths := []string{}
		for _, w := range worktrees {
			paths = append(paths, w.Path)
		}
		slices.Sort(paths)
		o.printJSON(forked{SessionID: child.ID, Parent: o.Parent, Host: child.Host, Generation: child.Generation, Added: added, Worktrees: paths})
		return
	}
	if !added {
		o.say("Session %s is a fork of %s already; nothing to do.", child.ID, o.Parent)
		return
	}
	o.say("Registered session %s, which shares %s with %s.", child.ID, counted(len(worktrees), "worktree", "worktrees"), o.Parent)
}
