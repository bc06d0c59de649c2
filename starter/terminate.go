package main

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"unwind/internal/store"
	"unwind/teardown"
)

type terminateOptions struct {
	*program
	ID     string
	Source string
	Wait   bool
}

func newTerminateCommand(p *program) *cobra.Command {
	o := &terminateOptions{program: p}
	command := &cobra.Command{
		Use:   "terminate ID",
		Short: "Terminate a session and have what it held released",
		Long: `Record that a session is over, and start its finalization: its runtimes are
destroyed, its worktrees removed unless something could be lost, its agent's files
cleared.

The record is what counts. If Temporal does not answer, the finalization starts
when it is back. Terminating a session again changes nothing.

With --wait: exit code 0 if all is released, 3 if a worktree was kept, 4 if it
failed, 65 if something was refused, 75 if it is still under way.`,
		Example: `  unwind terminate s1
  unwind terminate s1 --source pull_request_merged --wait --json`,
		Args:              takesID(&o.ID),
		ValidArgsFunction: p.completeIDs,
		RunE:              runs(o.run),
	}
	command.Flags().StringVar(&o.Source, "source", teardown.SourceManual, "what ended the session, such as pull_request_merged")
	command.Flags().BoolVar(&o.Wait, "wait", false, "wait until all is released or a person has to decide")
	return command
}

// terminated is what terminate prints with --json, unless it waits.
type terminated struct {
	SessionID  string             `json:"session_id"`
	Generation int64              `json:"generation"`
	State      store.SessionState `json:"state"`
	// Changed is false if it was terminated before.
	Changed bool `json:"changed"`
	// Started: a run of the finalization exists.
	Started bool   `json:"started"`
	WebUI   string `json:"web_ui"`
	Message string `json:"message"`
}

func (o *terminateOptions) run(ctx context.Context) error {
	if o.Source == "" || len(o.Source) > 100 || strings.ContainsFunc(o.Source, unicode.IsControl) {
		return usageError("--source takes 1 to 100 characters without line breaks, such as pull_request_merged")
	}
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	session, changed, err := f.Terminate(ctx, o.ID, o.Source)
	if err != nil {
		return err
	}
	seen, err := f.look(ctx, o.ID)
	if err != nil {
		return err
	}
	done := terminated{SessionID: o.ID, Generation: session.Generation, State: seen.state, Changed: changed}
	server := o.dial(ctx)
	defer server.Close()
	if seen.state == store.StateTerminated {
		server.away = server.start(ctx, f.config.TaskQueue, session)
		done.Started = server.away == nil
	}
	if server.Connection != nil {
		done.WebUI = server.WebURL(f.config.UIURL, teardown.FinalizeSessionID(o.ID))
	}
	done.Message = o.message(seen, changed, server.away)
	if !o.Wait {
		o.print(done)
		return nil
	}
	return o.wait(ctx, f, server, done)
}

func (o *terminateOptions) message(seen sight, changed bool, away error) string {
	did := "Session " + o.ID + " was terminated before"
	if changed {
		did = "Session " + o.ID + " is terminated"
	}
	switch seen.state {
	case store.StateFinished:
		return did + " and is finalized; nothing to do."
	case store.StateParked:
		return fmt.Sprintf("%s and waits (%s). %s", did, seen.finalization.ParkedReason, whatNext(o.ID, seen.finalization.ParkedReason))
	case store.StateHeld:
		return did + ". " + heldText(seen.Session) + " Finalization starts after that."
	}
	if away != nil {
		return did + ". Finalization will start when Temporal is back: " + brief(away) + "."
	}
	return did + "; finalization is under way."
}

func (o *terminateOptions) print(done terminated) {
	if o.json {
		o.printJSON(done)
		return
	}
	o.say("%s", done.Message)
	if done.Started && done.WebUI != "" {
		o.say("%s", done.WebUI)
	}
}

func (o *terminateOptions) wait(ctx context.Context, f *facts, server temporal, done terminated) error {
	if done.State == store.StateTerminated && server.away != nil {
		o.print(done)
		return verdict(exitRetryable)
	}
	if o.errTerminal && !o.json {
		o.print(done)
	}
	waiting := awaiting{program: o.program, facts: f, server: server, id: o.ID, generation: done.Generation}
	code, err := waiting.waitFor(ctx)
	if err != nil {
		return err
	}
	return asVerdict(code)
}
