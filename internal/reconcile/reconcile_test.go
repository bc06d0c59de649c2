package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"unwind/activities"
	"unwind/internal/reconcile"
	"unwind/internal/store"
	"unwind/teardown"
	"unwind/workflows"
)

const (
	here  = "host-1"
	there = "host-2"
	queue = "unwind"
)

func TestOnlyAWorkerIsSeen(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.Serving = false
		_, err := reconcile.Once(t.Context(), b.Deps)
		require.NoError(t, err)
		_, seen, err := b.Store.Host(t.Context(), here)
		require.NoError(t, err)
		require.False(t, seen, "a host whose steps nobody takes is away")
	})
}

// add registers sessions on a host; each holds a process that ended long ago.
func (b *bundle) add(host string, ids ...string) {
	b.Helper()
	for _, id := range ids {
		_, err := b.Store.AddSession(b.Context(), store.NewSession{ID: id, Host: host, ManifestHash: id, Runtimes: []store.NewRuntime{
			{Handle: teardown.Runtime{Kind: teardown.KindProcess, Role: teardown.RoleAgent, PID: 1 << 22, StartTime: 1, Gone: true}}}})
		require.NoError(b, err)
	}
}

func (b *bundle) terminate(host string, ids ...string) {
	b.Helper()
	b.add(host, ids...)
	for _, id := range ids {
		_, _, err := b.Store.Terminate(b.Context(), id, "test")
		require.NoError(b, err)
	}
}

// park leaves a terminated session as a run that met an obstacle does.
func (b *bundle) park(host, id, reason string) {
	b.Helper()
	b.terminate(host, id)
	begun, err := b.Store.Begin(b.Context(), teardown.BeginInput{SessionID: id})
	require.NoError(b, err)
	_, err = b.Store.Park(b.Context(), teardown.ParkInput{Step: begun.Step, Reason: reason})
	require.NoError(b, err)
}

// finish leaves a session as a run that released everything does.
func (b *bundle) finish(id string) {
	b.Helper()
	_, err := b.Store.AddSession(b.Context(), store.NewSession{ID: id, Host: here, ManifestHash: id})
	require.NoError(b, err)
	_, _, err = b.Store.Terminate(b.Context(), id, "test")
	require.NoError(b, err)
	begun, err := b.Store.Begin(b.Context(), teardown.BeginInput{SessionID: id})
	require.NoError(b, err)
	finished, err := b.Store.Finish(b.Context(), begun.Step)
	require.NoError(b, err)
	require.Equal(b, teardown.OutcomeFinalized, finished.Result.Outcome)
}

// runs reports whether a session's finalization has a run.
func (b *bundle) runs(id string) bool {
	b.Helper()
	_, err := b.Temporal.Client.DescribeWorkflow(b.Context(), teardown.FinalizeSessionID(id), "")
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return false
	}
	require.NoError(b, err)
	return true
}

// finalization is the newest one of a session.
func (b *bundle) finalization(id string) store.Finalization {
	b.Helper()
	detail, err := b.Store.SessionDetail(b.Context(), id)
	require.NoError(b, err)
	require.NotEmpty(b, detail.Finalizations)
	return detail.Finalizations[len(detail.Finalizations)-1]
}

func (b *bundle) once() reconcile.Summary {
	b.Helper()
	summary, err := reconcile.Once(b.Context(), b.Deps)
	require.NoError(b, err)
	return summary
}

func TestStartsWhatIsTerminatedAndNothingElse(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.add(here, "live")
		b.terminate(here, "mine", "held")
		b.terminate(there, "theirs")
		b.park(here, "kept", teardown.ReasonPreserved)
		b.park(here, "cancelled", teardown.ReasonCancelled)
		b.finish("done")
		_, err := b.Store.Hold(b.Context(), "held", nil, "somebody")
		require.NoError(t, err)

		require.Equal(t, reconcile.Summary{Host: here, Started: 2}, b.once())
		for id, want := range map[string]bool{
			"mine": true, "theirs": true, "live": false, "held": false, "kept": false, "cancelled": false, "done": false} {
			require.Equal(t, want, b.runs(id), id)
		}
		require.Equal(t, reconcile.Summary{Host: here, UnderWay: 2}, b.once(), "again")

		_, err = b.Store.Hold(b.Context(), "held", nil, "")
		require.NoError(t, err)
		require.Equal(t, reconcile.Summary{Host: here, Started: 1, UnderWay: 2}, b.once(), "no longer held")
	})
}

func TestRecordsThatTheHostWasSeen(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		before := time.Now().Add(-time.Second)
		b.once()
		host, found, err := b.Store.Host(t.Context(), here)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, "one", host.Name)
		require.Equal(t, "v1", host.Version)
		require.True(t, host.LastSeen.After(before))
	})
}

func TestWakesWhatWaitedForThisHostAndNothingElse(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.park(here, "waits-for-us", teardown.ReasonHostUnreachable)
		b.park(there, "waits-for-them", teardown.ReasonHostUnreachable)
		b.park(here, "exhausted", teardown.ReasonAttemptsExhausted)

		summary := b.once()
		require.Equal(t, 1, summary.Woken)
		require.Zero(t, summary.Started)
		require.Zero(t, summary.Failed)
		woken := b.finalization("waits-for-us")
		require.Nil(t, woken.ParkedAt)
		require.EqualValues(t, 2, woken.Round)
		require.Equal(t, "reconcile on "+here, woken.RequestedBy)
		require.True(t, b.runs("waits-for-us"))
		for _, id := range []string{"waits-for-them", "exhausted"} {
			require.NotNil(t, b.finalization(id).ParkedAt, id)
			require.False(t, b.runs(id), id)
		}
	})
}

func TestABacklogIsStartedInPartsThatAreWorkedOff(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.Window, b.StartFor = 3, 8*time.Second
		var ids []string
		for i := range 7 {
			ids = append(ids, fmt.Sprintf("s%d", i))
		}
		b.terminate(here, ids...)
		// Nobody works on what is started, which is found out after longer than a pass
		// may start.
		summary := b.once()
		require.Equal(t, 4, summary.Started, "the fourth after the first three were given up")
		require.True(t, summary.More)
		require.Zero(t, summary.Failed)
		summary = b.once()
		require.Positive(t, summary.UnderWay)
		b.finalizer()
		total := 4 + summary.Started
		require.Eventually(t, func() bool {
			summary := b.once()
			total += summary.Started
			return !summary.More && total == len(ids)
		}, time.Minute, 10*time.Millisecond)
	})
}

// begun lists four sessions whose finalizations have begun, on another host.
func (b *bundle) begun() []string {
	b.Helper()
	ids := []string{"s1", "s2", "s3", "s4"}
	b.terminate(there, ids...)
	for _, id := range ids {
		_, err := b.Store.Begin(b.Context(), teardown.BeginInput{SessionID: id})
		require.NoError(b, err)
	}
	return ids
}

// Temporal has lost its data, say, and asking after each run takes long.
func TestWhatIsUnderWayIsReachedInTurnByPassesThatAreBounded(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		ids := b.begun()
		b.StartFor, b.Reached = time.Nanosecond, &reconcile.Reached{}
		stand := b.answer(func(string) error { return nil })
		for i := range ids {
			summary := b.once()
			require.Equal(t, 1, summary.Started)
			require.Equal(t, i < len(ids)-1, summary.More, "the loop goes on at once while there are others")
		}
		require.Equal(t, ids, stand.asked)
		require.Equal(t, 1, b.once().UnderWay)
		require.Equal(t, append(ids, "s1"), stand.asked, "from the beginning")

		b.StartFor = 0
		require.Equal(t, reconcile.Summary{Host: here, UnderWay: 3}, b.once(), "the rest at once where there is no bound")
		require.Equal(t, reconcile.Summary{Host: here, UnderWay: 4}, b.once())
	})
}

// A few that nobody answers must not keep the others waiting for ever.
func TestWhatIsUnderWayGoesOnBehindWhatWasNotAnswered(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.begun()
		b.Reached = &reconcile.Reached{}
		b.answer(func(id string) error {
			if id != "s4" {
				return serviceerror.NewUnavailable("its shard is away")
			}
			return nil
		})
		summary, err := reconcile.Once(t.Context(), b.Deps)
		require.Error(t, err)
		require.Zero(t, summary.Started)
		require.False(t, summary.More)
		require.Equal(t, 1, b.once().Started)
	})
}

func TestGoesThroughAllPages(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.Window = 1000
		var ids []string
		for i := range 220 {
			ids = append(ids, fmt.Sprintf("s%03d", i))
		}
		b.terminate(here, ids...)
		require.Equal(t, reconcile.Summary{Host: here, Started: len(ids)}, b.once())
	})
}

// answering is a client whose server answers some starts with an error of the
// test's.
type answering struct {
	client.Client
	fails func(sessionID string) error
	asked []string
}

func (a *answering) ExecuteWorkflow(ctx context.Context, o client.StartWorkflowOptions, workflow any, args ...any) (client.WorkflowRun, error) {
	id := args[0].(teardown.FinalizeSessionInput).SessionID
	a.asked = append(a.asked, id)
	if err := a.fails(id); err != nil {
		return nil, err
	}
	return a.Client.ExecuteWorkflow(ctx, o, workflow, args...)
}

func (b *bundle) answer(fails func(sessionID string) error) *answering {
	stand := &answering{Client: b.Temporal.Client, fails: fails}
	through := *b.Temporal
	through.Client = stand
	b.Temporal = &through
	return stand
}

func TestOneFailureStopsNothing(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.terminate(here, "s1", "s2", "s3")
		b.answer(func(id string) error {
			if id == "s2" {
				return serviceerror.NewResourceExhausted(0, "too many")
			}
			return nil
		})
		summary, err := reconcile.Once(t.Context(), b.Deps)
		require.Equal(t, teardown.CodeTemporalUnavailable, teardown.CodeOf(err))
		require.Equal(t, 2, summary.Started)
		require.Equal(t, 1, summary.Failed)
		require.Equal(t, "s2", summary.Failures[0].SessionID)
		require.Equal(t, teardown.CodeTemporalUnavailable, summary.Failures[0].Code)

		printed, err := json.Marshal(summary)
		require.NoError(t, err)
		require.Contains(t, string(printed), `"started":2,"under_way":0,"woken":0,"alive":0,"terminated":0,"unprobed":0,"converging":0,"kept":0,"unclaimed":0,"failed":1,"more":false,"failures":[{"session_id":"s2","doing":"start",`)
	})
}

func TestDoesNotAskAnAbsentTemporalForEverySession(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.terminate(here, "s1", "s2", "s3", "s4", "s5")
		stand := b.answer(func(string) error { return serviceerror.NewUnavailable("away") })
		summary, err := reconcile.Once(t.Context(), b.Deps)
		require.ErrorContains(t, err, "cannot be reached")
		require.Equal(t, 3, summary.Failed)
		require.Equal(t, []string{"s1", "s2", "s3"}, stand.asked)
		_, found, err := b.Store.Host(t.Context(), here)
		require.NoError(t, err)
		require.True(t, found, "the database is there all the same")
	})
}

func TestAnswersTheFirstErrorOfTheDatabase(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		require.NoError(t, b.Store.Close())
		summary, err := reconcile.Once(t.Context(), b.Deps)
		require.NotEmpty(t, teardown.CodeOf(err))
		parts := map[store.Dialect]int{store.SQLite: 11, store.Postgres: 12}[b.dialect] // one is for several hosts
		require.Equal(t, parts, summary.Failed, "each part was tried")
		require.Equal(t, "record that this host was seen", summary.Failures[0].Doing)
	})
}

// finalizer runs workflows and facts, but no host's steps.
func (b *bundle) finalizer() {
	b.Helper()
	part := worker.New(b.Temporal.Client, queue, worker.Options{DisableRegistrationAliasing: true})
	part.RegisterWorkflowWithOptions(workflows.FinalizeSession, workflow.RegisterOptions{Name: teardown.FinalizeSessionWorkflow})
	part.RegisterActivity(&activities.Facts{Store: b.Store, Client: b.Temporal.Client, Policy: teardown.Policy{
		InitialIntervalMS: 50, MaximumIntervalMS: 100, MaximumAttempts: 2, StepTimeoutMS: 5000, HeartbeatMS: 2000,
		HostTimeoutMS: 200, Parallel: 1}})
	require.NoError(b, part.Start())
	b.Cleanup(part.Stop)
}

// steps runs this host's steps, and the workflows that finish what no
// finalization will.
func (b *bundle) steps() {
	b.Helper()
	flows := worker.New(b.Temporal.Client, queue, worker.Options{DisableRegistrationAliasing: true})
	flows.RegisterWorkflowWithOptions(workflows.Converge, workflow.RegisterOptions{Name: teardown.ConvergeWorkflow})
	flows.RegisterWorkflowWithOptions(workflows.UnarchiveTask, workflow.RegisterOptions{Name: teardown.UnarchiveTaskWorkflow})
	flows.RegisterActivity(&activities.Facts{Store: b.Store, Policy: teardown.Policy{InitialIntervalMS: 10, MaximumIntervalMS: 10,
		StepTimeoutMS: 60_000, HeartbeatMS: 30_000}})
	steps := worker.New(b.Temporal.Client, teardown.HostTaskQueue(queue, here), worker.Options{DisableWorkflowWorker: true})
	steps.RegisterActivity(&activities.Host{Store: b.Store, Locks: b.Locks, Worktrees: b.Worktrees, Runtimes: b.Runtimes, LockWait: time.Second})
	for _, part := range []worker.Worker{flows, steps} {
		require.NoError(b, part.Start())
		b.Cleanup(part.Stop)
	}
}

// parked waits until a session's finalization waits for its host in a round.
func (b *bundle) parked(id string, round int64) {
	b.Helper()
	require.EventuallyWithT(b, func(c *assert.CollectT) {
		detail, err := b.Store.SessionDetail(b.Context(), id)
		require.NoError(c, err)
		require.Len(c, detail.Finalizations, 1)
		require.Equal(c, round, detail.Finalizations[0].Round)
		require.Equal(c, teardown.ReasonHostUnreachable, detail.Finalizations[0].ParkedReason)
	}, time.Minute, 20*time.Millisecond)
}

// A retry is a fact before it is a signal. With Temporal away the signal is
// lost, and the run waits on.
func TestDeliversARetryThatItsRunNeverHeardOf(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		b.finalizer()
		b.terminate(there, "s1")
		require.Equal(t, 1, b.once().Started)
		b.parked("s1", 1)
		require.Equal(t, reconcile.Summary{Host: here}, b.once(), "parked: left alone")

		_, recorded, err := b.Store.Retry(t.Context(), "s1", store.RetryOptions{By: "somebody"})
		require.NoError(t, err)
		require.True(t, recorded)
		// The run may still be on its way to where it shows that it waits.
		require.Eventually(t, func() bool {
			summary, err := reconcile.Once(t.Context(), b.Deps)
			return err == nil && summary.Woken == 1
		}, time.Minute, 20*time.Millisecond)
		b.parked("s1", 2)
	})
}

func TestLoopGoesOnUntilItIsEnded(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, b *bundle) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			reconcile.Loop(ctx, 20*time.Millisecond, nil, false, func(ctx context.Context) bool { return reconcile.Logged(ctx, b.Deps) })
			close(ended)
		}()
		for _, id := range []string{"first", "second"} {
			b.terminate(here, id)
			require.Eventually(t, func() bool {
				_, err := b.Temporal.Client.DescribeWorkflow(t.Context(), teardown.FinalizeSessionID(id), "")
				return err == nil
			}, time.Minute, 20*time.Millisecond, id)
		}
		cancel()
		<-ended
	})
}
