package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"unwind/internal/store"
	"unwind/internal/temporalclient"
	"unwind/teardown"
)

type restoreOptions struct {
	*program
	ID string
}

func newRestoreCommand(p *program) *cobra.Command {
	o := &restoreOptions{program: p}
	command := &cobra.Command{
		Use:   "restore ID",
		Short: "Make a terminated session live again",
		Long: `Make a terminated session live again, at its next generation: it holds what is
still there, and its finalization ends as restored. What is already gone is listed
and stays gone; a restore starts no agent. "unwind session attach" gives the
session what it needs beyond that, and "unwind recover" brings saved work back.

The session's host does it, under the session's lock: a worktree that was moved
aside is put back, and a runtime that lives is adopted. The restore is refused as a
whole, and nothing changes, if it cannot be told whether a runtime lives (75), if
something else is at the path of a worktree that was moved aside, or if the
session's task is closed (65).

While a step of the finalization is under way, it waits for its end, for at most
` + restorePatience.String() + `; then 75. "unwind hold ID" keeps the next attempt of a step from
beginning. 75, too, if no worker takes work on the session's host; 69 if Temporal
does not answer. A hold ends with the restore.`,
		Example: `  unwind restore s1
  unwind restore s1 --json`,
		Args:              takesID(&o.ID),
		ValidArgsFunction: p.completeIDs,
		RunE:              runs(o.run),
	}
	return command
}

const (
	// restorePatience is how long to wait for a step that is under way.
	restorePatience = 20 * time.Second
	restorePause    = 500 * time.Millisecond
	// restoreLimit bounds one request: the host's time to take it, and to do it.
	restoreLimit = time.Minute
)

func (o *restoreOptions) run(ctx context.Context) error {
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	seen, err := f.look(ctx, o.ID)
	if err != nil {
		return err
	}
	if seen.state == store.StateLive {
		return &teardown.Error{Code: teardown.CodeSessionLive, Message: fmt.Sprintf(
			"session %s is live, at generation %d; there is nothing to restore", o.ID, seen.Session.Generation)}
	}
	server := o.dial(ctx)
	defer server.Close()
	if server.away != nil {
		return server.away
	}
	restored, err := o.restore(ctx, f, server, seen.Session.Generation)
	if err != nil {
		return err
	}
	o.print(restored)
	return nil
}

// restore asks again while a step is under way.
func (o *restoreOptions) restore(ctx context.Context, f *facts, server temporal, generation int64) (teardown.RestoreResult, error) {
	request := teardown.RestoreRequest{Generation: generation, RequestedBy: o.whoAmI()}
	said := false
	for begun := now(); ; {
		bounded, cancel := context.WithTimeout(ctx, restoreLimit)
		restored, err := teardown.Restore(bounded, server.Client, f.config.TaskQueue, o.ID, request)
		late := bounded.Err() != nil && ctx.Err() == nil
		cancel()
		again := teardown.CodeOf(err) == teardown.CodeBusy || temporalclient.Ended(err)
		switch {
		case err == nil:
			return restored, nil
		case late:
			return restored, o.unanswered(err)
		case !again || ctx.Err() != nil || now().Sub(begun) > restorePatience:
			return restored, server.Explain(err)
		}
		if !said && o.errTerminal && !o.json {
			o.note("Waiting for the step that is under way …")
		}
		said = true
		select {
		case <-ctx.Done():
		case <-time.After(restorePause):
		}
	}
}

// unanswered: the request may still be taken up.
func (o *restoreOptions) unanswered(cause error) error {
	return &teardown.Error{Code: teardown.CodeTimeout, Retryable: true, Cause: cause, Message: fmt.Sprintf(
		"No worker has answered the restore of %s; start unwind-worker, and see `%s status %s` before you ask again", o.ID, name, o.ID)}
}

func (o *restoreOptions) print(restored teardown.RestoreResult) {
	if o.json {
		o.printJSON(restored)
		return
	}
	o.say("Session %s is %s, at generation %d.", restored.SessionID, o.styled("live again", green), restored.Generation)
	o.printParts("runtime", restored.Runtimes, restored.RuntimesTotal)
	o.printParts("worktree", restored.Worktrees, restored.WorktreesTotal)
	o.printParts("resource", restored.Resources, restored.ResourcesTotal)
}

func (o *restoreOptions) printParts(what string, parts []teardown.RestoredPart, total int) {
	for _, part := range parts {
		words, as := "restored", green
		if part.Gone {
			words, as = "already gone", yellow
		}
		kind := ""
		if part.Kind != "" {
			kind = part.Kind + " "
		}
		o.say("  %s %s%s: %s", what, kind, shown(part.Name), o.styled(words, as))
	}
	if more := total - len(parts); more > 0 {
		o.say("  and %s", counted(more, "more "+what, "more "+what+"s"))
	}
}
