package store_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

var resultPromises = []promise{
	{"nothing in a result is null that a reader would iterate over", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		result, err := b.Result(ctx, "s1", 1)
		require.NoError(t, err)
		text, err := json.Marshal(result)
		require.NoError(t, err)
		require.JSONEq(t, `{"session_id":"s1","generation":1,"outcome":"","runtimes":[],
			"worktrees":[{"id":"w-wt-s1","path":"/wt/s1","disposition":"pending","code":"","retryable":false,"details":[],"bytes":0,"saved_ref":""}],
			"resources":{"cleared":0,"kept":0},"failure":{"code":"","message":""},"attempts":0,"started_at":null,"finished_at":null}`, string(text))
		b.session("s2")
		empty, err := b.Result(ctx, "s2", 1)
		require.NoError(t, err)
		require.NotNil(t, empty.Worktrees)
		require.NotNil(t, empty.Runtimes)
	}},
	{"a result stays far below the payload limit, whatever was found", func(t *testing.T, b *bundle) {
		var paths []string
		for i := range teardown.MaxListed + 7 {
			paths = append(paths, fmt.Sprintf("/wt/%03d", i))
		}
		n := b.manifest("s1", paths...)
		for range teardown.MaxListed + 3 {
			n.Runtimes = append(n.Runtimes, store.NewRuntime{Handle: teardown.Runtime{Kind: "tmux", Gone: true}})
		}
		b.add(n)
		b.exec("UPDATE runtimes SET released_at = sessions.created_at FROM sessions WHERE sessions.id = runtimes.session_id")
		b.terminate("s1")
		step := b.begin("s1")
		b.release(step)
		var details []string
		for range 100 {
			details = append(details, strings.Repeat("\x01long", 1000))
		}
		_, err := b.Preserved(ctx, step, idOf(paths[0]), teardown.WorktreeResult{Disposition: teardown.DispositionPreserved, Details: details}, false)
		require.NoError(t, err)
		b.exec("UPDATE leases SET details = (SELECT details FROM leases WHERE worktree_id = ?)", idOf(paths[0]))
		result, err := b.Result(ctx, "s1", 1)
		require.NoError(t, err)
		require.Len(t, result.Worktrees, teardown.MaxListed)
		require.Equal(t, len(paths), result.WorktreesTotal)
		require.Len(t, result.Runtimes, teardown.MaxListed)
		require.Len(t, result.Worktrees[0].Details, teardown.MaxDetails+1)
		require.Equal(t, "and 80 more", result.Worktrees[0].Details[teardown.MaxDetails])
		require.Equal(t, []string{"and 21 more"}, result.Worktrees[teardown.MaxListed-1].Details)
		text, err := json.Marshal(result)
		require.NoError(t, err)
		require.Less(t, len(text), 1<<20)
	}},
	{"twenty-one details need no count of the rest", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		details := strings.Split(strings.Repeat("x,", teardown.MaxDetails)+"and 3 more", ",")
		_, err := b.Preserved(ctx, step, idOf("/wt/s1"), teardown.WorktreeResult{Disposition: teardown.DispositionRefused, Details: details}, false)
		require.NoError(t, err)
		require.Equal(t, details, b.result(step, "/wt/s1").Details)
		require.Equal(t, teardown.DispositionRefused, b.disposition(step, "/wt/s1"))
	}},
	{"a path that was used again is listed for each use", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.remove(step, "/wt/s1")
		n := b.manifest("s2", "/wt/s1")
		n.Worktrees[0].ID = "second"
		b.add(n)
		require.Equal(t, teardown.DispositionRemoved, b.disposition(step, "/wt/s1"))
		second, err := b.Result(ctx, "s2", 1)
		require.NoError(t, err)
		require.Equal(t, teardown.DispositionPending, second.Worktrees[0].Disposition)
	}},
	{"the result of a session that is gone is still there", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.remove(step, "/wt/s1")
		done, err := b.Finish(ctx, step)
		require.NoError(t, err)
		b.exec("DELETE FROM sessions WHERE id = 's1'")
		result, err := b.Result(ctx, "s1", 1)
		require.NoError(t, err)
		require.Equal(t, done.Result, result)
	}},
	{"a generation that was restored says so", func(t *testing.T, b *bundle) {
		step := b.terminated("s1")
		b.restored("s1")
		result, err := b.Result(ctx, "s1", step.Generation)
		require.NoError(t, err)
		require.Equal(t, teardown.OutcomeRestored, result.Outcome)
	}},
}

var listPromises = []promise{
	{"sessions are listed by state, host and reason, page by page", func(t *testing.T, b *bundle) {
		b.session("a-live", "/wt/a")
		b.terminated("b-under-way", "/wt/b")
		b.parked("c-parked", "/wt/c")
		finished := b.terminated("d-finished")
		_, err := b.Finish(ctx, finished)
		require.NoError(t, err)
		b.session("e-held")
		b.terminate("e-held")
		_, err = b.Hold(ctx, "e-held", soon(), "x")
		require.NoError(t, err)
		b.session("f-was-held")
		b.terminate("f-was-held")
		_, err = b.Hold(ctx, "f-was-held", past(), "x")
		require.NoError(t, err)
		n := b.manifest("g-elsewhere")
		n.Host = "host2"
		b.add(n)

		list := func(f store.SessionFilter) []string {
			t.Helper()
			page, err := b.Sessions(ctx, f)
			require.NoError(t, err)
			out := []string{}
			for _, s := range page {
				out = append(out, s.ID)
			}
			return out
		}
		all := []string{"a-live", "b-under-way", "c-parked", "d-finished", "e-held", "f-was-held", "g-elsewhere"}
		require.Equal(t, all, list(store.SessionFilter{}))
		require.Equal(t, all[:6], list(store.SessionFilter{Host: host}))
		require.Equal(t, []string{"a-live", "g-elsewhere"}, list(store.SessionFilter{State: store.StateLive}))
		require.Equal(t, []string{"b-under-way", "f-was-held"}, list(store.SessionFilter{State: store.StateTerminated}))
		require.Equal(t, []string{"c-parked"}, list(store.SessionFilter{State: store.StateParked}))
		require.Equal(t, []string{"c-parked"}, list(store.SessionFilter{Reason: teardown.ReasonPreserved}))
		require.Empty(t, list(store.SessionFilter{Reason: teardown.ReasonHostUnreachable}))
		require.Equal(t, []string{"d-finished"}, list(store.SessionFilter{State: store.StateFinished}))
		require.Equal(t, []string{"e-held"}, list(store.SessionFilter{State: store.StateHeld, Limit: 1}))
		require.Equal(t, []string{"f-was-held"}, list(store.SessionFilter{State: store.StateTerminated, Limit: 1, After: "b-under-way"}))
		require.Equal(t, []string{"c-parked", "d-finished"}, list(store.SessionFilter{After: "b-under-way", Limit: 2}))
		_, err = b.Sessions(ctx, store.SessionFilter{State: "asleep"})
		requireCode(t, teardown.CodeInternal, false, err)

		page, err := b.Sessions(ctx, store.SessionFilter{State: store.StateParked})
		require.NoError(t, err)
		s := page[0]
		require.Equal(t, store.StateParked, s.State)
		require.Equal(t, teardown.ReasonPreserved, s.ParkedReason)
		require.Equal(t, 1, s.Worktrees)
		require.Equal(t, 1, s.WorktreesKept)
		require.Equal(t, int64(4096), s.BytesKept)
		require.Equal(t, int64(1), s.Round)
		require.NotNil(t, s.ParkedAt)
	}},
	{"due is what is terminated and neither finished, parked nor held", func(t *testing.T, b *bundle) {
		b.session("a-live")
		b.session("b-never-begun")
		b.terminate("b-never-begun")
		b.terminated("c-under-way")
		b.parked("d-parked", "/wt/d")
		b.session("e-held")
		b.terminate("e-held")
		until := soon()
		_, err := b.Hold(ctx, "e-held", until, "")
		require.NoError(t, err)
		n := b.manifest("f-elsewhere")
		n.Host = "host2"
		b.add(n)
		b.terminate("f-elsewhere")

		due, err := b.NeverBegun(ctx, "", 10, time.Now())
		require.NoError(t, err)
		require.Equal(t, []store.Due{{SessionID: "b-never-begun", Host: host, Generation: 1},
			{SessionID: "f-elsewhere", Host: "host2", Generation: 1}}, due.Rows)
		require.Empty(t, due.Next)
		due, err = b.NeverBegun(ctx, "b-never-begun", 1, time.Now())
		require.NoError(t, err)
		require.Empty(t, due.Rows, "the next one is held")
		require.Equal(t, "e-held", due.Next, "and the list goes on after it")
		due, err = b.NeverBegun(ctx, "b-never-begun", 1, until.Add(time.Second))
		require.NoError(t, err)
		require.Equal(t, "e-held", due.Rows[0].SessionID)
		due, err = b.UnderWay(ctx, "", 10, time.Now())
		require.NoError(t, err)
		require.Equal(t, []store.Due{{SessionID: "c-under-way", Host: host, Generation: 1}}, due.Rows)
		for id, want := range map[string]bool{"a-live": false, "b-never-begun": true, "c-under-way": true, "d-parked": false, "e-held": false, "none": false} {
			_, found, err := b.DueSession(ctx, id, time.Now())
			require.NoError(t, err)
			require.Equal(t, want, found, id)
		}
	}},
	{"a finished generation does not hide a newer one", func(t *testing.T, b *bundle) {
		step := b.terminated("s1")
		_, err := b.Finish(ctx, step)
		require.NoError(t, err)
		due, err := b.NeverBegun(ctx, "", 10, time.Now())
		require.NoError(t, err)
		require.Empty(t, due.Rows)
		b.restored("s1")
		b.terminate("s1")
		due, err = b.NeverBegun(ctx, "", 10, time.Now())
		require.NoError(t, err)
		require.Equal(t, []store.Due{{SessionID: "s1", Host: host, Generation: 2}}, due.Rows)
	}},
	{"a finalization whose row somebody deleted or gave away is begun anew", func(t *testing.T, b *bundle) {
		for i, disturb := range []string{"DELETE FROM finalizations", "UPDATE finalizations SET holder_id = 'x'", "UPDATE finalizations SET generation = 7"} {
			id := "s" + strconv.Itoa(i)
			b.terminated(id)
			_, found, err := b.DueSession(ctx, id, time.Now())
			require.NoError(t, err)
			require.True(t, found)
			b.exec(disturb+" WHERE holder_id = ?", id)
			due, err := b.NeverBegun(ctx, "", 10, time.Now())
			require.NoError(t, err)
			require.Len(t, due.Rows, i+1, disturb)
		}
	}},
	{"a pass looks at what is left, however much there was before", func(t *testing.T, b *bundle) {
		numbers := "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 3000) "
		at := "'2031-01-02 00:00:00+00:00'"
		if b.Dialect() == store.Postgres {
			at += "::timestamptz"
		}
		b.exec("INSERT INTO sessions (id, host, terminated_at, created_at, updated_at) " + numbers + "SELECT 's' || n, 'host1', " + at + ", " + at + ", " + at + " FROM numbers")
		b.exec("INSERT INTO finalizations (holder_kind, holder_id, generation, finished_at) " + numbers + "SELECT 'session', 's' || n, 1, " + at + " FROM numbers WHERE n > 2")
		b.exec("INSERT INTO worktrees (id, host, repository, path, state, created_at, updated_at) " + numbers +
			"SELECT 'w' || n, 'host1', '/src', '/wt/' || n, 'removed', " + at + ", " + at + " FROM numbers")
		b.exec("INSERT INTO runtimes (id, session_id, generation, kind, role, state, released_at) " + numbers +
			"SELECT 'r' || n, 's' || n, 1, 'process', 'agent', 'released', " + at + " FROM numbers")
		b.exec("INSERT INTO resources (id, session_id, generation, kind, path, cleared_at) " + numbers +
			"SELECT 'x' || n, 's' || n, 1, 'file', '/state/' || n, " + at + " FROM numbers")
		b.exec("ANALYZE")
		due, err := b.NeverBegun(ctx, "", 10, time.Now())
		require.NoError(t, err)
		require.Len(t, due.Rows, 2)
		for index, statement := range store.PassStatements {
			plan := b.plan(statement)
			require.Contains(t, plan, index)
			require.NotRegexp(t, `Seq Scan on (sessions|finalizations|worktrees|runtimes|resources)`, plan)
		}
	}},
	{"unreachable is what waits for this host, and no other", func(t *testing.T, b *bundle) {
		b.park(b.terminated("s1"), teardown.ReasonHostUnreachable)
		b.park(b.terminated("s2"), teardown.ReasonCancelled)
		b.park(b.terminated("s3"), teardown.ReasonHostUnreachable)
		b.retry(teardown.Step{SessionID: "s3", Generation: 1})
		unreachable, err := b.Unreachable(ctx, host, "", 10)
		require.NoError(t, err)
		require.Equal(t, []store.Due{{SessionID: "s1", Host: host, Generation: 1}}, unreachable.Rows)
		unreachable, err = b.Unreachable(ctx, "host2", "", 10)
		require.NoError(t, err)
		require.Empty(t, unreachable.Rows)
	}},
}

// plan is how the database goes about a statement; each parameter is "".
func (b *bundle) plan(statement string) string {
	b.t.Helper()
	explain := "EXPLAIN "
	if b.Dialect() == store.SQLite {
		explain = "EXPLAIN QUERY PLAN "
	}
	db := b.DB()
	rows, err := db.QueryxContext(ctx, explain+strings.ReplaceAll(statement, "?", "''"))
	require.NoError(b.t, err)
	defer func() { _ = rows.Close() }()
	var plan strings.Builder
	for rows.Next() {
		line, err := rows.SliceScan()
		require.NoError(b.t, err)
		fmt.Fprintln(&plan, line...)
	}
	require.NoError(b.t, rows.Err())
	return plan.String()
}
