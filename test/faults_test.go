package test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	workflowpb "go.temporal.io/api/workflow/v1"

	"unwind/teardown"
	"unwind/test/pgtest"
)

// halfWay installs, adds a session and has its finalization wait at a point.
func (i *installation) halfWay(t *testing.T, point string) (a *agent, w *worker, goOn func()) {
	t.Helper()
	a = i.agent("s1")
	i.add(a)
	hold, mark := filepath.Join(i.dir, "hold"), filepath.Join(i.dir, "fault")
	write(t, hold, "")
	w = i.worker("UNWIND_FAULT_POINT="+point, "UNWIND_FAULT_MARK="+mark, "UNWIND_FAULT_HOLD="+hold)
	i.must("terminate", a.id)
	i.until("at the point", func() bool { return exists(mark) })
	return a, w, func() { require.NoError(t, os.Remove(hold)) }
}

// requireDoneOnce checks what every fault has to end in: all is released, in one
// round, and the branch still has its commit.
func (i *installation) requireDoneOnce(t *testing.T, a *agent) {
	t.Helper()
	s := i.store()
	i.untilFinished(s, a.id)
	i.requireReleased(a)
	require.Equal(t, int64(1), finalization(t, s, a.id).Round, "nobody had to retry")
	result, err := s.Result(t.Context(), a.id, 1)
	require.NoError(t, err)
	require.Equal(t, teardown.OutcomeFinalized, result.Outcome)
	require.Equal(t, 2, result.Resources.Cleared)
}

func TestTemporalRestartedWhileAStepRuns(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		i.takeOwnServer(t)
		a, _, goOn := i.halfWay(t, "moved aside")
		require.NoError(t, i.server.Stop())
		goOn()
		require.NoError(t, i.server.Resume())
		i.requireDoneOnce(t, a)
	})
}

func TestWorkflowTerminatedByHandWhileAStepRuns(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		a, _, goOn := i.halfWay(t, "moved aside")
		id := teardown.FinalizeSessionID(a.id)
		terminated, err := i.client.DescribeWorkflow(t.Context(), id, "")
		require.NoError(t, err)
		require.NoError(t, i.client.TerminateWorkflow(t.Context(), id, "", "by hand"))
		i.until("another run started from the facts", func() bool {
			run, err := i.client.DescribeWorkflow(t.Context(), id, "")
			return err == nil && run.WorkflowExecution.RunID != terminated.WorkflowExecution.RunID
		})
		goOn()
		i.requireDoneOnce(t, a)
	})
}

func TestDatabaseRestartedWhileAStepRuns(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]syscall.Signal{"in order": pgtest.Fast, "as by a crash": pgtest.Immediate} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := install(t)
			i.env = []string{hourly}
			server := pgtest.StartPrivate(t)
			i.database = server.URL
			i.must("migrate")
			a, _, goOn := i.halfWay(t, "runtime destroyed")
			server.Stop(t, how)
			goOn()
			i.until("asked in vain", func() bool { return i.triedAgain(a) })
			server.Start(t)
			i.requireDoneOnce(t, a)
			// The worker hears of terminations again, too.
			next := i.agent("s2")
			i.add(next)
			i.sql("UPDATE sessions SET terminated_at = now() WHERE id = '" + next.id + "'")
			i.requireDoneOnce(t, next)
		})
	}
}

// triedAgain: a step of the session's finalization is at its second attempt.
func (i *installation) triedAgain(a *agent) bool {
	i.t.Helper()
	run, err := i.client.DescribeWorkflow(i.t.Context(), teardown.FinalizeSessionID(a.id), "")
	require.NoError(i.t, err)
	return slices.ContainsFunc(run.RawResponse.GetPendingActivities(), func(step *workflowpb.PendingActivityInfo) bool { return step.GetAttempt() > 1 })
}

// The facts' times come from a clock that was wrong by years, in both
// directions, and is right again: what was written then decides nothing.
func TestClockSteppedBetweenSteps(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		for name, then := range map[string]string{"back": "2061-01-01 00:00:00+00:00", "forward": "1991-01-01 00:00:00+00:00"} {
			a := i.agent(name)
			i.add(a)
			i.must("terminate", a.id)
			i.workerThatDiesAtMark("released", filepath.Join(i.dir, name)).awaitDeath(t)
			i.sql("UPDATE sessions SET created_at = '"+then+"', updated_at = '"+then+"' WHERE id = '"+a.id+"'",
				"UPDATE sessions SET terminated_at = '"+then+"' WHERE id = '"+a.id+"'",
				"UPDATE finalizations SET started_at = '"+then+"', runtime_released_at = '"+then+"', last_attempt_at = '"+then+"' WHERE holder_id = '"+a.id+"'",
				"UPDATE worktrees SET updated_at = '"+then+"'", "UPDATE leases SET acquired_at = '"+then+"' WHERE holder_id = '"+a.id+"'",
				"UPDATE hosts SET last_seen = '"+then+"'")
			w := i.worker()
			i.requireDoneOnce(t, a)
			w.stop()
		}
	})
}

func (i *installation) workerThatDiesAtMark(point, mark string) *worker {
	i.t.Helper()
	return i.worker("UNWIND_FAULT_POINT="+point, "UNWIND_FAULT_MARK="+mark)
}

func TestRowsWithNonsenseStopNobodyElse(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		sound := i.agent("sound")
		gone := i.agent("gone")
		i.add(sound)
		i.add(gone)
		prefix := "a-nonsense-" + strings.TrimPrefix(filepath.Base(i.dir), directoryPrefix) + "-"
		at := "'2026-01-02 03:04:05+00:00'"
		for n, runtime := range []string{
			`'gremlin', 'agent', 'running', '{"kind":"gremlin"}'`, `'tmux', 'agent', 'running', '{broken'`, `'process', 'agent', 'running', '[]'`} {
			for _, terminated := range []string{"NULL", at} {
				id := "'" + prefix + strconv.Itoa(n) + strconv.Itoa(len(terminated)) + "'"
				i.sql("INSERT INTO sessions (id, host, generation, terminated_at, created_at, updated_at) VALUES ("+id+", 'h1', 1, "+terminated+", "+at+", "+at+")",
					"INSERT INTO runtimes (id, session_id, generation, kind, role, state, handle) VALUES ("+id+", "+id+", 1, "+runtime+")")
			}
		}
		id := "'" + prefix + "negative'"
		i.sql("INSERT INTO sessions (id, host, generation, terminated_at, created_at, updated_at) VALUES ("+id+", 'h1', -3, "+at+", "+at+", "+at+")",
			"INSERT INTO worktrees (id, host, repository, path, state, created_at, updated_at) VALUES ("+id+", 'h1', 'nowhere', 'over/there', 'active', "+at+", "+at+")",
			"INSERT INTO leases (worktree_id, holder_kind, holder_id, generation, acquired_at, released_at) VALUES ("+id+", 'session', "+id+", -3, "+at+", "+at+")")
		waits := map[string]string{strings.Trim(id, "'"): teardown.ReasonAttemptsExhausted}
		for n := range 3 {
			waits[prefix+strconv.Itoa(n)+strconv.Itoa(len(at))] = teardown.ReasonRuntimeRefused
		}
		if strings.HasPrefix(i.database, "sqlite:") { // Postgres has no room for it
			id := "'" + prefix + "bytes'"
			i.sql("INSERT INTO sessions (id, host, terminated_at, created_at, updated_at) VALUES ("+id+", 'h1', "+at+", "+at+", "+at+")",
				"INSERT INTO worktrees (id, host, repository, path, state, created_at, updated_at) VALUES ("+id+", 'h1', '/src', '/gone', 'removed', "+at+", "+at+")",
				"INSERT INTO leases (worktree_id, holder_kind, holder_id, generation, acquired_at, bytes) VALUES ("+id+", 'session', "+id+", 1, "+at+", 'many')")
			waits[strings.Trim(id, "'")] = teardown.ReasonAttemptsExhausted
		}
		w := i.worker()
		i.must("terminate", sound.id)
		i.killAgent(gone)
		s := i.store()
		i.untilFinished(s, sound.id)
		i.untilFinished(s, gone.id)
		i.requireReleased(sound)
		i.requireReleased(gone)
		i.untilLogged(w, "Not everything could be reconciled")
		// Each waits for a person, with the reason, and is left alone from then on.
		runs := map[string]string{}
		for id, reason := range waits {
			i.until(id+" parked", func() bool { parked, code := i.parkedReason(id); return parked == reason && code != "" })
			run, err := i.client.DescribeWorkflow(t.Context(), teardown.FinalizeSessionID(id), "")
			require.NoError(t, err)
			runs[id] = run.WorkflowExecution.RunID
		}
		require.Contains(t, finalization(t, s, strings.Trim(id, "'")).FailureMessage, "over/there")
		_, code := i.parkedReason(prefix + "1" + strconv.Itoa(len(at)))
		require.Equal(t, teardown.CodeRuntimeUnroutable, code)
		require.Contains(t, i.must("status", prefix+"1"+strconv.Itoa(len(at))).out, "correct its handle in the database")
		answer := i.unwind("reconcile")
		require.Contains(t, answer.out+answer.errors, `"gremlin" is not known`)
		require.Contains(t, answer.out+answer.errors, "correct its handle in the database")
		for id, before := range runs {
			run, err := i.client.DescribeWorkflow(t.Context(), teardown.FinalizeSessionID(id), "")
			require.NoError(t, err)
			require.Equal(t, before, run.WorkflowExecution.RunID, "%s was begun again", id)
		}
	})
}

// parkedReason reads the row by itself: others of the session may be unreadable.
func (i *installation) parkedReason(id string) (reason string, code teardown.Code) {
	i.t.Helper()
	i.query("SELECT parked_reason, failure_code FROM finalizations WHERE parked_at IS NOT NULL AND holder_id = '"+id+"'", &reason, &code)
	return reason, code
}

// Ten thousand sessions were terminated while no worker ran. One that is
// terminated now does not wait for them.
func TestBacklogAtBootDoesNotStarveANewSession(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		i.env = []string{hourly}
		i.backlog(10_000)
		a := i.agent("z-new")
		i.add(a)
		w := i.worker()
		i.upAndQuiet(w)
		i.must("terminate", a.id)
		i.untilFinished(i.store(), a.id)
		i.requireReleased(a)
		loads, err := i.store().HostLoads(t.Context())
		require.NoError(t, err)
		require.Greater(t, loads[0].UnderWay, 5000, "it did not come after them")
		w.kill()
	})
}

// More than a page, and more than are under way at once.
func TestBacklogAtBootIsFinished(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		i.env = []string{"UNWIND_START_RATE=1000"}
		i.backlog(220)
		i.worker()
		s := i.store()
		require.Eventually(t, func() bool {
			loads, err := s.HostLoads(t.Context())
			return err == nil && loads[0].UnderWay == 0
		}, 5*patience, 100*time.Millisecond, "some are never finished")
		var finished int
		i.query("SELECT COUNT(*) FROM finalizations WHERE outcome = 'finalized' AND round = 1", &finished)
		require.Equal(t, 220, finished)
	})
}

// backlog makes a database with terminated sessions that hold nothing.
func (i *installation) backlog(n int) {
	i.t.Helper()
	i.must("list")
	at := "'2026-01-02 03:04:05+00:00'"
	if strings.HasPrefix(i.database, "postgres") {
		at += "::timestamptz"
	}
	i.sql(`INSERT INTO sessions (id, host, terminated_at, created_at, updated_at)
		WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ` + strconv.Itoa(n) + `)
		SELECT 'backlog-` + strings.TrimPrefix(filepath.Base(i.dir), directoryPrefix) + `-' || n, 'h1', ` + at + `, ` + at + `, ` + at + ` FROM numbers`)
}
