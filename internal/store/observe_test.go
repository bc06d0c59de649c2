package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

var observePromises = []promise{
	{"what was observed of one generation says nothing about the next", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		_, changed, err := b.TerminateAt(ctx, "s1", 2, teardown.SourceAgentExit)
		require.NoError(t, err)
		require.False(t, changed)
		session, err := b.Session(ctx, "s1")
		require.NoError(t, err)
		require.Nil(t, session.TerminatedAt)
		session, changed, err = b.TerminateAt(ctx, "s1", 1, teardown.SourceAgentExit)
		require.NoError(t, err)
		require.True(t, changed)
		require.Equal(t, teardown.SourceAgentExit, session.TerminationSource)
	}},
	{"the runtimes of a host are listed by pages, all or of live sessions only", func(t *testing.T, b *bundle) {
		for _, id := range []string{"a", "b", "c"} {
			n := b.manifest(id, "/wt/"+id)
			n.Runtimes = []store.NewRuntime{{ID: "r" + id, Handle: teardown.Runtime{Kind: teardown.KindTmux, Session: id}}}
			b.add(n)
		}
		b.terminate("b")
		first, err := b.Runtimes(ctx, store.RuntimeFilter{Host: host, Limit: 2})
		require.NoError(t, err)
		require.Len(t, first, 2)
		require.Equal(t, "a", first[0].Handle.V.Session)
		rest, err := b.Runtimes(ctx, store.RuntimeFilter{Host: host, Limit: 2, After: first[1].ID, Left: true})
		require.NoError(t, err)
		require.Len(t, rest, 1)
		live, err := b.Runtimes(ctx, store.RuntimeFilter{Host: host, Live: true})
		require.NoError(t, err)
		require.Len(t, live, 2)
		elsewhere, err := b.Runtimes(ctx, store.RuntimeFilter{Host: "host2"})
		require.NoError(t, err)
		require.Empty(t, elsewhere)
	}},
	{"the sessions at a path are told, the deepest first, and whether they are live", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		b.session("s2", "/wt/s1/lib")
		b.terminate("s2")
		at, err := b.SessionsAt(ctx, host, []string{"/wt/s1/lib/x", "/wt/s1/lib", "/wt/s1", "/wt"})
		require.NoError(t, err)
		require.Equal(t, []store.SessionAt{{Path: "/wt/s1/lib", SessionID: "s2", Generation: 1},
			{Path: "/wt/s1", SessionID: "s1", Generation: 1, Live: true}}, at)
		none, err := b.SessionsAt(ctx, "host2", []string{"/wt/s1"})
		require.NoError(t, err)
		require.Empty(t, none)
	}},
}
