package main

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"unwind/activities"
	"unwind/internal/config"
	"unwind/internal/lock"
	"unwind/internal/reconcile"
	"unwind/internal/resource"
	"unwind/internal/runtime/kinds"
	"unwind/internal/store"
	"unwind/internal/telemetry"
	"unwind/internal/temporalclient"
	"unwind/internal/version"
	"unwind/internal/worktree"
	"unwind/teardown"
	"unwind/workflows"
)

const (
	// progressInterval is how old the progress may be that is shown of a running
	// step.
	progressInterval = 2 * time.Second
	// flushLimit bounds the sending of the last traces.
	flushLimit = 3 * time.Second
	// registrationWait is longer than another worker of this host takes to
	// register the search attributes.
	registrationWait = time.Minute
	// againLimit bounds looking for the search attributes while the worker runs.
	againLimit = 10 * time.Second
	// catchUpLimit is how long the first pass keeps this host's work waiting.
	catchUpLimit = 10 * time.Second
	// startFor is how long a pass starts sessions, before the next one looks for
	// everything else again.
	startFor = 20 * time.Second
	// databaseInterval is how often the database's file is looked at.
	databaseInterval = time.Second
	// A host that missed this many passes in a row counts as away, but not before
	// leastSeenWithin.
	missedPasses    = 4
	leastSeenWithin = time.Minute
)

// run starts the worker's parts in the order in which they need each other and
// returns when ctx has ended and they have stopped, or when one cannot go on.
func run(ctx context.Context, cfg config.Config, env environment, logger *slog.Logger) error {
	w := &process{cfg: cfg, logger: logger, fatal: make(chan error, 3)}
	defer w.stop()
	if err := w.start(ctx, env); err != nil {
		if ctx.Err() != nil {
			return nil // stopped before it was up
		}
		return err
	}
	select {
	case <-ctx.Done():
		logger.Info("Stopping; steps that run are let finish", "at_most", cfg.StopTimeout)
		return nil
	case err := <-w.fatal:
		return w.temporal.Explain(err)
	}
}

// process is a running worker; parts that have not been started are nil.
type process struct {
	cfg       config.Config
	logger    *slog.Logger
	store     *store.Store
	telemetry *telemetry.Telemetry
	temporal  *temporalclient.Connection
	workflows worker.Worker
	host      worker.Worker
	endLoop   func()
	// reached is where the last pass has stopped.
	reached reconcile.Reached
	// pruned is when snapshots were last looked through.
	pruned time.Time
	// fatal takes the error with which a part cannot go on; one of each worker
	// and of the loop fits.
	fatal chan error
}

func (w *process) start(ctx context.Context, env environment) (err error) {
	if w.store, err = store.Open(ctx, w.cfg.DatabaseURL); err != nil {
		return err
	}
	if w.telemetry, err = telemetry.Start(ctx, telemetry.Options{
		Program: program, Version: version.String(), MetricsAddress: w.cfg.MetricsAddress, Getenv: env.get, Logger: w.logger,
	}); err != nil {
		return err
	}
	if w.temporal, err = temporalclient.Dial(ctx, temporalclient.Options{
		Program: program, Logger: w.logger, Metrics: w.telemetry.Metrics, Interceptors: w.telemetry.Interceptors, Env: env,
	}); err != nil {
		return err
	}
	if err := w.registerSearchAttributes(ctx); err != nil {
		return err
	}
	if err := w.startWorkflows(); err != nil {
		return err
	}
	w.announce()
	// Before host work is taken: what was missed while no worker ran comes first.
	// A long backlog goes on beside it.
	caughtUp := w.startLoop()
	select {
	case <-caughtUp:
	case <-ctx.Done():
	case <-time.After(catchUpLimit):
		w.logger.Info("There is much to catch up with; this host's work is taken meanwhile")
	}
	return w.startHost()
}

func (w *process) registerSearchAttributes(ctx context.Context) error {
	if !w.cfg.SearchAttributes {
		return nil
	}
	// The server does not exclude two that register at the same time.
	held, err := w.cfg.Locks().Host(ctx, "search-attributes", lock.Wait{Limit: registrationWait})
	if err != nil {
		return err
	}
	defer held.Release()
	return w.temporal.EnsureSearchAttributes(ctx)
}

func (w *process) startWorkflows() error {
	part := worker.New(w.temporal.Client, w.cfg.TaskQueue, worker.Options{
		WorkerStopTimeout:           w.cfg.StopTimeout,
		DisableRegistrationAliasing: true,
		OnFatalError:                w.failed,
	})
	part.RegisterWorkflowWithOptions(workflows.FinalizeSession, workflow.RegisterOptions{Name: teardown.FinalizeSessionWorkflow})
	part.RegisterWorkflowWithOptions(workflows.FinalizeTask, workflow.RegisterOptions{Name: teardown.FinalizeTaskWorkflow})
	part.RegisterWorkflowWithOptions(workflows.Converge, workflow.RegisterOptions{Name: teardown.ConvergeWorkflow})
	part.RegisterWorkflowWithOptions(workflows.UnarchiveTask, workflow.RegisterOptions{Name: teardown.UnarchiveTaskWorkflow})
	part.RegisterWorkflowWithOptions(workflows.StartSession, workflow.RegisterOptions{Name: teardown.StartSessionWorkflow})
	part.RegisterActivity(&activities.Facts{
		Store: w.store, Client: w.temporal.Client, Policy: w.cfg.Policy, SearchAttributes: w.cfg.SearchAttributes,
		SeenWithin: max(missedPasses*w.cfg.ReconcileInterval, leastSeenWithin),
	})
	if err := part.Start(); err != nil {
		return w.temporal.Explain(err)
	}
	w.workflows = part
	return nil
}

func (w *process) startHost() error {
	part := worker.New(w.temporal.Client, w.hostQueue(), worker.Options{
		DisableWorkflowWorker:              true,
		MaxConcurrentActivityExecutionSize: w.cfg.Concurrency,
		MaxHeartbeatThrottleInterval:       progressInterval,
		WorkerStopTimeout:                  w.cfg.StopTimeout,
		DisableRegistrationAliasing:        true,
		OnFatalError:                       w.failed,
	})
	part.RegisterActivity(&activities.Host{
		Store:       w.store,
		Locks:       w.cfg.Locks(),
		Worktrees:   w.engine(),
		Runtimes:    kinds.All(),
		Resources:   resource.Cleaner{Roots: w.cfg.Roots, Home: w.cfg.Home, Protected: w.cfg.Protected()},
		SnapshotDir: w.cfg.Snapshots(),
		TmuxSocket:  w.cfg.TmuxSocket(),
		LockWait:    w.cfg.LockWait,
	})
	if err := part.Start(); err != nil {
		return w.temporal.Explain(err)
	}
	w.host = part
	return nil
}

func (w *process) engine() *worktree.Engine {
	return &worktree.Engine{
		Roots: w.cfg.Roots, Home: w.cfg.Home, Ignored: worktree.IgnoredPolicy(w.cfg.IgnoredFiles),
		Locks: w.cfg.Locks(), LockWait: w.cfg.LockWait,
	}
}

// startLoop begins with a pass, and listens to terminations from before it, so
// that none is missed between. What it answers is closed when that first pass is
// done.
func (w *process) startLoop() (caughtUp <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	first, poke := make(chan struct{}), make(chan struct{}, 1)
	told := w.store.Terminations(ctx)
	var parts sync.WaitGroup
	parts.Go(func() { reconcile.Listen(ctx, w.reconciliation(), told, poke) })
	parts.Go(func() { w.watchDatabase(ctx) })
	parts.Go(func() {
		more := reconcile.Logged(ctx, w.reconciliation())
		close(first)
		reconcile.Loop(ctx, w.cfg.ReconcileInterval, poke, more, w.pass)
	})
	w.endLoop = func() {
		cancel()
		parts.Wait()
	}
	return first
}

// watchDatabase ends the worker when its SQLite file is not at its path any
// more: facts that others write would never be found; and when the schema is not
// its own any more, which every transaction looks at, so a pass at the latest.
func (w *process) watchDatabase(ctx context.Context) {
	tick := time.NewTicker(databaseInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := cmp.Or(w.store.Outdated(), w.store.Lost()); err != nil {
			w.failed(err)
			return
		}
	}
}

// pass reconciles, and registers the search attributes again should Temporal
// have lost its data: without them no workflow would go on.
func (w *process) pass(ctx context.Context) (more bool) {
	more = reconcile.Logged(ctx, w.reconciliation())
	w.pruneSnapshots(ctx)
	bounded, cancel := context.WithTimeout(ctx, againLimit)
	defer cancel()
	if err := w.registerSearchAttributes(bounded); err != nil && ctx.Err() == nil {
		w.logger.Warn("The search attributes may be missing; the next pass looks again", "error", err)
	}
	return more
}

func (w *process) reconciliation() reconcile.Deps {
	return reconcile.Deps{
		Store: w.store, Temporal: w.temporal, TaskQueue: w.cfg.TaskQueue, Logger: w.logger, Serving: true,
		Host:     store.Host{ID: w.cfg.Host, Name: w.cfg.HostName, Version: version.String()},
		Runtimes: kinds.All(), Worktrees: w.engine(), Locks: w.cfg.Locks(), Policy: w.cfg.Policy,
		StartsPerSecond: w.cfg.StartsPerSecond, StartFor: startFor, Reached: &w.reached,
	}
}

func (w *process) announce() {
	w.logger.Info("Worker started", "version", version.String(), "host", w.cfg.Host,
		"workflow_queue", w.cfg.TaskQueue, "host_queue", w.hostQueue(), "database", w.cfg.Database(),
		"temporal", w.temporal.Address, "namespace", w.temporal.Namespace,
		"web_ui", w.temporal.WebURL(w.cfg.UIURL, ""), "metrics", w.telemetry.MetricsAddress)
}

func (w *process) hostQueue() string { return teardown.HostTaskQueue(w.cfg.TaskQueue, w.cfg.Host) }

func (w *process) failed(err error) { w.fatal <- err }

// stop ends what was started, last first. The two workers stop at the same time,
// so that together they take no longer than one stop time-out.
func (w *process) stop() {
	if w.endLoop != nil {
		w.endLoop()
	}
	var stopping sync.WaitGroup
	for _, part := range []worker.Worker{w.workflows, w.host} {
		if part != nil {
			stopping.Go(part.Stop)
		}
	}
	stopping.Wait()
	w.temporal.Close()
	if w.telemetry != nil {
		ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
		defer cancel()
		if err := w.telemetry.Stop(ctx); err != nil {
			w.logger.Warn("The last metrics or traces were not sent", "error", err)
		}
	}
	if w.store != nil {
		if err := w.store.Close(); err != nil {
			w.logger.Warn("The database was not closed", "error", err)
		}
	}
}
