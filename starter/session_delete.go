package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"unwind/internal/store"
	"unwind/teardown"
)

type sessionDeleteOptions struct {
	*program
	ID  string
	Yes bool
}

func newSessionDeleteCommand(p *program) *cobra.Command {
	o := &sessionDeleteOptions{program: p}
	command := &cobra.Command{
		Use:   "delete ID",
		Short: "Forget a session that is finalized, and touch nothing else",
		Long: `Delete the row of a session that is finalized, or that waits for a person and
holds nothing any more. Nothing on any machine is touched: worktrees that were kept,
files, branches and saved work stay, and are listed. It is refused (65) while the
session is live, is being finalized, or holds anything.

On a terminal it asks first; elsewhere give --yes. Deleting what is not there is
refused as session_not_found.`,
		Example: `  unwind session delete s1
  unwind session delete s1 --yes --json`,
		Args:              takesID(&o.ID),
		ValidArgsFunction: p.completeIDs,
		RunE:              runs(o.run),
	}
	command.Flags().BoolVar(&o.Yes, "yes", false, "do not ask")
	return command
}

// deleted is what session delete prints with --json.
type deleted struct {
	SessionID string `json:"session_id"`
	Deleted   bool   `json:"deleted"`
	Stays     stays  `json:"stays"`
}

// stays lists what a deleted session leaves behind.
type stays struct {
	Worktrees []stayingWorktree `json:"worktrees"`
	Files     []string          `json:"files"`
	Branches  []repositoryRef   `json:"branches"`
	SavedRefs []repositoryRef   `json:"saved_refs"`
}

type stayingWorktree struct {
	Path  string        `json:"path"`
	State string        `json:"state"`
	Code  teardown.Code `json:"code"`
}

type repositoryRef struct {
	Repository string `json:"repository"`
	Name       string `json:"name"`
}

func (o *sessionDeleteOptions) run(ctx context.Context) error {
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	left, err := f.Leaves(ctx, o.ID)
	if err != nil {
		return err
	}
	if !o.Yes {
		if sure, err := o.sure(staysOf(left)); err != nil || !sure {
			return err
		}
	}
	left, done, err := f.DeleteSession(ctx, o.ID)
	if err != nil {
		return err
	}
	if done && left.Parked {
		o.endWaiting(ctx)
	}
	if o.json {
		o.printJSON(deleted{SessionID: o.ID, Deleted: done, Stays: staysOf(left)})
		return nil
	}
	o.say("Session %s is deleted.", o.ID)
	if o.Yes {
		o.tell(o.say, staysOf(left))
	}
	return nil
}

// endWaiting has the run that waits for the session end, which finds no such
// session. It is a courtesy: one that did not hear of it goes on with the next
// session of this id.
func (o *sessionDeleteOptions) endWaiting(ctx context.Context) {
	server := o.dial(ctx)
	if server.away != nil {
		return
	}
	defer server.Close()
	bounded, cancel := context.WithTimeout(ctx, liveLimit)
	defer cancel()
	_ = server.Client.SignalWorkflow(bounded, teardown.FinalizeSessionID(o.ID), "", teardown.RetrySignal,
		teardown.RetryRequest{RequestedBy: "session delete"})
}

func (o *sessionDeleteOptions) sure(left stays) (bool, error) {
	if !o.inTerminal || o.json {
		return false, usageError("a session's row cannot be brought back; give --yes if you are sure")
	}
	o.tell(o.note, left)
	return o.agreed("Forget session "+o.ID+"?", "Nothing was deleted."), nil
}

// tell says what stays.
func (o *sessionDeleteOptions) tell(say func(string, ...any), left stays) {
	for _, w := range left.Worktrees {
		say("  stays: worktree %s, %s%s", shown(w.Path), w.State, because(w.Code))
	}
	for _, path := range left.Files {
		say("  stays: %s", shown(path))
	}
	for _, ref := range left.Branches {
		say("  stays: branch %s of %s", shown(ref.Name), shown(ref.Repository))
	}
	for _, ref := range left.SavedRefs {
		say("  stays: saved work in %s of %s", shown(ref.Name), shown(ref.Repository))
	}
}

func staysOf(left store.Left) stays {
	s := stays{Worktrees: []stayingWorktree{}, Files: []string{}, Branches: []repositoryRef{}, SavedRefs: []repositoryRef{}}
	for _, w := range left.Worktrees {
		s.Worktrees = append(s.Worktrees, stayingWorktree{Path: w.Worktree.Path, State: w.Worktree.State, Code: w.Lease.Code})
	}
	for _, r := range left.Resources {
		s.Files = append(s.Files, r.Path)
	}
	add := func(to *[]repositoryRef, repository, name string) {
		ref := repositoryRef{Repository: repository, Name: name}
		if name != "" && !slices.Contains(*to, ref) {
			*to = append(*to, ref)
		}
	}
	for _, w := range left.Held {
		add(&s.Branches, w.Worktree.Repository, w.Worktree.Branch)
		add(&s.SavedRefs, w.Worktree.Repository, w.Lease.SavedRef)
	}
	return s
}
