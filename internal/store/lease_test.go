package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

func holder(id string) store.Holder {
	return store.Holder{Kind: store.HolderSession, ID: id, Generation: 1}
}

var leasePromises = []promise{
	{"a second holder is granted a lease, and again is a no-op", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		b.session("s2")
		b.lease("s2", "/wt/s1")
		b.lease("s2", "/wt/s1")
		_, held, _, err := b.WorktreeAt(ctx, host, "/wt/s1")
		require.NoError(t, err)
		require.Len(t, held, 2)
	}},
	{"a lease on a preserved worktree makes it active, with no remover", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.preserve(step, "/wt/s1")
		b.session("s2")
		b.lease("s2", "/wt/s1")
		w := b.worktree("/wt/s1")
		require.Equal(t, store.WorktreeActive, w.State)
		require.Zero(t, w.Remover())
	}},
	{"a lease on a deleting or removed worktree is refused by name", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.session("s2")
		requireCode(t, teardown.CodeWorktreeDeleting, false, b.Lease(ctx, holder("s2"), idOf("/wt/s1")))
		b.remove(step, "/wt/s1")
		requireCode(t, teardown.CodeWorktreeRemoved, false, b.Lease(ctx, holder("s2"), idOf("/wt/s1")))
		requireCode(t, teardown.CodeWorktreeRemoved, false, b.Lease(ctx, holder("s2"), "unknown"))
	}},
	{"fault 7: no lease while something is in quarantine", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.mustClaim(step, "/wt/s1")
		require.NoError(t, b.MovingAside(ctx, step, idOf("/wt/s1"), "/wt/.s1.unwind-x"))
		written, err := b.Preserved(ctx, step, idOf("/wt/s1"), modified, true)
		require.NoError(t, err)
		require.True(t, written)
		require.Equal(t, "/wt/.s1.unwind-x", b.worktree("/wt/s1").QuarantinePath)
		b.session("s2")
		requireCode(t, teardown.CodeWorktreeMissing, false, b.Lease(ctx, holder("s2"), idOf("/wt/s1")))
	}},
	{"only a live holder at its generation is granted a lease", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		requireCode(t, teardown.CodeSessionNotFound, false, b.Lease(ctx, holder("nobody"), idOf("/wt/s1")))
		b.session("s2")
		late := holder("s2")
		late.Generation = 2
		requireCode(t, teardown.CodeConflict, false, b.Lease(ctx, late, idOf("/wt/s1")))
		b.terminate("s2")
		requireCode(t, teardown.CodeConflict, false, b.Lease(ctx, holder("s2"), idOf("/wt/s1")))
	}},
	{"fault 17: a task leases until its barrier, and so does a session in it", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		n := b.manifest("s2")
		n.TaskID = "t1"
		b.add(n)
		task := store.Holder{Kind: store.HolderTask, ID: "t1", Generation: 1}
		require.NoError(t, b.Lease(ctx, task, idOf("/wt/s1")))
		stale := task
		stale.Generation = 7
		requireCode(t, teardown.CodeConflict, false, b.Lease(ctx, stale, idOf("/wt/s1")))
		b.exec("UPDATE tasks SET terminated_at = ? WHERE id = 't1'", time.Now().UTC())
		requireCode(t, teardown.CodeTaskClosed, false, b.Lease(ctx, task, idOf("/wt/s1")))
		requireCode(t, teardown.CodeTaskClosed, false, b.Lease(ctx, holder("s2"), idOf("/wt/s1")))
		unknown := store.Holder{Kind: store.HolderTask, ID: "nobody", Generation: 1}
		requireCode(t, teardown.CodeTaskClosed, false, b.Lease(ctx, unknown, idOf("/wt/s1")))
	}},
	{"a worktree that a task holds outlives its sessions", func(t *testing.T, b *bundle) {
		n := b.manifest("s1", "/wt/s1")
		n.TaskID = "t1"
		b.add(n)
		require.NoError(t, b.Lease(ctx, store.Holder{Kind: store.HolderTask, ID: "t1", Generation: 1}, idOf("/wt/s1")))
		b.terminate("s1")
		step := b.begin("s1")
		require.Empty(t, b.release(step))
		require.Equal(t, teardown.DispositionRetained, b.disposition(step, "/wt/s1"))
		require.Equal(t, store.WorktreeActive, b.state("/wt/s1"))
	}},
	{"no lease below a worktree that is being removed or was moved aside", func(t *testing.T, b *bundle) {
		b.session("inner", "/wt/s1/lib")
		step := b.released("outer", "/wt/s1")
		b.session("s2")
		err := b.Lease(ctx, holder("s2"), idOf("/wt/s1/lib"))
		requireCode(t, teardown.CodeWorktreeDeleting, false, err)
		require.ErrorContains(t, err, "use one outside of it")
		b.exec("UPDATE worktrees SET state = 'preserved', quarantine_path = '/wt/.s1.unwind-x' WHERE id = ?", idOf("/wt/s1"))
		err = b.Lease(ctx, holder("s2"), idOf("/wt/s1/lib"))
		requireCode(t, teardown.CodeWorktreeMissing, false, err)
		require.ErrorContains(t, err, "retry")
		b.exec("UPDATE worktrees SET quarantine_path = '' WHERE id = ?", idOf("/wt/s1"))
		b.lease("s2", "/wt/s1/lib")
		_ = step
	}},
}
