package main

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"unwind/activities"
	"unwind/internal/runtime/kinds"
	"unwind/internal/store"
	"unwind/internal/temporalclient"
	"unwind/teardown"
	"unwind/test/devserver"
	"unwind/workflows"
)

// finalizer points the installation at a server of its own and works there as a
// worker does, with a pause between attempts that no test lives to see the end
// of.
func (b *bench) finalizer() {
	b.Helper()
	server := devserver.Start(b)
	b.environment = b.environment.with("TEMPORAL_ADDRESS="+server.Address, "UNWIND_UI_URL=http://ui.example")
	p, _, _ := b.program("")
	c, err := p.config()
	require.NoError(b, err)
	connection, err := temporalclient.Dial(b.Context(), temporalclient.Options{Program: "test", Logger: slog.New(slog.DiscardHandler), Env: b.environment})
	require.NoError(b, err)
	b.Cleanup(connection.Close)
	require.NoError(b, connection.EnsureSearchAttributes(b.Context()))
	c.Policy.InitialIntervalMS, c.Policy.MaximumIntervalMS = time.Hour.Milliseconds(), time.Hour.Milliseconds()
	facts := worker.New(connection.Client, c.TaskQueue, worker.Options{DisableRegistrationAliasing: true})
	facts.RegisterWorkflowWithOptions(workflows.FinalizeSession, workflow.RegisterOptions{Name: teardown.FinalizeSessionWorkflow})
	facts.RegisterActivity(&activities.Facts{Store: b.store(), Client: connection.Client, Policy: c.Policy, SearchAttributes: true, SeenWithin: time.Minute})
	host := worker.New(connection.Client, teardown.HostTaskQueue(c.TaskQueue, c.Host), worker.Options{DisableWorkflowWorker: true, DisableRegistrationAliasing: true})
	host.RegisterActivity(&activities.Host{Store: b.store(), Locks: c.Locks(), Worktrees: engine(c), Runtimes: kinds.All(),
		Resources: cleaner(c), SnapshotDir: c.Snapshots(), LockWait: c.LockWait})
	for _, w := range []worker.Worker{facts, host} {
		require.NoError(b, w.Start())
		b.Cleanup(w.Stop)
	}
	require.NoError(b, b.store().SeeHost(b.Context(), store.Host{ID: c.Host, Version: "test"}))
}

func TestFinalizationByTemporal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.finalizer()
	app := b.repository("app")
	wt := b.worktree(app, "wt")
	socket := b.tmux("s1", wt)
	b.add(teardown.Manifest{ID: "s1",
		Runtimes:  []teardown.Runtime{{Kind: "tmux", Socket: socket, Session: "s1"}},
		Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: wt}}})
	// Somebody else stands in the worktree, so that its removal waits for a next
	// attempt.
	_, end := b.process(wt)

	done := object[terminated](t, b.must("terminate", "s1", "--json"))
	require.True(t, done.Started)
	require.Equal(t, "http://ui.example/namespaces/default/workflows/finalize-session-s1", done.WebUI)
	var r report
	require.Eventually(t, func() bool {
		r = object[report](t, b.must("status", "s1", "--json"))
		return len(r.Live.Steps) == 1 && r.Live.Steps[0].State == stepWaiting && r.Live.Steps[0].NextAttemptAt != nil
	}, time.Minute, 100*time.Millisecond)
	require.Equal(t, teardown.PhaseWorktrees, r.Live.Phase)
	step := r.Live.Steps[0]
	require.Equal(t, teardown.RemoveWorktreeActivity, step.Step)
	require.Equal(t, teardown.CodeInUse, step.Failure.Code)
	text := b.must("status", "s1")
	require.Contains(t, text, "attempt 2 of 10, next in 59 min")
	require.Contains(t, text, "Session s1  Cleaning up")

	end()
	out := b.must("retry", "s1", "--wait", "--json")
	require.Equal(t, teardown.OutcomeFinalized, object[teardown.Result](t, out).Outcome)
	require.NoDirExists(t, wt)
	require.Equal(t, "s1\tfinished\tround 2\tfinalized\t"+wt+" removed\n", b.must("watch", "s1"))
	require.Contains(t, b.must("doctor"), "ok\tattributes\tall search attributes are registered")
}
