package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

var sessionPromises = []promise{
	{"terminate sets the fact once", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		first, changed, err := b.Terminate(ctx, "s1", "pull request merged")
		require.NoError(t, err)
		require.True(t, changed)
		require.NotNil(t, first.TerminatedAt)
		again, changed, err := b.Terminate(ctx, "s1", "somebody else")
		require.NoError(t, err)
		require.False(t, changed)
		require.Equal(t, first, again)
		require.Equal(t, "pull request merged", again.TerminationSource)
	}},
	{"terminate touches no generation, runtime, lease or resource", func(t *testing.T, b *bundle) {
		n := b.manifest("s1", "/wt/s1")
		n.Runtimes = []store.NewRuntime{{Handle: teardown.Runtime{Kind: teardown.KindTmux}}}
		n.Resources = []store.NewResource{{Kind: teardown.ResourceSecret, Path: "/state/s1/env"}}
		b.add(n)
		before, err := b.SessionDetail(ctx, "s1")
		require.NoError(t, err)
		b.terminate("s1")
		after, err := b.SessionDetail(ctx, "s1")
		require.NoError(t, err)
		require.Equal(t, before.Session.Generation, after.Session.Generation)
		require.Equal(t, before.Runtimes, after.Runtimes)
		require.Equal(t, before.Worktrees, after.Worktrees)
		require.Equal(t, before.Resources, after.Resources)
		require.Empty(t, after.Finalizations)
	}},
	{"an unknown session is session_not_found everywhere", func(t *testing.T, b *bundle) {
		_, err := b.Session(ctx, "nobody")
		requireCode(t, teardown.CodeSessionNotFound, false, err)
		_, err = b.SessionDetail(ctx, "nobody")
		requireCode(t, teardown.CodeSessionNotFound, false, err)
		_, _, err = b.Terminate(ctx, "nobody", "")
		requireCode(t, teardown.CodeSessionNotFound, false, err)
		_, err = b.Hold(ctx, "nobody", nil, "me")
		requireCode(t, teardown.CodeSessionNotFound, false, err)
		_, err = b.Begin(ctx, teardown.BeginInput{SessionID: "nobody"})
		requireCode(t, teardown.CodeSessionNotFound, false, err)
		_, _, err = b.Retry(ctx, "nobody", store.RetryOptions{})
		requireCode(t, teardown.CodeSessionNotFound, false, err)
		_, err = b.Result(ctx, "nobody", 1)
		requireCode(t, teardown.CodeSessionNotFound, false, err)
		_, err = b.Finish(ctx, teardown.Step{SessionID: "nobody", Generation: 1, Round: 1})
		requireCode(t, teardown.CodeSessionNotFound, false, err)
	}},
	{"a hold lasts until its time, or until further notice, or until it is lifted", func(t *testing.T, b *bundle) {
		b.session("s1")
		now := time.Now()
		held, err := b.Hold(ctx, "s1", soon(), "orchestrator")
		require.NoError(t, err)
		require.True(t, held.Held(now))
		require.False(t, held.Held(now.Add(2*time.Hour)))
		held, err = b.Hold(ctx, "s1", nil, "orchestrator")
		require.NoError(t, err)
		require.True(t, held.Held(now.Add(10_000*time.Hour)))
		held, err = b.Hold(ctx, "s1", nil, "")
		require.NoError(t, err)
		require.False(t, held.Held(now))
		stored, err := b.Session(ctx, "s1")
		require.NoError(t, err)
		require.Equal(t, held, stored)
	}},
}

var detailPromises = []promise{
	{"the detail lists everything in the order of the manifest, parents first", func(t *testing.T, b *bundle) {
		n := b.manifest("s1", "/wt/s1/lib/deep", "/wt/s1", "/wt/s1/lib")
		n.Runtimes = []store.NewRuntime{
			{Handle: teardown.Runtime{Kind: teardown.KindTmux, Session: "one", Identity: &teardown.RuntimeIdentity{SessionID: "$1"}}},
			{Handle: teardown.Runtime{Kind: teardown.KindProcess, Role: teardown.RoleAuxiliary, PID: 4711, StartTime: 1 << 60}}}
		n.Resources = []store.NewResource{{Kind: "dir", Path: "/state/b"}, {Kind: "secret", Path: "/state/a"}}
		b.add(n)
		detail, err := b.SessionDetail(ctx, "s1")
		require.NoError(t, err)
		require.Len(t, detail.Runtimes, 2)
		require.Equal(t, "$1", detail.Runtimes[0].Handle.V.Identity.SessionID)
		require.Equal(t, teardown.RoleAgent, detail.Runtimes[0].Role)
		require.Equal(t, teardown.RuntimePending, detail.Runtimes[0].Outcome)
		require.Equal(t, store.RuntimeRunning, detail.Runtimes[0].State)
		require.Equal(t, int64(1<<60), detail.Runtimes[1].Handle.V.StartTime)
		require.Equal(t, "/state/b", detail.Resources[0].Path)
		require.Len(t, detail.Worktrees, 3)
		require.Equal(t, "/wt/s1", detail.Worktrees[0].Worktree.Path)
		require.Equal(t, "/wt/s1/lib", detail.Worktrees[1].Worktree.Path)
		require.Equal(t, idOf("/wt/s1"), detail.Worktrees[1].Worktree.ParentID)
		require.Equal(t, "/wt/s1/lib/deep", detail.Worktrees[2].Worktree.Path)
		require.Nil(t, detail.Worktrees[0].Lease.ReleasedAt)
		require.Equal(t, store.Holder{Kind: "session", ID: "s1", Generation: 1}, detail.Worktrees[0].Lease.Holder)
	}},
}

var hostPromises = []promise{
	{"a host is seen again and again", func(t *testing.T, b *bundle) {
		_, found, err := b.Host(ctx, host)
		require.NoError(t, err)
		require.False(t, found)
		at := time.Now().Add(-time.Minute)
		require.NoError(t, b.SeeHost(ctx, store.Host{ID: host, Name: "old", Version: "1", LastSeen: at}))
		require.NoError(t, b.SeeHost(ctx, store.Host{ID: host, Name: "box", Version: "2"}))
		require.NoError(t, b.SeeHost(ctx, store.Host{ID: "a-first", LastSeen: at}))
		hosts, err := b.Hosts(ctx)
		require.NoError(t, err)
		require.Len(t, hosts, 2)
		require.Equal(t, "a-first", hosts[0].ID)
		require.Equal(t, "box", hosts[1].Name)
		require.True(t, hosts[1].LastSeen.After(at))
		one, found, err := b.Host(ctx, host)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, hosts[1], one)
	}},
	{"what waits for each host is counted", func(t *testing.T, b *bundle) {
		b.session("a-live")
		b.terminated("b-under-way")
		b.session("c-to-be-started")
		b.terminate("c-to-be-started")
		b.park(b.terminated("d-away"), teardown.ReasonHostUnreachable)
		b.park(b.terminated("e-kept"), teardown.ReasonCancelled)
		b.session("f-held")
		b.terminate("f-held")
		_, err := b.Hold(ctx, "f-held", nil, "somebody")
		require.NoError(t, err)
		_, err = b.Finish(ctx, b.terminated("g-finished"))
		require.NoError(t, err)
		n := b.manifest("h-elsewhere")
		n.Host = "host2"
		b.add(n)
		loads, err := b.HostLoads(ctx)
		require.NoError(t, err)
		require.Equal(t, []store.HostLoad{{Host: host, Live: 1, Held: 1, UnderWay: 2, Unreachable: 1, Parked: 1}, {Host: "host2", Live: 1}}, loads)
	}},
}
