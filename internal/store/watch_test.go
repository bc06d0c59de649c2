package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

// agents registers a live session with agent runtimes.
func (b *bundle) agents(id string, pids ...int) {
	b.t.Helper()
	n := b.manifest(id, "/wt/"+id)
	for _, pid := range pids {
		n.Runtimes = append(n.Runtimes, store.NewRuntime{Handle: teardown.Runtime{Kind: teardown.KindProcess, Role: teardown.RoleAgent, PID: pid, StartTime: 1}})
	}
	b.add(n)
}

func (b *bundle) watched() (found []store.Watched) {
	b.t.Helper()
	for after := ""; ; {
		page, err := b.Watched(ctx, host, after, 1, time.Now())
		require.NoError(b.t, err)
		found = append(found, page.Rows...)
		if after = page.Next; after == "" {
			return found
		}
	}
}

var watchPromises = []promise{
	{"watched are live sessions of the host with agents that run", func(t *testing.T, b *bundle) {
		b.agents("a-one", 1)
		b.agents("b-two", 2, 3)
		b.session("c-none", "/wt/c")
		b.agents("d-held", 4)
		_, err := b.Hold(ctx, "d-held", soon(), "")
		require.NoError(t, err)
		b.agents("e-starts", 5, 6)
		b.exec("UPDATE runtimes SET state = 'creating' WHERE session_id = 'e-starts'")
		b.agents("f-terminated", 7)
		b.terminate("f-terminated")
		b.agents("g-restored", 8)
		b.restored("g-restored")
		n := b.manifest("h-elsewhere")
		n.Host, n.Runtimes = "host2", []store.NewRuntime{{Handle: teardown.Runtime{Kind: teardown.KindProcess, Role: teardown.RoleAgent, PID: 9, StartTime: 1}}}
		b.add(n)

		watched := b.watched()
		require.Len(t, watched, 2)
		require.Equal(t, "a-one", watched[0].SessionID)
		require.Equal(t, 1, watched[0].Agents[0].Handle.PID)
		require.Len(t, watched[1].Agents, 2)
		_, found, err := b.WatchedSession(ctx, "b-two", time.Now())
		require.NoError(t, err)
		require.True(t, found)
		_, found, err = b.WatchedSession(ctx, "d-held", time.Now())
		require.NoError(t, err)
		require.False(t, found)
	}},
	{"an agent that is gone ends its session once", func(t *testing.T, b *bundle) {
		b.agents("s1", 1)
		gone := b.watched()[0]
		changed, err := b.AgentGone(ctx, gone)
		require.NoError(t, err)
		require.True(t, changed)
		session, err := b.Session(ctx, "s1")
		require.NoError(t, err)
		require.NotNil(t, session.TerminatedAt)
		require.Equal(t, teardown.SourceRuntimeExit, session.TerminationSource)
		changed, err = b.AgentGone(ctx, gone)
		require.NoError(t, err)
		require.False(t, changed)
	}},
	{"fault 10: what changed since the look is not recorded as gone", func(t *testing.T, b *bundle) {
		for name, change := range map[string]string{
			"restored":   "UPDATE sessions SET generation = 2 WHERE id = ?",
			"held":       "UPDATE sessions SET held_by = 'somebody' WHERE id = ?",
			"starts":     "UPDATE runtimes SET state = 'creating' WHERE session_id = ?",
			"other":      "UPDATE runtimes SET id = 'new-' || id WHERE session_id = ?",
			"terminated": "UPDATE sessions SET terminated_at = created_at, termination_source = 'test' WHERE id = ?",
		} {
			b.agents(name, 1)
			gone, found, err := b.WatchedSession(ctx, name, time.Now())
			require.NoError(t, err)
			require.True(t, found)
			b.exec(change, name)
			changed, err := b.AgentGone(ctx, gone)
			require.NoError(t, err)
			require.False(t, changed, name)
			session, err := b.Session(ctx, name)
			require.NoError(t, err)
			require.NotEqual(t, teardown.SourceRuntimeExit, session.TerminationSource, name)
		}
	}},
	{"a record that cannot be read hides no other", func(t *testing.T, b *bundle) {
		b.agents("a-broken", 1)
		b.exec("UPDATE runtimes SET handle = '{not json' WHERE session_id = 'a-broken'")
		b.agents("b-sound", 2)
		watched := b.watched()
		require.Len(t, watched, 2)
		requireCode(t, teardown.CodeRuntimeUnroutable, false, watched[0].Agents[0].Err)
		require.NoError(t, watched[1].Agents[0].Err)
	}},
	{"a row that cannot be read hides no other", func(t *testing.T, b *bundle) {
		if b.Dialect() == store.Postgres {
			return // it knows what a time is
		}
		for _, id := range []string{"a", "b", "c"} {
			b.agents(id, 1)
		}
		b.exec("UPDATE sessions SET held_until = 'tomorrow' WHERE id = 'b'")
		page, err := b.Watched(ctx, host, "", 10, time.Now())
		require.NoError(t, err)
		require.Len(t, page.Rows, 2)
		require.Len(t, page.Unreadable, 1)
		require.Equal(t, "b", page.Unreadable[0].ID)
		requireCode(t, teardown.CodeInternal, false, page.Unreadable[0].Err)
		b.exec("UPDATE sessions SET terminated_at = created_at")
		due, err := b.NeverBegun(ctx, "", 10, time.Now())
		require.NoError(t, err)
		require.Len(t, due.Rows, 2)
		require.Len(t, due.Unreadable, 1)
	}},
	{"where work was saved beforehand stands on the lease", func(t *testing.T, b *bundle) {
		b.agents("s1", 1)
		me := store.Holder{Kind: store.HolderSession, ID: "s1", Generation: 1}
		held, err := b.HeldWorktrees(ctx, me)
		require.NoError(t, err)
		require.Len(t, held, 1)
		require.NoError(t, b.SavedBeforehand(ctx, me, held[0].ID, "refs/unwind/saved/s1/1/w"))
		b.terminate("s1")
		require.Equal(t, "refs/unwind/saved/s1/1/w", b.result(b.begin("s1"), "/wt/s1").SavedRef)
	}},
}
