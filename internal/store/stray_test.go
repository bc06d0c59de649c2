package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

// strays lists the paths of all strays of the host, page by page.
func (b *bundle) strays() []string {
	b.t.Helper()
	found := []string{}
	for after := ""; ; {
		page, err := b.Strays(ctx, host, after, 1)
		require.NoError(b.t, err)
		require.Empty(b.t, page.Unreadable)
		for _, stray := range page.Rows {
			found = append(found, stray.Path)
		}
		if after = page.Next; after == "" {
			return found
		}
	}
}

func (b *bundle) claimStray(path string) store.Claim {
	b.t.Helper()
	claim, err := b.ClaimStray(ctx, idOf(path))
	require.NoError(b.t, err)
	return claim
}

// kept is what a look at a worktree that stays found.
func kept(id string) teardown.WorktreeResult {
	return teardown.WorktreeResult{ID: id, Disposition: teardown.DispositionPreserved, Code: teardown.CodeUntracked, Details: []string{"draft.md"}}
}

// strayAt is the stray at a path.
func (b *bundle) strayAt(path string) store.Stray {
	b.t.Helper()
	page, err := b.Strays(ctx, host, "", 10)
	require.NoError(b.t, err)
	for _, stray := range page.Rows {
		if stray.Path == path {
			return stray
		}
	}
	b.t.Fatalf("no stray at %s", path)
	return store.Stray{}
}

var strayPromises = []promise{
	{"a stray that stays says why, until somebody has held it again", func(t *testing.T, b *bundle) {
		b.released("s1", "/wt/s1")
		b.restored("s1")
		require.Empty(t, b.strayAt("/wt/s1").KeptCode)
		require.True(t, b.claimStray("/wt/s1").Go)
		require.NoError(t, b.PreservedStray(ctx, kept(idOf("/wt/s1")), false))
		stray := b.strayAt("/wt/s1")
		require.Equal(t, teardown.CodeUntracked, stray.KeptCode)
		require.ErrorContains(t, stray.Why(), "Nobody holds the worktree /wt/s1, and it is kept (untracked: draft.md)")
		found := kept(idOf("/wt/s1"))
		found.Code = teardown.CodeModified
		require.NoError(t, b.LookedAtStray(ctx, found))
		require.Equal(t, teardown.CodeModified, b.strayAt("/wt/s1").KeptCode)
		b.session("s2")
		b.lease("s2", "/wt/s1")
		b.exec("UPDATE leases SET released_at = acquired_at WHERE holder_id = 's2'")
		require.Empty(t, b.strayAt("/wt/s1").KeptCode)
		b.exec("UPDATE worktrees SET kept_details = 'nonsense'")
		require.Equal(t, "/wt/s1", b.strayAt("/wt/s1").Path)
	}},
	{"fault 8: a stray is what nobody holds and no finalization will finish", func(t *testing.T, b *bundle) {
		b.session("a-live", "/wt/held")
		b.released("b-under-way", "/wt/under-way")
		kept := b.released("c-parked", "/wt/parked")
		b.preserve(kept, "/wt/parked")
		b.park(kept, teardown.ReasonPreserved)
		require.Empty(t, b.strays())

		restored := b.released("d-restored", "/wt/restored")
		b.restored(restored.SessionID)
		again := b.released("e-again", "/wt/again")
		b.restored(again.SessionID)
		b.terminate(again.SessionID)
		b.released("f-deleted", "/wt/deleted")
		b.exec("DELETE FROM sessions WHERE id = 'f-deleted'")
		finished := b.released("g-finished", "/wt/finished")
		b.exec("UPDATE finalizations SET finished_at = started_at WHERE holder_id = ?", finished.SessionID)
		b.released("h-odd", "/wt/odd")
		b.exec("UPDATE worktrees SET remover_kind = 'gremlin' WHERE path = '/wt/odd'")
		b.session("i-let-go", "/wt/let-go")
		b.exec("UPDATE leases SET released_at = acquired_at WHERE holder_id = 'i-let-go'")
		require.ElementsMatch(t, []string{"/wt/restored", "/wt/again", "/wt/deleted", "/wt/finished", "/wt/odd", "/wt/let-go"}, b.strays())
		for _, path := range b.strays() {
			require.True(t, b.claimStray(path).Go, path)
			w := b.worktree(path)
			require.Equal(t, store.WorktreeDeleting, w.State)
			require.Equal(t, store.Holder{Kind: store.HolderReconcile, ID: w.ID, Generation: 1}, w.Remover())
		}
		require.Len(t, b.strays(), 6, "one that is claimed stays one until it is done")
		page, err := b.Strays(ctx, "host2", "", 10)
		require.NoError(t, err)
		require.Empty(t, page.Rows, "each host has its own")
	}},
	{"one that nobody ever held is listed, and not claimed", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		b.exec("DELETE FROM leases")
		page, err := b.Strays(ctx, host, "", 10)
		require.NoError(t, err)
		require.Len(t, page.Rows, 1)
		require.False(t, page.Rows[0].Leased)
		claim := b.claimStray("/wt/s1")
		require.False(t, claim.Go)
		require.Equal(t, teardown.DispositionSuperseded, claim.Result.Disposition)
		require.Equal(t, store.WorktreeActive, b.state("/wt/s1"))
	}},
	{"what is held, or a finalization's, is not reconcile's to claim", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		step := b.released("s2", "/wt/s2")
		for _, path := range []string{"/wt/s1", "/wt/s2"} {
			require.Equal(t, teardown.DispositionSuperseded, b.claimStray(path).Result.Disposition)
		}
		b.remove(step, "/wt/s2")
		require.Equal(t, teardown.DispositionAlreadyGone, b.claimStray("/wt/s2").Result.Disposition)
	}},
	{"fault 8: a stray is removed in the order of any removal", func(t *testing.T, b *bundle) {
		b.released("s1", "/wt/s1")
		b.restored("s1")
		id, aside := idOf("/wt/s1"), "/wt/.s1.unwind-x"
		requireCode(t, teardown.CodeInternal, false, b.MovingStrayAside(ctx, id, aside))
		requireCode(t, teardown.CodeInternal, false, b.RemovedStray(ctx, id))
		require.True(t, b.claimStray("/wt/s1").Go)
		require.NoError(t, b.MovingStrayAside(ctx, id, aside))
		require.Equal(t, aside, b.claimStray("/wt/s1").Worktree.QuarantinePath, "a crash here is resumed")
		require.NoError(t, b.Condemned(ctx, id))
		requireCode(t, teardown.CodeInternal, false, b.PreservedStray(ctx, kept(id), false))
		require.NotNil(t, b.claimStray("/wt/s1").Worktree.CondemnedAt)
		require.NoError(t, b.RemovedStray(ctx, id))
		require.NoError(t, b.RemovedStray(ctx, id), "again is a no-op")
		require.Equal(t, store.WorktreeRemoved, b.state("/wt/s1"))
		require.Empty(t, b.strays())
	}},
	{"a stray that stays is preserved, and may be leased", func(t *testing.T, b *bundle) {
		b.released("s1", "/wt/s1")
		b.restored("s1")
		require.True(t, b.claimStray("/wt/s1").Go)
		b.session("s2")
		requireCode(t, teardown.CodeWorktreeDeleting, false,
			b.Lease(ctx, store.Holder{Kind: store.HolderSession, ID: "s2", Generation: 1}, idOf("/wt/s1")))
		require.NoError(t, b.PreservedStray(ctx, kept(idOf("/wt/s1")), false))
		before := b.worktree("/wt/s1").UpdatedAt
		require.NoError(t, b.LookedAtStray(ctx, kept(idOf("/wt/s1"))))
		require.True(t, b.worktree("/wt/s1").UpdatedAt.After(before))
		require.Equal(t, store.WorktreePreserved, b.state("/wt/s1"))
		b.lease("s2", "/wt/s1")
		require.Empty(t, b.strays())
		require.Equal(t, store.Holder{}, b.worktree("/wt/s1").Remover())
	}},
	{"a stray parent stays for what is registered inside, and goes after it", func(t *testing.T, b *bundle) {
		b.released("s1", "/wt/s1", "/wt/s1/lib")
		b.restored("s1")
		parent := b.claimStray("/wt/s1")
		require.False(t, parent.Go)
		require.Equal(t, teardown.CodeChildPreserved, parent.Result.Code)
		require.Equal(t, []string{"/wt/s1/lib"}, parent.Result.Details)
		require.Equal(t, store.WorktreePreserved, b.state("/wt/s1"))
		require.True(t, b.claimStray("/wt/s1/lib").Go)
		require.NoError(t, b.RemovedStray(ctx, idOf("/wt/s1/lib")))
		require.Equal(t, store.WorktreeDeleting, b.state("/wt/s1"))
		require.True(t, b.claimStray("/wt/s1").Go)
	}},
}

var vanishedPromises = []promise{
	{"a session without a row gives up its leases when its runtimes are gone", func(t *testing.T, b *bundle) {
		n := b.manifest("s1", "/wt/s1", "/wt/shared")
		n.Runtimes = []store.NewRuntime{{ID: "r1", Handle: teardown.Runtime{Kind: teardown.KindProcess, Role: teardown.RoleAgent, PID: 7, StartTime: 1}}}
		b.add(n)
		b.session("s2")
		b.lease("s2", "/wt/shared")
		require.Empty(t, b.vanished())
		_, vanished, err := b.VanishedRuntimes(ctx, "s1")
		require.NoError(t, err)
		require.False(t, vanished)
		b.vanish("s1")
		require.Equal(t, []string{"s1"}, b.vanished())
		left, vanished, err := b.VanishedRuntimes(ctx, "s1")
		require.NoError(t, err)
		require.True(t, vanished)
		require.Len(t, left, 1)
		requireCode(t, teardown.CodeInternal, false, b.ReleaseVanished(ctx, "s1"))
		require.Empty(t, b.strays(), "no worktree is touched while a runtime may live")
		known := left[0].Handle.V
		known.StartTime = 2
		require.NoError(t, b.VanishedRuntimeToEnd(ctx, "r1", known, "/snap/r1"))
		left, _, err = b.VanishedRuntimes(ctx, "s1")
		require.NoError(t, err)
		require.Equal(t, known, left[0].Handle.V)
		require.Equal(t, "/snap/r1", left[0].SnapshotPath)
		require.NoError(t, b.VanishedRuntimeReleased(ctx, "r1", teardown.RuntimeResult{Outcome: teardown.RuntimeAlreadyGone}))
		requireCode(t, teardown.CodeBusy, true, b.VanishedRuntimeToEnd(ctx, "r1", known, ""))
		require.NoError(t, b.ReleaseVanished(ctx, "s1"))
		require.Empty(t, b.vanished())
		require.Equal(t, []string{"/wt/s1"}, b.strays(), "the other one is held by somebody else")
		require.Equal(t, store.WorktreeDeleting, b.state("/wt/s1"))
		require.Equal(t, store.WorktreeActive, b.state("/wt/shared"))
	}},
	{"its id is not used again before that", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		b.session("s2", "/wt/s2")
		b.vanish("s1")
		_, err := b.AddSession(ctx, b.manifest("s1", "/wt/new"))
		requireCode(t, teardown.CodeBusy, true, err)
		_, _, err = b.Fork(ctx, store.Fork{Parent: "s2", Child: "s1", Seen: []string{idOf("/wt/s2")}})
		requireCode(t, teardown.CodeBusy, true, err)
		require.Equal(t, []string{"s1"}, b.vanished())
		require.NoError(t, b.ReleaseVanished(ctx, "s1"))
		b.session("s1", "/wt/new")
		session, err := b.Session(ctx, "s1")
		require.NoError(t, err)
		require.Equal(t, int64(2), session.Generation, "above that of the leases that were")
	}},
	{"the end of an agent is seen also if the id was that of a session without worktrees", func(t *testing.T, b *bundle) {
		agent := func(id string) store.NewSession {
			n := b.manifest("s1")
			n.Runtimes = []store.NewRuntime{{ID: id, Handle: processHandle(7)}}
			return n
		}
		b.add(agent("r1"))
		b.vanish("s1")
		require.NoError(t, b.VanishedRuntimeReleased(ctx, "r1", teardown.RuntimeResult{Outcome: teardown.RuntimeAlreadyGone}))
		b.add(agent("r2"))
		require.Equal(t, int64(2), b.live("s1").Generation)
		watched := b.watched()
		require.Len(t, watched, 1)
		require.Equal(t, "r2", watched[0].Agents[0].RuntimeID)
	}},
	{"its id is not used again while a resource of it may be cleared", func(t *testing.T, b *bundle) {
		n := b.manifest("s1")
		n.Resources = []store.NewResource{{ID: "x1", Kind: "file", Path: "/state/s1"}}
		b.add(n)
		b.vanish("s1")
		_, err := b.AddSession(ctx, b.manifest("s1", "/wt/new"))
		requireCode(t, teardown.CodeBusy, true, err)
		require.Equal(t, []string{"x1"}, b.clearable("s1"))
		require.NoError(t, b.VanishedResourceCleared(ctx, "x1"))
		b.session("s1", "/wt/new")
		require.Equal(t, int64(2), b.live("s1").Generation)
	}},
	{"its id can be used again while a resource of it waits for a worktree that was kept", func(t *testing.T, b *bundle) {
		n := b.manifest("s1", "/wt/s1")
		n.Resources = []store.NewResource{{ID: "x1", Kind: "file", Path: "/state/s1"}}
		b.add(n)
		b.vanish("s1")
		require.NoError(t, b.ReleaseVanished(ctx, "s1"))
		b.session("s1", "/wt/new")
	}},
	{"its secrets go with its runtimes, the rest when none of its worktrees is left", func(t *testing.T, b *bundle) {
		n := b.manifest("s1", "/wt/s1")
		n.Runtimes = []store.NewRuntime{{ID: "r1", Handle: teardown.Runtime{Kind: teardown.KindProcess, Role: teardown.RoleAgent, PID: 7, StartTime: 1}}}
		n.Resources = []store.NewResource{{ID: "x1", Kind: "dir", Path: "/state/s1"}, {ID: "x2", Kind: "secret", Path: "/state/s1/env"}}
		b.add(n)
		require.Empty(t, b.clearable("s1"), "it has a row")
		b.vanish("s1")
		require.Empty(t, b.clearable("s1"), "a runtime is left")
		require.NoError(t, b.VanishedRuntimeReleased(ctx, "r1", teardown.RuntimeResult{Outcome: teardown.RuntimeAlreadyGone}))
		require.Equal(t, []string{"x2"}, b.clearable("s1"))
		require.NoError(t, b.ReleaseVanished(ctx, "s1"))
		require.Equal(t, []string{"s1"}, b.vanished(), "the secret is left")
		require.NoError(t, b.VanishedResourceCleared(ctx, "x2"))
		require.Empty(t, b.vanished(), "what a restore by hand would need waits with the worktree")
		require.True(t, b.claimStray("/wt/s1").Go)
		require.NoError(t, b.PreservedStray(ctx, kept(idOf("/wt/s1")), false))
		require.Empty(t, b.vanished())
		require.True(t, b.claimStray("/wt/s1").Go)
		require.NoError(t, b.RemovedStray(ctx, idOf("/wt/s1")))
		require.Equal(t, []string{"s1"}, b.vanished())
		require.Equal(t, []string{"x1"}, b.clearable("s1"))
		require.NoError(t, b.VanishedResourceCleared(ctx, "x1"))
		require.Empty(t, b.vanished())
	}},
	{"its resources do not wait for a worktree that somebody else has", func(t *testing.T, b *bundle) {
		n := b.manifest("s1", "/wt/s1")
		n.Resources = []store.NewResource{{ID: "x1", Kind: "file", Path: "/state/s1"}}
		b.add(n)
		b.session("s2")
		b.lease("s2", "/wt/s1")
		b.vanish("s1")
		require.Equal(t, []string{"x1"}, b.clearable("s1"))
	}},
	{"without a worktree its host is only known where there is but one", func(t *testing.T, b *bundle) {
		n := b.manifest("s1")
		n.Resources = []store.NewResource{{ID: "x1", Kind: "secret", Path: "/state/s1"}}
		b.add(n)
		hostless, err := b.Hostless(ctx, "", 10)
		require.NoError(t, err)
		require.Empty(t, hostless)
		b.vanish("s1")
		hostless, err = b.Hostless(ctx, "", 10)
		require.NoError(t, err)
		if b.Dialect() == store.SQLite {
			require.Empty(t, hostless)
			require.Equal(t, []string{"s1"}, b.vanished())
			return
		}
		require.Equal(t, []string{"s1"}, hostless)
		require.Empty(t, b.vanished(), "what is at that path on another host is not its own")
	}},
	{"the databases themselves keep a session's row while anything refers to it", func(t *testing.T, b *bundle) {
		n := b.manifest("s1")
		n.Resources = []store.NewResource{{ID: "x1", Kind: "secret", Path: "/state/s1"}}
		b.add(n)
		_, err := b.DB().ExecContext(ctx, "DELETE FROM sessions WHERE id = 's1'")
		require.Error(t, err)
	}},
	{"nothing is released of a session that has a row", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		require.NoError(t, b.ReleaseVanished(ctx, "s1"))
		require.Equal(t, store.WorktreeActive, b.state("/wt/s1"))
		require.Empty(t, b.strays())
	}},
}

func (b *bundle) clearable(id string) (ids []string) {
	b.t.Helper()
	may, err := b.VanishedResources(ctx, id)
	require.NoError(b.t, err)
	for _, r := range may {
		ids = append(ids, r.ID)
	}
	return ids
}

func (b *bundle) vanished() []string {
	b.t.Helper()
	ids, err := b.Vanished(ctx, host, "", 10)
	require.NoError(b.t, err)
	return ids
}

// vanish deletes a session's row alone, as somebody does whose program knows of
// no foreign keys.
func (b *bundle) vanish(id string) {
	b.t.Helper()
	if strings.HasPrefix(b.url, "sqlite:") {
		connection, err := b.DB().Connx(ctx)
		require.NoError(b.t, err)
		defer func() { _ = connection.Close() }()
		for _, statement := range []string{"PRAGMA foreign_keys = OFF", "DELETE FROM sessions WHERE id = '" + id + "'", "PRAGMA foreign_keys = ON"} {
			_, err := connection.ExecContext(ctx, statement)
			require.NoError(b.t, err)
		}
		return
	}
	b.exec("ALTER TABLE sessions DISABLE TRIGGER ALL")
	b.exec("DELETE FROM sessions WHERE id = ?", id)
	b.exec("ALTER TABLE sessions ENABLE TRIGGER ALL")
}

var unboundPromises = []promise{
	{"a finalization that keeps a worktree stays parked", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1", "/wt/s1/lib")
		b.preserve(step, "/wt/s1/lib")
		require.Equal(t, teardown.CodeChildPreserved, b.claim(step, "/wt/s1").Result.Code)
		b.park(step, teardown.ReasonPreserved)
		b.park(b.terminated("s2"), teardown.ReasonPreserved)
		b.park(b.terminated("s3"), teardown.ReasonCancelled)
		require.Empty(t, b.unbound())
	}},
	{"one whose worktree another session took is unbound", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.preserve(step, "/wt/s1")
		b.park(step, teardown.ReasonPreserved)
		b.session("s2")
		b.lease("s2", "/wt/s1")
		require.Equal(t, []string{"s1"}, b.unbound())
		next := b.retry(step)
		require.Empty(t, b.release(next))
		require.Equal(t, teardown.DispositionRetained, b.disposition(next, "/wt/s1"))
		done, err := b.Finish(ctx, next)
		require.NoError(t, err)
		require.False(t, done.Superseded)
		require.Empty(t, b.unbound())
	}},
	{"fault 18: one kept for a child that another session removed is unbound", func(t *testing.T, b *bundle) {
		step := b.keptForAnothers("/wt/s1", "/wt/s1/lib")
		b.exec("UPDATE leases SET released_at = acquired_at WHERE holder_id = 's2'")
		require.True(t, b.claimStray("/wt/s1/lib").Go)
		require.NoError(t, b.RemovedStray(ctx, idOf("/wt/s1/lib")))
		require.Equal(t, []string{"s1"}, b.unbound())
		next := b.retry(step)
		require.Equal(t, []string{idOf("/wt/s1")}, b.release(next))
	}},
	{"no clock decides whether what was inside went after the parking", func(t *testing.T, b *bundle) {
		step := b.keptForAnothers("/wt/s1", "/wt/s1/lib")
		b.exec("UPDATE leases SET released_at = acquired_at WHERE holder_id = 's2'")
		require.True(t, b.claimStray("/wt/s1/lib").Go)
		require.NoError(t, b.RemovedStray(ctx, idOf("/wt/s1/lib")))
		b.exec("UPDATE worktrees SET updated_at = acquired_at FROM leases WHERE worktree_id = id AND path = '/wt/s1/lib'")
		require.Equal(t, []string{"s1"}, b.unbound())
		b.retry(step)
	}},
	{"one kept for what git alone knows inside is not woken again and again, also where a registered one was before", func(t *testing.T, b *bundle) {
		step := b.keptForAnothers("/wt/s1", "/wt/s1/lib")
		b.exec("UPDATE leases SET released_at = acquired_at WHERE holder_id = 's2'")
		require.True(t, b.claimStray("/wt/s1/lib").Go)
		require.NoError(t, b.RemovedStray(ctx, idOf("/wt/s1/lib")))
		require.Equal(t, []string{"s1"}, b.unbound())
		step = b.retry(step)
		b.release(step)
		b.mustClaim(step, "/wt/s1")
		found := teardown.WorktreeResult{Disposition: teardown.DispositionPreserved, Code: teardown.CodeChildPreserved,
			Details: []string{"/wt/s1/lib", "untracked: draft.md"}}
		written, err := b.Preserved(ctx, step, idOf("/wt/s1"), found, false)
		require.NoError(t, err)
		require.True(t, written)
		b.park(step, teardown.ReasonPreserved)
		require.Empty(t, b.unbound())
		require.Equal(t, []string{"registered with git alone: /wt/s1/lib", "untracked: draft.md"}, b.result(step, "/wt/s1").Details)
	}},
	{"a row that cannot be read keeps no other from being unbound", func(t *testing.T, b *bundle) {
		if b.Dialect() == store.Postgres {
			return // it knows what a time and a number are
		}
		for _, id := range []string{"s1", "s2", "s3"} {
			b.parked(id, "/wt/"+id)
		}
		b.session("s9")
		b.lease("s9", "/wt/s3")
		b.exec("UPDATE worktrees SET updated_at = 'x' WHERE path = '/wt/s1'")
		b.exec("UPDATE leases SET bytes = 'many' WHERE holder_id = 's2'")
		page, err := b.Unbound(ctx, host, "", 10)
		require.NoError(t, err)
		require.Len(t, page.Rows, 1)
		require.Equal(t, "s3", page.Rows[0].SessionID)
		require.Len(t, page.Unreadable, 2)
		for i, id := range []string{"s1", "s2"} {
			require.Equal(t, id, page.Unreadable[i].ID)
			requireCode(t, teardown.CodeInternal, false, page.Unreadable[i].Err)
		}
	}},
}

// keptForAnothers is a session parked on a worktree because one inside it is
// another session's, s2.
func (b *bundle) keptForAnothers(path, inside string) teardown.Step {
	b.t.Helper()
	step := b.released("s1", path)
	b.exec("UPDATE worktrees SET state = 'active'")
	b.session("s2", inside)
	b.exec("UPDATE worktrees SET state = 'deleting' WHERE path = ?", path)
	require.Equal(b.t, teardown.CodeChildPreserved, b.claim(step, path).Result.Code)
	b.park(step, teardown.ReasonPreserved)
	require.Empty(b.t, b.unbound())
	return step
}

func (b *bundle) unbound() (ids []string) {
	b.t.Helper()
	page, err := b.Unbound(ctx, host, "", 10)
	require.NoError(b.t, err)
	require.Empty(b.t, page.Unreadable)
	for _, row := range page.Rows {
		ids = append(ids, row.SessionID)
	}
	return ids
}
