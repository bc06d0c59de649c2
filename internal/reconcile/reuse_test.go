package reconcile_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"unwind/activities"
	"unwind/internal/reconcile"
	"unwind/internal/store"
	"unwind/teardown"
	"unwind/workflows"
)

// reused is a session whose id another one had before: that one's run waits on,
// for nothing has told it that its row is deleted.
func (b *bundle) reused(id string) {
	b.Helper()
	b.terminate(there, id)
	require.Equal(b, 1, b.once().Started)
	b.parked(id, 1)
	for _, table := range []string{"runtimes WHERE session_id", "sessions WHERE id"} {
		b.exec("DELETE FROM " + table + " = '" + id + "'")
	}
	b.terminate(there, id)
}

// second waits until the second generation waits for its host.
func (b *bundle) second(id string) {
	b.Helper()
	require.EventuallyWithT(b, func(c *assert.CollectT) {
		f := b.finalization(id)
		require.EqualValues(c, 2, f.Generation)
		require.Equal(c, teardown.ReasonHostUnreachable, f.ParkedReason)
	}, time.Minute, 20*time.Millisecond)
}

// woken passes until one has woken a run.
func (b *bundle) woken() {
	b.Helper()
	require.Eventually(b, func() bool {
		summary, err := reconcile.Once(b.Context(), b.Deps)
		return err == nil && summary.Woken == 1
	}, 20*time.Second, 20*time.Millisecond)
}

func TestARunThatWaitsForADeletedSessionGoesOnWithTheNextOfItsID(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.finalizer()
		b.reused("s1")
		b.woken()
		b.second("s1")
		require.Equal(t, reconcile.Summary{Host: here}, b.once(), "parked: left alone")
	})
}

// Temporal was away when the retry was asked for.
func TestSoItDoesAfterARetryThatOpenedTheFinalization(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.finalizer()
		b.reused("s1")
		round, recorded, err := b.Store.Retry(t.Context(), "s1", store.RetryOptions{By: "somebody"})
		require.NoError(t, err)
		require.True(t, recorded)
		require.EqualValues(t, 1, round)
		b.woken()
		b.second("s1")
	})
}

// A run that is about to begin is not asked what it is doing: nobody may be there
// to answer.
func TestAsksNoRunThatHasNoOlderGeneration(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.terminate(there, "s1", "s2", "s3")
		require.Equal(t, 3, b.once().Started)
		began := time.Now()
		require.Equal(t, reconcile.Summary{Host: here, UnderWay: 3}, b.once())
		require.Less(t, time.Since(began), 4*time.Second)
	})
}

// Its unarchiving was terminated by hand before it had told the run.
func TestATasksRunThatWaitsForAnOlderGenerationGoesOn(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		part := worker.New(b.Temporal.Client, queue, worker.Options{DisableRegistrationAliasing: true})
		part.RegisterWorkflowWithOptions(workflows.FinalizeTask, workflow.RegisterOptions{Name: teardown.FinalizeTaskWorkflow})
		part.RegisterWorkflowWithOptions(workflows.FinalizeSession, workflow.RegisterOptions{Name: teardown.FinalizeSessionWorkflow})
		part.RegisterActivity(&activities.Facts{Store: b.Store, Client: b.Temporal.Client, Policy: teardown.Policy{
			InitialIntervalMS: 50, MaximumIntervalMS: 100, MaximumAttempts: 2, StepTimeoutMS: 5000, HeartbeatMS: 2000,
			HostTimeoutMS: 200, Parallel: 1}})
		require.NoError(t, part.Start())
		t.Cleanup(part.Stop)
		_, _, err := b.Store.AddTask(t.Context(), store.NewTask{ID: "t1", Host: there})
		require.NoError(t, err)
		_, err = b.Store.AddSession(t.Context(), store.NewSession{ID: "s1", Host: there, TaskID: "t1", ManifestHash: "s1", Runtimes: []store.NewRuntime{
			{Handle: teardown.Runtime{Kind: teardown.KindProcess, Role: teardown.RoleAgent, PID: 1 << 22, StartTime: 1, Gone: true}}}})
		require.NoError(t, err)
		parks := func(generation int64) {
			t.Helper()
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				detail, err := b.Store.TaskDetail(t.Context(), "t1")
				require.NoError(c, err)
				require.Equal(c, generation, detail.Task.Generation)
				require.Equal(c, teardown.ReasonSessionFailed, detail.Finalization().ParkedReason)
			}, time.Minute, 20*time.Millisecond)
		}
		_, _, err = b.Store.CloseTask(t.Context(), "t1", store.TaskArchived)
		require.NoError(t, err)
		b.once()
		parks(1)
		_, err = b.Store.ReopenTask(t.Context(), "t1")
		require.NoError(t, err)
		_, _, err = b.Store.CloseTask(t.Context(), "t1", store.TaskArchived)
		require.NoError(t, err)
		b.woken()
		parks(2)
	})
}
