package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"unwind/internal/store"
	"unwind/teardown"
)

type sessionAttachOptions struct {
	*program
	ID, File string
}

func newSessionAttachCommand(p *program) *cobra.Command {
	o := &sessionAttachOptions{program: p}
	command := &cobra.Command{
		Use:   "attach ID -f FILE",
		Short: "Give a live session more runtimes, worktrees and resources",
		Long: `Give a live session more to hold: what a restore found gone and was made anew,
a runtime beside the first, another worktree.

The file is a manifest as for "unwind session add"; its id may be left out. The
checks are the same, all or nothing, and what the session holds already is left as
it is, so that attaching the same again is a no-op.`,
		Example: `  unwind session attach s1 -f more.json
  echo '{"runtimes":[{"kind":"process","pid":4711}]}' | unwind session attach s1 -f -`,
		Args:              takesID(&o.ID),
		ValidArgsFunction: p.completeIDs,
		RunE:              runs(o.run),
	}
	command.Flags().StringVarP(&o.File, "file", "f", "", "manifest to read, - for standard input")
	return command
}

// attached is what session attach prints with --json: what was added.
type attached struct {
	SessionID  string `json:"session_id"`
	Generation int64  `json:"generation"`
	Runtimes   int    `json:"runtimes"`
	Worktrees  int    `json:"worktrees"`
	Resources  int    `json:"resources"`
}

func (o *sessionAttachOptions) run(ctx context.Context) error {
	content, err := o.read(o.File)
	if err != nil {
		return err
	}
	c, err := o.config()
	if err != nil {
		return err
	}
	m, err := parseAttachment(content, o.ID, c.Host)
	if err != nil {
		return err
	}
	if err := atHome(m, c.Host); err != nil {
		return err
	}
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	_, held, err := f.Held(ctx, o.ID)
	if err != nil {
		return err
	}
	a := addition{program: o.program, facts: f, manifest: m, attachTo: o.ID}
	if len(held) > 0 {
		a.home = held[0].Path
	}
	locks, err := a.begin(ctx)
	defer release(locks)
	if err != nil {
		return err
	}
	if err := a.look(ctx); err != nil {
		return err
	}
	done, err := f.Attach(ctx, a.session)
	if err != nil {
		return err
	}
	o.print(done)
	return nil
}

// parseAttachment reads a manifest that says what a session gets beyond what it
// has.
func parseAttachment(content []byte, id, host string) (teardown.Manifest, error) {
	var m teardown.Manifest
	if err := decodeStrict("the manifest", content, &m); err != nil {
		return m, err
	}
	switch {
	case m.ID == "":
		m.ID = id
	case m.ID != id:
		return m, invalid("the manifest is about session %s, not %s; correct or leave out its id", m.ID, id)
	}
	if m.TaskID != "" {
		return m, invalid(`"task_id" cannot be attached; a session is in the task that it was added to`)
	}
	if m.Host == "" {
		m.Host = host
	}
	return m, checkManifest(&m)
}

// atHome refuses a manifest of another machine: everything is looked at here.
func atHome(m teardown.Manifest, host string) error {
	if m.Host == host {
		return nil
	}
	return &teardown.Error{Code: teardown.CodeForeignHost, Message: fmt.Sprintf(
		"the manifest of session %s is for host %s and this is %s; run this command there", m.ID, m.Host, host)}
}

func (o *sessionAttachOptions) print(done store.Attached) {
	if o.json {
		o.printJSON(attached{SessionID: o.ID, Generation: done.Session.Generation,
			Runtimes: done.Runtimes, Worktrees: done.Worktrees, Resources: done.Resources})
		return
	}
	if done.Runtimes+done.Worktrees+done.Resources == 0 {
		o.say("Session %s holds all of this already; nothing to do.", o.ID)
		return
	}
	o.say("Attached to session %s: %s, %s, %s.", o.ID, counted(done.Runtimes, "runtime", "runtimes"),
		counted(done.Worktrees, "worktree", "worktrees"), counted(done.Resources, "resource", "resources"))
}
