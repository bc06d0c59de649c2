package store_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

// rounds is how often each race is run.
func rounds(dialect store.Dialect) int {
	if testing.Short() {
		return 5
	}
	if dialect == store.SQLite {
		return 6 // it has one writer at a time, and is slow under the race detector
	}
	return 50
}

// onBoth runs a race on both databases, with two stores as two processes have.
func onBoth(t *testing.T, race func(t *testing.T, b *bundle, other *store.Store, n int)) {
	t.Parallel()
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			b := setup(t, dialect)
			other := open(t, b.url)
			for n := range rounds(dialect) {
				race(t, b, other, n)
			}
			if dialect == store.Postgres {
				requireNoDeadlocks(t, b)
			}
		})
	}
}

// A deadlock is resolved by a second try, so that only the count tells.
func requireNoDeadlocks(t *testing.T, b *bundle) {
	t.Helper()
	var deadlocks int
	require.NoError(t, b.DB().Get(&deadlocks, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"))
	require.Zero(t, deadlocks)
}

// together runs the functions at once and waits for all.
func together(functions ...func()) {
	start := make(chan struct{})
	var wg sync.WaitGroup
	for _, f := range functions {
		wg.Go(func() {
			<-start
			f()
		})
	}
	close(start)
	wg.Wait()
}

// At read committed each release could see the other's lease, and
// neither remove; or, without a lock, both.
func TestFault16TwoReleasesOfASharedWorktreeRemoveItOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bundle, other *store.Store, n int) {
		first, second, path := fmt.Sprintf("a%d", n), fmt.Sprintf("b%d", n), fmt.Sprintf("/wt/%d", n)
		b.session(first, path)
		b.session(second)
		b.lease(second, path)
		b.terminate(first)
		b.terminate(second)
		steps := []teardown.Step{b.begin(first), b.begin(second)}
		plans, errs := make([]teardown.ReleaseLeasesResult, 2), make([]error, 2)
		together(
			func() { plans[0], errs[0] = b.ReleaseLeases(ctx, steps[0]) },
			func() { plans[1], errs[1] = other.ReleaseLeases(ctx, steps[1]) },
		)
		require.NoError(t, errs[0])
		require.NoError(t, errs[1])
		require.Equal(t, 1, len(plans[0].Removals)+len(plans[1].Removals))
		for i, step := range steps {
			want := teardown.DispositionRetained
			if len(plans[i].Removals) == 1 {
				want = teardown.DispositionPending
			}
			require.Equal(t, want, b.disposition(step, path))
		}
	})
}

func TestFault16ARestoreCommitsBetweenLookAndRelease(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bundle, other *store.Store, n int) {
		id, path := fmt.Sprintf("s%d", n), fmt.Sprintf("/wt/%d", n)
		step := b.terminated(id, path)
		var plan teardown.ReleaseLeasesResult
		var err, restoreErr error
		together(
			func() { plan, err = b.ReleaseLeases(ctx, step) },
			func() {
				_, restoreErr = other.Restore(ctx, store.Restoration{SessionID: id, Generation: 1, Intact: []string{idOf(path)}})
			},
		)
		require.NoError(t, err)
		require.NoError(t, restoreErr)
		require.Equal(t, store.WorktreeActive, b.state(path))
		if plan.Superseded {
			require.Empty(t, plan.Removals)
		}
		claim := b.claim(step, path)
		require.False(t, claim.Go, "it is held at the new generation")
		_, held, _, err := b.WorktreeAt(ctx, host, path)
		require.NoError(t, err)
		require.NotEmpty(t, held)
	})
}

func TestFault16ReleasesOfOverlappingWorktreesDoNotDeadlock(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bundle, other *store.Store, n int) {
		const sessions, worktrees = 4, 6
		var paths []string
		for i := range worktrees {
			paths = append(paths, fmt.Sprintf("/wt/%d/%d", n, i))
		}
		owner := fmt.Sprintf("o%d", n)
		b.session(owner, paths...)
		var steps []teardown.Step
		for i := range sessions {
			id := fmt.Sprintf("s%d-%d", n, i)
			b.session(id)
			for _, p := range rand.Perm(worktrees)[:4] {
				b.lease(id, paths[p])
			}
		}
		for i := range sessions {
			id := fmt.Sprintf("s%d-%d", n, i)
			b.terminate(id)
			steps = append(steps, b.begin(id))
		}
		b.terminate(owner)
		steps = append(steps, b.begin(owner))
		removals, errs := make([]int, len(steps)), make([]error, len(steps))
		var functions []func()
		for i, step := range steps {
			s := []*store.Store{b.Store, other}[i%2]
			functions = append(functions, func() {
				var plan teardown.ReleaseLeasesResult
				plan, errs[i] = s.ReleaseLeases(ctx, step)
				removals[i] = len(plan.Removals)
			})
		}
		together(functions...)
		total := 0
		for i := range steps {
			require.NoError(t, errs[i])
			total += removals[i]
		}
		require.Equal(t, worktrees, total, "each worktree is in exactly one plan")
	})
}

func TestFault18AChildIsNotAddedUnderAClaimedParent(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bundle, other *store.Store, n int) {
		outer, inner, path := fmt.Sprintf("o%d", n), fmt.Sprintf("i%d", n), fmt.Sprintf("/wt/%d", n)
		step := b.terminated(outer, path)
		var claim store.Claim
		var released, claimed, addErr error
		var added bool
		together(
			func() {
				if _, released = b.ReleaseLeases(ctx, step); released == nil {
					claim, claimed = b.Claim(ctx, step, idOf(path))
				}
			},
			func() { added, addErr = other.AddSession(ctx, b.manifest(inner, path+"/lib")) },
		)
		require.NoError(t, released)
		require.NoError(t, claimed)
		if addErr != nil {
			requireCode(t, teardown.CodeWorktreeDeleting, false, addErr)
		}
		require.NotEqual(t, claim.Go, added, "either the parent goes or the child comes")
	})
}

// Neither transaction sees the other's row.
func TestFault18AParentAddedWithItsChildSeesIt(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bundle, other *store.Store, n int) {
		outer, inner, path := fmt.Sprintf("o%d", n), fmt.Sprintf("i%d", n), fmt.Sprintf("/wt/%d", n)
		var claim store.Claim
		var addErr error
		var added bool
		together(
			func() {
				if _, err := b.AddSession(ctx, b.manifest(outer, path)); err != nil {
					return
				}
				_, _, _ = b.Terminate(ctx, outer, "")
				begun, _ := b.Begin(ctx, teardown.BeginInput{SessionID: outer})
				_, _ = b.ReleaseLeases(ctx, begun.Step)
				claim, _ = b.Claim(ctx, begun.Step, idOf(path))
			},
			func() { added, addErr = other.AddSession(ctx, b.manifest(inner, path+"/lib")) },
		)
		if addErr != nil {
			requireCode(t, teardown.CodeWorktreeDeleting, false, addErr)
		}
		require.NotEqual(t, claim.Go, added, "either the parent goes or the child comes")
	})
}

func TestFault18AParentIsNotKeptForAChildThatGoesMeanwhile(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bundle, other *store.Store, n int) {
		id, path := fmt.Sprintf("s%d", n), fmt.Sprintf("/wt/%d", n)
		step := b.released(id, path, path+"/lib")
		b.mustClaim(step, path+"/lib")
		var claim store.Claim
		var reopened []string
		var claimErr, removeErr error
		together(
			func() { claim, claimErr = b.Claim(ctx, step, idOf(path)) },
			func() {
				reopened, removeErr = other.Removed(ctx, step, idOf(path+"/lib"), teardown.WorktreeResult{Disposition: teardown.DispositionRemoved})
			},
		)
		require.NoError(t, claimErr)
		require.NoError(t, removeErr)
		require.Equal(t, store.WorktreeDeleting, b.state(path))
		require.NotEqual(t, claim.Go, len(reopened) == 1)
	})
}

func TestALeaseAndTheLastReleaseAgree(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bundle, other *store.Store, n int) {
		first, second, path := fmt.Sprintf("a%d", n), fmt.Sprintf("b%d", n), fmt.Sprintf("/wt/%d", n)
		step := b.terminated(first, path)
		b.session(second)
		var plan teardown.ReleaseLeasesResult
		var err, leaseErr error
		together(
			func() { plan, err = b.ReleaseLeases(ctx, step) },
			func() { leaseErr = other.Lease(ctx, holder(second), idOf(path)) },
		)
		require.NoError(t, err)
		if leaseErr == nil {
			require.Empty(t, plan.Removals)
			require.Equal(t, teardown.DispositionRetained, b.disposition(step, path))
			return
		}
		requireCode(t, teardown.CodeWorktreeDeleting, false, leaseErr)
		require.Len(t, plan.Removals, 1)
	})
}

func TestFault13ARetryIsNotLostOnTheWayToParking(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bundle, other *store.Store, n int) {
		id, path := fmt.Sprintf("s%d", n), fmt.Sprintf("/wt/%d", n)
		step := b.released(id, path)
		b.preserve(step, path)
		var parkErr, retryErr error
		together(
			func() { _, parkErr = b.Park(ctx, teardown.ParkInput{Step: step, Reason: teardown.ReasonPreserved}) },
			func() { _, _, retryErr = other.Retry(ctx, id, store.RetryOptions{SaveChanges: true}) },
		)
		require.NoError(t, parkErr)
		require.NoError(t, retryErr)
		f := b.finalization(step)
		require.Nil(t, f.ParkedAt)
		require.Equal(t, int64(2), f.Round)
		require.True(t, f.SaveRequested)
	})
}

func TestWhatIsAskedForAtOnceIsDoneOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bundle, other *store.Store, n int) {
		id, path := fmt.Sprintf("s%d", n), fmt.Sprintf("/wt/%d", n)
		const callers = 4
		count := func(do func(*store.Store) (bool, error)) (done int) {
			t.Helper()
			results, errs := make([]bool, callers), make([]error, callers)
			var functions []func()
			for i := range callers {
				functions = append(functions, func() {
					results[i], errs[i] = do([]*store.Store{b.Store, other}[i%2])
				})
			}
			together(functions...)
			for i := range callers {
				require.NoError(t, errs[i])
				if results[i] {
					done++
				}
			}
			return done
		}
		require.Equal(t, 1, count(func(s *store.Store) (bool, error) {
			return s.AddSession(ctx, b.manifest(id, path))
		}))
		require.Equal(t, 1, count(func(s *store.Store) (bool, error) {
			_, changed, err := s.Terminate(ctx, id, "")
			return changed, err
		}))
		require.Equal(t, callers, count(func(s *store.Store) (bool, error) {
			begun, err := s.Begin(ctx, teardown.BeginInput{SessionID: id})
			return begun.Step.Round == 1, err
		}))
		require.Equal(t, callers, count(func(s *store.Store) (bool, error) {
			_, recorded, err := s.Retry(ctx, id, store.RetryOptions{})
			return recorded, err
		}))
		step := b.begin(id)
		require.Equal(t, int64(1+callers), step.Round)
		require.Equal(t, callers, count(func(s *store.Store) (bool, error) {
			plan, err := s.ReleaseLeases(ctx, step)
			return len(plan.Removals) == 1, err
		}))
		b.remove(step, path)
		require.Equal(t, callers, count(func(s *store.Store) (bool, error) {
			done, err := s.Finish(ctx, step)
			return !done.Superseded, err
		}))
	})
}

func TestAPathIsGivenToOneOfTwoSessions(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bundle, other *store.Store, n int) {
		path := fmt.Sprintf("/wt/%d", n)
		ask := func(s *store.Store, id string) (bool, error) {
			m := b.manifest(id, path)
			m.Worktrees[0].ID = ""
			return s.AddSession(ctx, m)
		}
		var added [2]bool
		var errs [2]error
		together(
			func() { added[0], errs[0] = ask(b.Store, fmt.Sprintf("a%d", n)) },
			func() { added[1], errs[1] = ask(other, fmt.Sprintf("b%d", n)) },
		)
		require.NotEqual(t, added[0], added[1])
		for i := range added {
			if !added[i] {
				requireCode(t, teardown.CodeConflict, false, errs[i])
				require.ErrorContains(t, errs[i], "held by session")
			}
		}
	})
}

// Everything at once, in any order: no error but the typed ones, no deadlock,
// and at the end every worktree is removed once.
func TestManyFinalizationsAtOnce(t *testing.T) {
	t.Parallel()
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			b := setup(t, dialect)
			other := open(t, b.url)
			const sessions = 12
			var steps []teardown.Step
			for i := range sessions {
				base := fmt.Sprintf("/wt/%d", i/3)
				paths := [][]string{{base}, {base + "/a", base + "/b"}, {base + "/a/deep"}}[i%3]
				b.session(fmt.Sprintf("s%02d", i), paths...)
			}
			for i := range sessions {
				b.terminate(fmt.Sprintf("s%02d", i))
				steps = append(steps, b.begin(fmt.Sprintf("s%02d", i)))
			}
			errs := make([]error, sessions)
			var functions []func()
			for i, step := range steps {
				s := []*store.Store{b.Store, other}[i%2]
				functions = append(functions, func() { errs[i] = finalize(s, step) })
			}
			together(functions...)
			for i := range errs {
				require.NoError(t, errs[i])
			}
			var left int
			require.NoError(t, b.DB().Get(&left, "SELECT COUNT(*) FROM worktrees WHERE state <> 'removed'"))
			require.Zero(t, left)
			if dialect == store.Postgres {
				requireNoDeadlocks(t, b)
			}
		})
	}
}

// finalize is what a workflow does, with every worktree clean: rounds until it
// is finished.
func finalize(s *store.Store, step teardown.Step) error {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		begun, err := s.Begin(ctx, teardown.BeginInput{SessionID: step.SessionID})
		if err != nil {
			return err
		}
		plan, err := s.ReleaseLeases(ctx, begun.Step)
		if err != nil {
			return err
		}
		for _, removal := range plan.Removals {
			claim, err := s.Claim(ctx, begun.Step, removal.WorktreeID)
			if err != nil {
				return err
			}
			if !claim.Go {
				continue
			}
			if _, err := s.Removed(ctx, begun.Step, removal.WorktreeID, teardown.WorktreeResult{Disposition: teardown.DispositionRemoved}); err != nil {
				return err
			}
		}
		done, err := s.Finish(ctx, begun.Step)
		if err != nil {
			return err
		}
		if !done.Superseded {
			return nil
		}
		time.Sleep(5 * time.Millisecond) // others hold what it waits for
		if _, _, err := s.Retry(ctx, step.SessionID, store.RetryOptions{}); err != nil {
			return err
		}
	}
	return fmt.Errorf("session %s did not finish", step.SessionID)
}
