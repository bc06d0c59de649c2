package main

import (
	"context"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"

	"unwind/internal/reconcile"
	"unwind/internal/store"
	"unwind/internal/version"
)

type reconcileOptions struct{ *program }

func newReconcileCommand(p *program) *cobra.Command {
	o := &reconcileOptions{program: p}
	return &cobra.Command{
		Use:   "reconcile",
		Short: "Bring the facts and the world together, as a worker does every now and then",
		Long: `Do one pass over the facts, as a worker does when it starts and every now and then:
record as terminated the live sessions of this host whose agent is confirmed gone,
after saving their uncommitted work to a ref; start the finalization of every
terminated session, of any host, that is neither finished, parked nor held; wake those
that waited for this host or keep nothing any more; and have finished what no
finalization will: worktrees that nobody holds any more, and what sessions without a
row still hold. It destroys nothing itself: that is left to workflows, whose steps
need a worker on this host.`,
		Example: `  unwind reconcile
  unwind reconcile --json`,
		Args: noArgs,
		RunE: runs(o.run),
	}
}

func (o *reconcileOptions) run(ctx context.Context) error {
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	server := o.dial(ctx)
	if server.away != nil {
		return server.away
	}
	defer server.Close()
	summary, err := reconcile.Once(ctx, reconcile.Deps{
		Store:           f.Store,
		Temporal:        server.Connection,
		TaskQueue:       f.config.TaskQueue,
		Host:            store.Host{ID: f.config.Host, Name: f.config.HostName, Version: version.String()},
		Logger:          slog.New(slog.DiscardHandler),
		Runtimes:        o.kinds(),
		Worktrees:       engine(f.config),
		Locks:           f.config.Locks(),
		Policy:          f.config.Policy,
		StartsPerSecond: f.config.StartsPerSecond,
	})
	if o.json {
		o.printJSON(summary)
	} else {
		o.print(summary)
	}
	if err == nil {
		return nil
	}
	if o.json {
		// The counts were printed and hold the failures.
		o.note("%s: %s", name, sentence(err.Error()))
		return verdict(exitOf(err))
	}
	return err
}

func (o *reconcileOptions) print(s reconcile.Summary) {
	o.say("Started %d, already under way %d, woken %d, failed %d.", s.Started, s.UnderWay, s.Woken, s.Failed)
	o.say("Agents alive %d, gone and recorded as terminated %d, not to be told %d.", s.Alive, s.Terminated, s.Unprobed)
	o.say("Left-overs being finished %d, worktrees without a holder that are kept %d, that nobody ever held %d.", s.Converging, s.Kept, s.Unclaimed)
	for _, found := range slices.Concat(s.Failures, s.Notes) {
		o.note("  %s%s: %s", found.Doing, about(found), sentence(found.Message))
	}
}

func about(found reconcile.Finding) string {
	switch {
	case found.WorktreeID != "":
		return " worktree " + found.WorktreeID
	case found.TaskID != "":
		return " task " + found.TaskID
	case found.SessionID != "":
		return " " + found.SessionID
	}
	return ""
}
