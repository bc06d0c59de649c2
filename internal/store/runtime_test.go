package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

// withRuntimes is a terminated and begun session with runtimes r1 and r2.
func (b *bundle) withRuntimes(paths ...string) teardown.Step {
	b.t.Helper()
	n := b.manifest("s1", paths...)
	n.Runtimes = []store.NewRuntime{
		{ID: "r1", Handle: teardown.Runtime{Kind: "tmux", Session: "s1"}},
		{ID: "r2", Handle: teardown.Runtime{Kind: "process", Role: "auxiliary", PID: 1}}}
	b.add(n)
	b.terminate("s1")
	return b.begin("s1")
}

func (b *bundle) runtimeGone(step teardown.Step, id string) {
	b.t.Helper()
	written, err := b.RuntimeReleased(ctx, step, id, "killed, and not there any more", "", teardown.RuntimeResult{Outcome: teardown.RuntimeReleased})
	require.NoError(b.t, err)
	require.True(b.t, written)
}

var runtimePromises = []promise{
	{"a released runtime keeps how and when that was known", func(t *testing.T, b *bundle) {
		step := b.withRuntimes()
		written, err := b.RuntimeReleased(ctx, step, "r1", "confirmed gone by ann", "/snap/r1", teardown.RuntimeResult{
			Outcome: teardown.RuntimeAlreadyGone, Details: []string{"pid 1 stands in the worktree"}})
		require.NoError(t, err)
		require.True(t, written)
		r, err := b.Runtime(ctx, "r1")
		require.NoError(t, err)
		require.Equal(t, store.RuntimeReleased, r.State)
		require.NotNil(t, r.ReleasedAt)
		require.Equal(t, "confirmed gone by ann", r.ReleasedHow)
		require.Nil(t, b.finalization(step).RuntimeReleasedAt, "one is left")

		b.runtimeGone(step, "r1")
		again, err := b.Runtime(ctx, "r1")
		require.NoError(t, err)
		require.Equal(t, r, again, "the first word stays")

		b.runtimeGone(step, "r2")
		require.NotNil(t, b.finalization(step).RuntimeReleasedAt)
		result, err := b.Result(ctx, "s1", 1)
		require.NoError(t, err)
		require.Equal(t, teardown.RuntimeResult{ID: "r1", Kind: "tmux", Role: "agent", Outcome: teardown.RuntimeAlreadyGone,
			Details: []string{"pid 1 stands in the worktree"}, Snapshot: "/snap/r1"}, result.Runtimes[0])
	}},
	{"a refused runtime keeps the reason and is still left", func(t *testing.T, b *bundle) {
		step := b.withRuntimes()
		written, err := b.RuntimeRefused(ctx, step, "r1", teardown.RuntimeResult{Code: teardown.CodeRuntimeIdentity, Details: []string{"tag"}}, "Another session answers to the name.")
		require.NoError(t, err)
		require.True(t, written)
		r, err := b.Runtime(ctx, "r1")
		require.NoError(t, err)
		require.Equal(t, teardown.RuntimeRefused, r.Outcome)
		require.Equal(t, "Another session answers to the name.", r.Message)
		require.Nil(t, r.ReleasedAt)
		require.Len(t, b.beginAgain(step).Runtimes, 2)
	}},
	{"what is known of a runtime before it is ended stays, whatever later attempts find", func(t *testing.T, b *bundle) {
		step := b.withRuntimes()
		known := teardown.Runtime{Kind: "tmux", Session: "s1", Identity: &teardown.RuntimeIdentity{Panes: []teardown.Pane{{PID: 7, StartTime: 9}}}}
		written, err := b.RuntimeToEnd(ctx, step, "r1", known, "/snap/r1")
		require.NoError(t, err)
		require.True(t, written)
		r, err := b.Runtime(ctx, "r1")
		require.NoError(t, err)
		require.Equal(t, known, r.Handle.V)
		require.Equal(t, store.RuntimeRunning, r.State)
		require.Equal(t, teardown.RuntimePending, r.Outcome)

		kept := func() {
			t.Helper()
			r, err := b.Runtime(ctx, "r1")
			require.NoError(t, err)
			require.Equal(t, "/snap/r1", r.SnapshotPath)
		}
		_, err = b.RuntimeToEnd(ctx, step, "r1", known, "")
		require.NoError(t, err)
		kept()
		_, err = b.RuntimeRefused(ctx, step, "r1", teardown.RuntimeResult{Code: teardown.CodeRuntimeIdentity}, "Not ours.")
		require.NoError(t, err)
		kept()
		b.runtimeGone(step, "r1")
		kept()
		_, err = b.RuntimeToEnd(ctx, step, "r1", teardown.Runtime{}, "/snap/late")
		require.NoError(t, err)
		kept()
		r, err = b.Runtime(ctx, "r1")
		require.NoError(t, err)
		require.Equal(t, known, r.Handle.V)
	}},
	{"a newer picture takes the place of an older one", func(t *testing.T, b *bundle) {
		step := b.withRuntimes()
		for _, path := range []string{"/snap/old", "/snap/new"} {
			written, err := b.RuntimeToEnd(ctx, step, "r1", teardown.Runtime{Kind: "tmux"}, path)
			require.NoError(t, err)
			require.True(t, written)
			r, err := b.Runtime(ctx, "r1")
			require.NoError(t, err)
			require.Equal(t, path, r.SnapshotPath)
		}
	}},
	{"a late word about a runtime is not written", func(t *testing.T, b *bundle) {
		step := b.withRuntimes()
		newer := b.retry(step)
		gone := teardown.RuntimeResult{Outcome: teardown.RuntimeReleased}
		written, err := b.RuntimeReleased(ctx, step, "r1", "", "", gone)
		require.NoError(t, err)
		require.False(t, written)
		written, err = b.RuntimeToEnd(ctx, step, "r1", teardown.Runtime{}, "/snap/late")
		require.NoError(t, err)
		require.False(t, written)
		b.restored("s1")
		written, err = b.RuntimeReleased(ctx, newer, "r1", "", "", gone)
		require.NoError(t, err)
		require.False(t, written)
		written, err = b.RuntimeRefused(ctx, newer, "r1", teardown.RuntimeResult{}, "")
		require.NoError(t, err)
		require.False(t, written)
		r, err := b.Runtime(ctx, "r1")
		require.NoError(t, err)
		require.Equal(t, store.RuntimeRunning, r.State)
		require.Equal(t, "s1", r.Handle.V.Session)
		require.Empty(t, r.SnapshotPath)
		require.Equal(t, teardown.RuntimePending, r.Outcome)
	}},
	{"a runtime that is unknown, another's, or not gone is an error", func(t *testing.T, b *bundle) {
		b.withRuntimes()
		other := b.terminated("s2")
		gone := teardown.RuntimeResult{Outcome: teardown.RuntimeReleased}
		_, err := b.RuntimeReleased(ctx, other, "r1", "", "", gone)
		requireCode(t, teardown.CodeInternal, false, err)
		_, err = b.RuntimeToEnd(ctx, other, "r1", teardown.Runtime{}, "")
		requireCode(t, teardown.CodeInternal, false, err)
		_, err = b.RuntimeReleased(ctx, other, "nobody", "", "", gone)
		requireCode(t, teardown.CodeInternal, false, err)
		_, err = b.RuntimeReleased(ctx, other, "r1", "", "", teardown.RuntimeResult{Outcome: teardown.RuntimeFailed})
		requireCode(t, teardown.CodeInternal, false, err)
	}},
	{"current tells what a step may rely on", func(t *testing.T, b *bundle) {
		b.session("s1")
		current := func(step teardown.Step) bool {
			is, err := b.Current(ctx, step)
			require.NoError(t, err)
			return is
		}
		step := teardown.Step{SessionID: "s1", Generation: 1, Round: 1}
		require.False(t, current(step), "live")
		b.terminate("s1")
		require.False(t, current(step), "not begun")
		require.Equal(t, step, b.begin("s1"))
		require.True(t, current(step))
		require.False(t, current(teardown.Step{SessionID: "nobody", Generation: 1, Round: 1}))
		newer := b.retry(step)
		require.False(t, current(step))
		require.True(t, current(newer))
		_, err := b.Finish(ctx, newer)
		require.NoError(t, err)
		require.False(t, current(newer), "finished")
	}},
}

var resourcePromises = []promise{
	{"resources are cleared one by one, secrets first", func(t *testing.T, b *bundle) {
		n := b.manifest("s1")
		n.Resources = []store.NewResource{{ID: "dir", Kind: "dir", Path: "/state/s1"}, {ID: "env", Kind: "secret", Path: "/state/s1/env"}}
		b.add(n)
		b.terminate("s1")
		step := b.begin("s1")
		require.True(t, b.beginAgain(step).Secrets)
		left, err := b.ResourcesLeft(ctx, step, true)
		require.NoError(t, err)
		require.Len(t, left, 1)
		for range 2 { // again is a no-op
			written, err := b.ResourceCleared(ctx, step, "env")
			require.NoError(t, err)
			require.True(t, written)
		}
		require.Nil(t, b.finalization(step).ResourcesClearedAt)
		left, err = b.ResourcesLeft(ctx, step, false)
		require.NoError(t, err)
		require.Len(t, left, 1)
		require.Equal(t, "/state/s1", left[0].Path)
		result, err := b.Result(ctx, "s1", 1)
		require.NoError(t, err)
		require.Equal(t, teardown.ResourcesResult{Cleared: 1, Kept: 1}, result.Resources)
		_, err = b.ResourceCleared(ctx, step, "dir")
		require.NoError(t, err)
		require.NotNil(t, b.finalization(step).ResourcesClearedAt)
	}},
	{"fault 9: a late clearing is not written", func(t *testing.T, b *bundle) {
		n := b.manifest("s1")
		n.Resources = []store.NewResource{{ID: "dir", Kind: "dir", Path: "/state/s1"}}
		b.add(n)
		b.terminate("s1")
		step := b.begin("s1")
		b.restored("s1")
		written, err := b.ResourceCleared(ctx, step, "dir")
		require.NoError(t, err)
		require.False(t, written)
	}},
	{"resources may go only when every worktree is gone or another's", func(t *testing.T, b *bundle) {
		may := func(step teardown.Step) bool {
			may, err := b.MayClear(ctx, step)
			require.NoError(t, err)
			return may
		}
		b.session("s2")
		b.session("s1", "/wt/a", "/wt/b", "/wt/shared")
		b.lease("s2", "/wt/shared")
		b.terminate("s1")
		step := b.begin("s1")
		require.False(t, may(step), "still leased")
		b.release(step)
		require.False(t, may(step), "undecided")
		b.remove(step, "/wt/a")
		b.preserve(step, "/wt/b")
		require.False(t, may(step), "preserved")
		step = b.retry(step)
		b.release(step)
		b.remove(step, "/wt/b")
		require.True(t, may(step))
		b.retry(step)
		require.False(t, may(step), "superseded")
		require.True(t, may(b.terminated("s3")), "a session without worktrees")
	}},
}
