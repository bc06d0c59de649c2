package main

import (
	"context"
	"log/slog"

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
		Short: "Start every finalization that is due, as a worker does every now and then",
		Long: `Do one pass over the facts, as a worker does when it starts and every now and then:
start the finalization of every terminated session that is neither finished, parked
nor held, and wake those that waited for this host. Nothing is destroyed by it.`,
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
		Store:     f.Store,
		Temporal:  server.Connection,
		TaskQueue: f.config.TaskQueue,
		Host:      store.Host{ID: f.config.Host, Name: f.config.HostName, Version: version.String()},
		Logger:    slog.New(slog.DiscardHandler),
	})
	if o.json {
		o.printJSON(summary)
	} else {
		o.say("Started %d, already under way %d, woken %d, failed %d.", summary.Started, summary.UnderWay, summary.Woken, summary.Failed)
		for _, failure := range summary.Failures {
			o.note("  %s %s: %s", failure.Doing, failure.SessionID, sentence(failure.Message))
		}
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
