package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

var releasePromises = []promise{
	{"the plan lists the deepest first, with the nearest ancestor in the plan", func(t *testing.T, b *bundle) {
		step := b.terminated("s1", "/wt/s1", "/wt/s1/lib", "/wt/s1/lib/a/deep", "/wt/s1-other")
		plan, err := b.ReleaseLeases(ctx, step)
		require.NoError(t, err)
		require.Equal(t, []teardown.Removal{
			{WorktreeID: idOf("/wt/s1/lib/a/deep"), ParentID: idOf("/wt/s1/lib"), Host: host, Name: "deep"},
			{WorktreeID: idOf("/wt/s1/lib"), ParentID: idOf("/wt/s1"), Host: host, Name: "lib"},
			{WorktreeID: idOf("/wt/s1"), Host: host, Name: "s1"},
			{WorktreeID: idOf("/wt/s1-other"), Host: host, Name: "s1-other"},
		}, plan.Removals)
		w := b.worktree("/wt/s1")
		require.Equal(t, store.WorktreeDeleting, w.State)
		require.Equal(t, store.HolderOf(step), w.Remover())
		require.NotNil(t, b.finalization(step).RuntimeReleasedAt)
	}},
	{"fault 3: a replay answers the same plan, without what is done", func(t *testing.T, b *bundle) {
		step := b.terminated("s1", "/wt/a", "/wt/b", "/wt/c")
		first := b.release(step)
		require.Len(t, first, 3)
		require.Equal(t, first, b.release(step))
		b.remove(step, "/wt/a")
		b.preserve(step, "/wt/b")
		require.Equal(t, []string{idOf("/wt/c")}, b.release(step))
	}},
	{"whoever is not last gets retained, and the last the plan", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/shared")
		b.session("s2")
		b.lease("s2", "/wt/shared")
		b.terminate("s1")
		b.terminate("s2")
		first, last := b.begin("s1"), b.begin("s2")
		require.Empty(t, b.release(first))
		require.Equal(t, teardown.DispositionRetained, b.disposition(first, "/wt/shared"))
		require.Equal(t, store.WorktreeActive, b.state("/wt/shared"))
		require.Equal(t, []string{idOf("/wt/shared")}, b.release(last))
		require.Empty(t, b.release(first))
		require.Equal(t, teardown.DispositionRetained, b.disposition(first, "/wt/shared"))
	}},
	{"nothing is released while a runtime is not", func(t *testing.T, b *bundle) {
		n := b.manifest("s1", "/wt/s1")
		n.Runtimes = []store.NewRuntime{{ID: "r1", Handle: teardown.Runtime{Kind: "tmux"}}}
		b.add(n)
		b.terminate("s1")
		step := b.begin("s1")
		_, err := b.ReleaseLeases(ctx, step)
		requireCode(t, teardown.CodeInternal, false, err)
		require.Equal(t, store.WorktreeActive, b.state("/wt/s1"))
	}},
	{"superseded by a newer round or generation, it touches nothing", func(t *testing.T, b *bundle) {
		step := b.terminated("s1", "/wt/s1")
		newer := b.retry(step)
		plan, err := b.ReleaseLeases(ctx, step)
		require.NoError(t, err)
		require.Equal(t, teardown.ReleaseLeasesResult{Superseded: true}, plan)
		b.restored("s1")
		plan, err = b.ReleaseLeases(ctx, newer)
		require.NoError(t, err)
		require.Equal(t, teardown.ReleaseLeasesResult{Superseded: true}, plan)
		require.Equal(t, store.WorktreeActive, b.state("/wt/s1"))
	}},
	{"a parked finalization releases nothing", func(t *testing.T, b *bundle) {
		step := b.terminated("s1", "/wt/s1")
		b.park(step, teardown.ReasonCancelled)
		plan, err := b.ReleaseLeases(ctx, step)
		require.NoError(t, err)
		require.Equal(t, teardown.ReleaseLeasesResult{Parked: true}, plan)
		require.Equal(t, store.WorktreeActive, b.state("/wt/s1"))
	}},
	{"a later round tries again what an earlier one preserved, the same round does not", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1", "/wt/gone")
		b.preserve(step, "/wt/s1")
		b.remove(step, "/wt/gone")
		require.Empty(t, b.release(step), "a late replay must not take up what its round decided")
		require.Equal(t, store.WorktreePreserved, b.state("/wt/s1"))
		b.park(step, teardown.ReasonPreserved)
		next := b.retry(step)
		require.Equal(t, []string{idOf("/wt/s1")}, b.release(next))
		require.Equal(t, teardown.DispositionPending, b.disposition(next, "/wt/s1"))
		require.Equal(t, teardown.DispositionRemoved, b.disposition(next, "/wt/gone"))
		require.Equal(t, []string{idOf("/wt/s1")}, b.release(next))
	}},
	{"what was preserved and is held anew is retained by the next round", func(t *testing.T, b *bundle) {
		step := b.parked("s1", "/wt/s1")
		b.session("s2")
		b.lease("s2", "/wt/s1")
		next := b.retry(step)
		require.Empty(t, b.release(next))
		require.Equal(t, teardown.DispositionRetained, b.disposition(next, "/wt/s1"))
		done, err := b.Finish(ctx, next)
		require.NoError(t, err)
		require.False(t, done.Superseded)
	}},
	{"what another finalization removes by now is retained", func(t *testing.T, b *bundle) {
		step := b.parked("s1", "/wt/s1")
		b.session("s2")
		b.lease("s2", "/wt/s1")
		b.terminate("s2")
		b.release(b.begin("s2"))
		next := b.retry(step)
		require.Empty(t, b.release(next))
		require.Equal(t, teardown.DispositionRetained, b.disposition(next, "/wt/s1"))
	}},
	{"leases of the session's earlier generations keep nothing", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		b.restored("s1")
		b.terminate("s1")
		step := b.begin("s1")
		require.Equal(t, int64(2), step.Generation)
		require.Equal(t, []string{idOf("/wt/s1")}, b.release(step))
		require.Equal(t, teardown.DispositionPending, b.disposition(step, "/wt/s1"))
	}},
}

var claimPromises = []promise{
	{"a claim goes on only for the remover, in its round", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.mustClaim(step, "/wt/s1")
		b.mustClaim(step, "/wt/s1")
		b.retry(step)
		late := b.claim(step, "/wt/s1")
		require.False(t, late.Go)
		require.Equal(t, teardown.DispositionSuperseded, late.Result.Disposition)
		require.Equal(t, teardown.DispositionPending, b.disposition(step, "/wt/s1"))
	}},
	{"a claim says whether work is to be saved first", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		require.False(t, b.claim(step, "/wt/s1").SaveChanges)
		round, _, err := b.Retry(ctx, "s1", store.RetryOptions{SaveChanges: true})
		require.NoError(t, err)
		step.Round = round
		b.release(step)
		require.True(t, b.claim(step, "/wt/s1").SaveChanges)
	}},
	{"a claim before the release, or of a restored session, is superseded", func(t *testing.T, b *bundle) {
		step := b.terminated("s1", "/wt/s1")
		require.Equal(t, teardown.DispositionSuperseded, b.claim(step, "/wt/s1").Result.Disposition)
		require.Equal(t, teardown.DispositionPending, b.disposition(step, "/wt/s1"))
		b.release(step)
		b.restored("s1")
		require.Equal(t, teardown.DispositionSuperseded, b.claim(step, "/wt/s1").Result.Disposition)
		require.Equal(t, store.WorktreeDeleting, b.state("/wt/s1"))
	}},
	{"a claim answers what became of it", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/a", "/wt/b")
		b.mustClaim(step, "/wt/a")
		_, err := b.Removed(ctx, step, idOf("/wt/a"), teardown.WorktreeResult{
			Disposition: teardown.DispositionRemoved, Bytes: 99, SavedRef: "refs/unwind/saved/s1/1/a", Details: []string{"rescued"}})
		require.NoError(t, err)
		again := b.claim(step, "/wt/a")
		require.False(t, again.Go)
		require.Equal(t, teardown.WorktreeResult{ID: idOf("/wt/a"), Path: "/wt/a", Disposition: teardown.DispositionRemoved,
			Details: []string{"rescued"}, SavedRef: "refs/unwind/saved/s1/1/a"}, again.Result)
		b.preserve(step, "/wt/b")
		kept := b.claim(step, "/wt/b")
		require.False(t, kept.Go)
		require.Equal(t, teardown.CodeModified, kept.Result.Code)
		require.Equal(t, int64(4096), kept.Result.Bytes)
		require.Equal(t, []string{"main.go"}, kept.Result.Details)
	}},
	{"where work was saved stays known", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		saved := modified
		saved.SavedRef = "refs/unwind/saved/s1/1/w"
		_, err := b.Preserved(ctx, step, idOf("/wt/s1"), saved, false)
		require.NoError(t, err)
		next := b.retry(step)
		b.release(next)
		b.remove(next, "/wt/s1")
		require.Equal(t, saved.SavedRef, b.result(next, "/wt/s1").SavedRef)
	}},
	{"where work was saved is known before it is moved aside, and to a late attempt", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		require.Empty(t, b.claim(step, "/wt/s1").SavedRef)
		require.NoError(t, b.Saved(ctx, step, idOf("/wt/s1"), "refs/unwind/saved/s1/1/w"))
		require.Equal(t, "refs/unwind/saved/s1/1/w", b.claim(step, "/wt/s1").SavedRef)
		b.remove(step, "/wt/s1")
		require.Equal(t, "refs/unwind/saved/s1/1/w", b.result(step, "/wt/s1").SavedRef)
	}},
	{"the repositories of a host are known", func(t *testing.T, b *bundle) {
		b.released("s1", "/wt/s1", "/wt/s2")
		all, err := b.Repositories(ctx, host)
		require.NoError(t, err)
		require.Len(t, all, 1)
		all, err = b.Repositories(ctx, "none")
		require.NoError(t, err)
		require.Empty(t, all)
	}},
	{"a claim that finds a holder is retained, and says so in the lease", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.preserve(step, "/wt/s1")
		b.session("s2")
		b.lease("s2", "/wt/s1")
		require.Equal(t, teardown.DispositionRetained, b.claim(step, "/wt/s1").Result.Disposition)
		require.Equal(t, teardown.DispositionRetained, b.disposition(step, "/wt/s1"))
	}},
	{"the quarantine is written once, kept over a resume, and cleared with the end", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		id := idOf("/wt/s1")
		requireCode(t, teardown.CodeInternal, false, b.Condemned(ctx, id))
		b.mustClaim(step, "/wt/s1")
		require.NoError(t, b.MovingAside(ctx, step, id, "/wt/.s1.unwind-x"))
		require.NoError(t, b.MovingAside(ctx, step, id, "/wt/.s1.unwind-x"))
		requireCode(t, teardown.CodeInternal, false, b.MovingAside(ctx, step, id, "/wt/.s1.unwind-y"))
		require.Nil(t, b.claim(step, "/wt/s1").Worktree.CondemnedAt)
		require.NoError(t, b.Condemned(ctx, id))
		condemned := b.claim(step, "/wt/s1")
		require.True(t, condemned.Go)
		require.NotNil(t, condemned.Worktree.CondemnedAt)
		require.Equal(t, "/wt/.s1.unwind-x", condemned.Worktree.QuarantinePath)
		require.NoError(t, b.Condemned(ctx, id))
		require.Equal(t, condemned.Worktree.CondemnedAt, b.worktree("/wt/s1").CondemnedAt)
		// The answer got lost and it was put back: it is whole when it is moved again.
		require.NoError(t, b.MovingAside(ctx, step, id, "/wt/.s1.unwind-x"))
		require.Nil(t, b.worktree("/wt/s1").CondemnedAt)
		require.NoError(t, b.Condemned(ctx, id))
		_, err := b.Removed(ctx, step, id, teardown.WorktreeResult{Disposition: teardown.DispositionRemoved})
		require.NoError(t, err)
		w := b.worktree("/wt/s1")
		require.Empty(t, w.QuarantinePath)
		require.Nil(t, w.CondemnedAt)
	}},
	{"nobody but the remover moves a worktree aside", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		step := b.terminated("s2")
		requireCode(t, teardown.CodeInternal, false, b.MovingAside(ctx, step, idOf("/wt/s1"), "/wt/.s1.unwind-x"))
		requireCode(t, teardown.CodePathNotUTF8, false, b.MovingAside(ctx, step, idOf("/wt/s1"), "/wt/\xff"))
	}},
	{"preserved puts the reason on the lease and clears the quarantine", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.mustClaim(step, "/wt/s1")
		require.NoError(t, b.MovingAside(ctx, step, idOf("/wt/s1"), "/wt/.s1.unwind-x"))
		written, err := b.Preserved(ctx, step, idOf("/wt/s1"), modified, false)
		require.NoError(t, err)
		require.True(t, written)
		w := b.worktree("/wt/s1")
		require.Equal(t, store.WorktreePreserved, w.State)
		require.Empty(t, w.QuarantinePath)
		require.Equal(t, store.HolderOf(step), w.Remover())
		want := modified
		want.ID, want.Path = w.ID, w.Path
		require.Equal(t, want, b.result(step, "/wt/s1"))
	}},
	{"fault 4: what is condemned is never preserved", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.mustClaim(step, "/wt/s1")
		require.NoError(t, b.MovingAside(ctx, step, idOf("/wt/s1"), "/wt/.s1.unwind-x"))
		require.NoError(t, b.Condemned(ctx, idOf("/wt/s1")))
		_, err := b.Preserved(ctx, step, idOf("/wt/s1"), modified, false)
		requireCode(t, teardown.CodeInternal, false, err)
		require.Equal(t, store.WorktreeDeleting, b.state("/wt/s1"))
	}},
	{"removed and condemned are written whatever the round", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.mustClaim(step, "/wt/s1")
		require.NoError(t, b.MovingAside(ctx, step, idOf("/wt/s1"), "/wt/.s1.unwind-x"))
		next := b.retry(step)
		require.NoError(t, b.Condemned(ctx, idOf("/wt/s1")))
		_, err := b.Removed(ctx, step, idOf("/wt/s1"), teardown.WorktreeResult{Disposition: teardown.DispositionRemoved})
		require.NoError(t, err)
		require.Equal(t, store.WorktreeRemoved, b.state("/wt/s1"))
		require.Equal(t, teardown.DispositionRemoved, b.disposition(next, "/wt/s1"))
	}},
	{"a worktree that is in use is never recorded as removed", func(t *testing.T, b *bundle) {
		step := b.parked("s1", "/wt/s1")
		b.session("s2")
		b.lease("s2", "/wt/s1")
		_, err := b.Removed(ctx, step, idOf("/wt/s1"), teardown.WorktreeResult{Disposition: teardown.DispositionRemoved})
		requireCode(t, teardown.CodeInternal, false, err)
		require.Equal(t, store.WorktreeActive, b.state("/wt/s1"))
	}},
	{"a disposition that does not fit the step is refused", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		_, err := b.Removed(ctx, step, idOf("/wt/s1"), modified)
		requireCode(t, teardown.CodeInternal, false, err)
		_, err = b.Preserved(ctx, step, idOf("/wt/s1"), teardown.WorktreeResult{Disposition: teardown.DispositionRemoved}, false)
		requireCode(t, teardown.CodeInternal, false, err)
		_, err = b.Claim(ctx, step, "unknown")
		requireCode(t, teardown.CodeInternal, false, err)
	}},
}

var treePromises = []promise{
	{"a parent whose child stays is preserved for it, and nothing looked at", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1", "/wt/s1/lib", "/wt/s1/app")
		b.preserve(step, "/wt/s1/lib")
		b.remove(step, "/wt/s1/app")
		claim := b.claim(step, "/wt/s1")
		require.False(t, claim.Go)
		require.Equal(t, teardown.CodeChildPreserved, claim.Result.Code)
		require.Equal(t, []string{"/wt/s1/lib"}, claim.Result.Details)
		require.Equal(t, store.WorktreePreserved, b.state("/wt/s1"))
		require.Equal(t, claim.Result, b.result(step, "/wt/s1"))
	}},
	{"fault 18: a live session's child keeps the parent, also one that names no parent", func(t *testing.T, b *bundle) {
		b.session("s2", "/wt/s1/lib")
		step := b.released("s1", "/wt/s1")
		claim := b.claim(step, "/wt/s1")
		require.Equal(t, teardown.CodeChildPreserved, claim.Result.Code)
	}},
	{"a path that only begins alike is no child", func(_ *testing.T, b *bundle) {
		b.session("s2", "/wt/s1-more", "/wt/s10", "/wt/s1.x", "/wt/S1/lib", "/wt/s", "/wt/%", "/wt/s1_")
		step := b.released("s1", "/wt/s1")
		b.mustClaim(step, "/wt/s1")
	}},
	{"a child on another host is no child", func(_ *testing.T, b *bundle) {
		n := b.manifest("s2", "/wt/s1/lib")
		n.Host = "host2"
		b.add(n)
		step := b.released("s1", "/wt/s1")
		b.mustClaim(step, "/wt/s1")
	}},
	{"fault 18: no child is added to a parent that is being removed", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		_, err := b.AddSession(ctx, b.manifest("s2", "/wt/s1/lib"))
		requireCode(t, teardown.CodeWorktreeDeleting, false, err)
		named := b.manifest("s2", "/wt/s1/a/b/lib")
		named.Worktrees[0].ParentID = idOf("/wt/s1")
		_, err = b.AddSession(ctx, named)
		requireCode(t, teardown.CodeWorktreeDeleting, false, err)
		b.mustClaim(step, "/wt/s1")
		b.preserve(step, "/wt/s1")
		b.session("s2", "/wt/s1/lib")
	}},
	{"fault 18: when the last child goes, the parent that stayed for it goes too", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1", "/wt/s1/lib", "/wt/s1/app")
		b.preserve(step, "/wt/s1/lib")
		b.preserve(step, "/wt/s1/app")
		require.False(t, b.claim(step, "/wt/s1").Go)
		b.park(step, teardown.ReasonPreserved)
		next := b.retry(step)
		b.release(next)
		require.Empty(t, b.remove(next, "/wt/s1/lib"), "the parent is in the plan already")
	}},
	{"fault 18: a parent that nobody holds is reopened by another session's last child", func(t *testing.T, b *bundle) {
		b.session("s2", "/wt/s1/lib", "/wt/s1/lib/deep")
		outer := b.released("s1", "/wt/s1")
		require.False(t, b.claim(outer, "/wt/s1").Go)
		b.park(outer, teardown.ReasonPreserved)
		b.terminate("s2")
		inner := b.begin("s2")
		b.release(inner)
		require.Empty(t, b.remove(inner, "/wt/s1/lib/deep"), "a child is left")
		require.Equal(t, []string{idOf("/wt/s1")}, b.remove(inner, "/wt/s1/lib"))
		require.Equal(t, store.HolderOf(inner), b.worktree("/wt/s1").Remover())
		require.Equal(t, []string{idOf("/wt/s1")}, b.release(inner))
		require.Equal(t, teardown.DispositionPending, b.disposition(inner, "/wt/s1"))
		done, err := b.Finish(ctx, inner)
		require.NoError(t, err)
		require.True(t, done.Superseded, "what it took on it has to do")
		b.remove(inner, "/wt/s1")
		done, err = b.Finish(ctx, inner)
		require.NoError(t, err)
		require.False(t, done.Superseded)

		again := b.retry(outer)
		require.Empty(t, b.release(again))
		require.Equal(t, teardown.DispositionAlreadyGone, b.disposition(again, "/wt/s1"))
	}},
	{"its own parent is pending again when its last child goes late", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1", "/wt/s1/lib")
		b.mustClaim(step, "/wt/s1/lib")
		require.False(t, b.claim(step, "/wt/s1").Go)
		reopened, err := b.Removed(ctx, step, idOf("/wt/s1/lib"), teardown.WorktreeResult{Disposition: teardown.DispositionRemoved})
		require.NoError(t, err)
		require.Equal(t, []string{idOf("/wt/s1")}, reopened)
		require.Equal(t, teardown.DispositionPending, b.disposition(step, "/wt/s1"))
		require.Equal(t, []string{idOf("/wt/s1")}, b.release(step))
	}},
	{"a parent that is held, or stays for its own content, is not reopened", func(t *testing.T, b *bundle) {
		b.session("s3")
		step := b.released("s1", "/wt/own", "/wt/held", "/wt/own/lib", "/wt/held/lib")
		b.mustClaim(step, "/wt/own/lib")
		b.mustClaim(step, "/wt/held/lib")
		written, err := b.Preserved(ctx, step, idOf("/wt/own"), modified, false)
		require.NoError(t, err)
		require.True(t, written)
		require.False(t, b.claim(step, "/wt/held").Go)
		b.lease("s3", "/wt/held")
		require.Empty(t, b.remove(step, "/wt/own/lib"))
		require.Empty(t, b.remove(step, "/wt/held/lib"))
		require.Equal(t, store.WorktreePreserved, b.state("/wt/own"))
		require.Equal(t, store.WorktreeActive, b.state("/wt/held"))
	}},
	{"a late child of a finalization that is over leaves its list alone", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1", "/wt/s1/lib")
		b.mustClaim(step, "/wt/s1/lib")
		require.False(t, b.claim(step, "/wt/s1").Go)
		b.restored("s1")
		_, err := b.Removed(ctx, step, idOf("/wt/s1/lib"), teardown.WorktreeResult{Disposition: teardown.DispositionRemoved})
		require.NoError(t, err)
		require.Equal(t, store.WorktreeDeleting, b.state("/wt/s1"), "its remover is void: reconcile finishes it")
		require.Equal(t, teardown.DispositionPreserved, b.disposition(step, "/wt/s1"))
	}},
}
