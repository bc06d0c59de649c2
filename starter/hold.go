package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"unwind/internal/store"
)

type holdOptions struct {
	*program
	ID      string
	For     time.Duration
	Release bool
}

func newHoldCommand(p *program) *cobra.Command {
	o := &holdOptions{program: p}
	command := &cobra.Command{
		Use:   "hold ID",
		Short: "Keep the finalizer away from a session for a while",
		Long: `Keep the finalizer away from a session: while it is held, no new step of its
finalization begins. Without --for it is held until further notice.`,
		Example: `  unwind hold s1 --for 2h
  unwind hold s1 --release`,
		Args:              takesID(&o.ID),
		ValidArgsFunction: p.completeIDs,
		RunE:              runs(o.run),
	}
	command.Flags().DurationVar(&o.For, "for", 0, "how long, such as 30m or 2h")
	command.Flags().BoolVar(&o.Release, "release", false, "hold it no longer; a terminated session is then finalized")
	command.MarkFlagsMutuallyExclusive("for", "release")
	return command
}

// held is what hold prints with --json.
type held struct {
	SessionID string     `json:"session_id"`
	Held      bool       `json:"held"`
	HeldUntil *time.Time `json:"held_until"`
	HeldBy    string     `json:"held_by"`
}

func (o *holdOptions) run(ctx context.Context) error {
	if o.For < 0 {
		return usageError("--for takes a duration above zero, such as 30m or 2h")
	}
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	var until *time.Time
	by := o.whoAmI()
	switch {
	case o.Release:
		by = ""
	case o.For > 0:
		at := now().Add(o.For)
		until = &at
	}
	session, err := f.Hold(ctx, o.ID, until, by)
	if err != nil {
		return err
	}
	if o.json {
		o.printJSON(held{SessionID: o.ID, Held: session.Held(now()), HeldUntil: session.HeldUntil, HeldBy: session.HeldBy})
	}
	if !o.Release {
		o.say("%s", heldText(session))
		return nil
	}
	return o.goOn(ctx, f)
}

// goOn starts what the hold has kept from starting.
func (o *holdOptions) goOn(ctx context.Context, f *facts) error {
	seen, err := f.look(ctx, o.ID)
	if err != nil {
		return err
	}
	if seen.state != store.StateTerminated {
		o.say("Session %s is not held.", o.ID)
		return nil
	}
	server := o.dial(ctx)
	defer server.Close()
	if err := server.start(ctx, f.config.TaskQueue, seen.Session); err != nil {
		o.say("Session %s is not held. Finalization will start when Temporal is back: %s.", o.ID, brief(err))
		return nil
	}
	o.say("Session %s is not held; finalization is under way.", o.ID)
	return nil
}
