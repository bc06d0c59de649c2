package store_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
	"unwind/test/interleave"
)

const interleavedAtOnce = 8

// disk is one directory and its path lock.
type disk struct {
	sync.Mutex
	there    bool
	removals int
}

// finalizeOn takes a session from its termination to the end of its removals, as a
// run does: what it may touch is asked under the path lock.
func finalizeOn(s *store.Store, d *disk, id, worktree string) error {
	if _, _, err := s.Terminate(ctx, id, "test"); err != nil {
		return err
	}
	begun, err := s.Begin(ctx, teardown.BeginInput{SessionID: id})
	if err != nil {
		return err
	}
	plan, err := s.ReleaseLeases(ctx, begun.Step)
	if err != nil || len(plan.Removals) == 0 {
		return err
	}
	d.Lock()
	defer d.Unlock()
	claim, err := s.Claim(ctx, begun.Step, worktree)
	if err != nil || !claim.Go {
		return err
	}
	d.there = false
	d.removals++
	_, err = s.Removed(ctx, begun.Step, worktree, teardown.WorktreeResult{Disposition: teardown.DispositionRemoved})
	return err
}

// holders lists who holds the worktree.
func holders(t testing.TB, b *bundle, worktree string) []string {
	t.Helper()
	var ids []string
	require.NoError(t, b.DB().Select(&ids, b.DB().Rebind("SELECT holder_id FROM leases WHERE worktree_id = ? AND released_at IS NULL ORDER BY holder_id"), worktree))
	return ids
}

// interleaving fails its test from a goroutine of its own, which ends there.
type interleaving struct{ testing.TB }

func (i interleaving) FailNow() {
	i.Fail()
	runtime.Goexit()
}

// eachInterleaving runs a race on both databases, several at once, with two
// stores as two processes have.
func eachInterleaving(t *testing.T, race func(t testing.TB, b *bundle, other *store.Store, n int)) {
	t.Parallel()
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			b := setup(t, dialect)
			other := open(t, b.url)
			var next atomic.Int64
			var all sync.WaitGroup
			for range interleavedAtOnce {
				all.Go(func() {
					t := interleaving{t}
					own := &bundle{Store: b.Store, t: t, url: b.url}
					for n := int(next.Add(1)); n <= interleave.Times(100); n = int(next.Add(1)) {
						race(t, own, other, n)
					}
				})
			}
			all.Wait()
			if dialect == store.Postgres {
				requireNoDeadlocks(t, b)
			}
		})
	}
}

// A restore and a finalization of one session: either it is live and its
// worktree is there, or the worktree went before and the restore says so.
func TestRestoreAgainstFinalize(t *testing.T) {
	eachInterleaving(t, func(t testing.TB, b *bundle, other *store.Store, n int) {
		id, path := fmt.Sprintf("s%d", n), fmt.Sprintf("/wt/%d", n)
		b.session(id, path)
		b.terminate(id)
		d := &disk{there: true}
		var restored store.Restored
		var finalizeErr, restoreErr error
		together(
			func() { finalizeErr = finalizeOn(b.Store, d, id, idOf(path)) },
			func() {
				d.Lock()
				defer d.Unlock()
				r := store.Restoration{SessionID: id, Generation: 1}
				if d.there {
					r.Intact = []string{idOf(path)}
				}
				restored, restoreErr = other.Restore(ctx, r)
			},
		)
		require.NoError(t, restoreErr)
		if code := teardown.CodeOf(finalizeErr); code != teardown.CodeSessionLive {
			require.NoError(t, finalizeErr)
		}
		// It terminates the session first, and may do so after the restore.
		session, err := b.Session(ctx, id)
		require.NoError(t, err)
		require.Equal(t, int64(2), session.Generation)
		require.LessOrEqual(t, d.removals, 1)
		w := b.worktree(path)
		switch {
		case !d.there:
			require.Equal(t, store.WorktreeRemoved, w.State)
			require.Empty(t, holders(t, b, w.ID))
			if session.TerminatedAt == nil {
				require.Len(t, restored.WorktreesGone, 1)
			}
		case session.TerminatedAt == nil:
			require.Len(t, restored.Worktrees, 1)
			require.Equal(t, store.WorktreeActive, w.State)
			require.Equal(t, []string{id}, holders(t, b, w.ID))
		}
	})
}

// A fork of a session that is being finalized: either the child holds the
// worktree and it is there, or the fork is refused by name. It is removed once,
// by the last.
func TestForkAgainstLastRelease(t *testing.T) {
	eachInterleaving(t, func(t testing.TB, b *bundle, other *store.Store, n int) {
		parent, child, path := fmt.Sprintf("p%d", n), fmt.Sprintf("c%d", n), fmt.Sprintf("/wt/%d", n)
		b.session(parent, path)
		d := &disk{there: true}
		var finalizeErr, forkErr error
		together(
			func() { finalizeErr = finalizeOn(b.Store, d, parent, idOf(path)) },
			func() { _, _, forkErr = other.Fork(ctx, forkOf(parent, child, path)) },
		)
		require.NoError(t, finalizeErr)
		if forkErr != nil {
			require.Equal(t, teardown.CodeSessionTerminated, teardown.CodeOf(forkErr), "%v", forkErr)
			require.False(t, d.there)
			require.Equal(t, 1, d.removals)
			return
		}
		require.True(t, d.there)
		require.Equal(t, []string{child}, holders(t, b, idOf(path)))
		require.NoError(t, finalizeOn(b.Store, d, child, idOf(path)))
		require.Equal(t, 1, d.removals)
		require.Equal(t, store.WorktreeRemoved, b.state(path))
	})
}

// Two sessions that share a worktree begin turns at once, and one of them is
// being deleted meanwhile.
func TestTurnsAndDeletionAreSerialized(t *testing.T) {
	eachInterleaving(t, func(t testing.TB, b *bundle, other *store.Store, n int) {
		first, second, path := fmt.Sprintf("a%d", n), fmt.Sprintf("b%d", n), fmt.Sprintf("/wt/%d", n)
		b.session(first, path)
		b.fork(first, second, path)
		errs := make([]error, 3)
		together(
			func() { _, errs[0] = b.BeginTurn(ctx, first, "t1", "") },
			func() { _, errs[1] = other.BeginTurn(ctx, second, "t2", "") },
			func() { _, _, errs[2] = b.Terminate(ctx, second, "test") },
		)
		require.NoError(t, errs[2])
		_, runs, err := b.RunningTurn(ctx, second)
		require.NoError(t, err)
		require.False(t, runs, "its termination has ended it")
		switch teardown.CodeOf(errs[1]) {
		case "", teardown.CodeSessionTerminated:
		default:
			requireCode(t, teardown.CodeBusy, true, errs[1])
		}
		if errs[0] != nil {
			requireCode(t, teardown.CodeBusy, true, errs[0])
			require.NoError(t, errs[1], "somebody was admitted")
		}
	})
}
