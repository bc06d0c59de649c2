package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

var addPromises = []promise{
	{"adding the same manifest again is a no-op, also once terminated", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		b.terminate("s1")
		added, err := b.AddSession(ctx, b.manifest("s1", "/wt/s1"))
		require.NoError(t, err)
		require.False(t, added)
		detail, err := b.SessionDetail(ctx, "s1")
		require.NoError(t, err)
		require.Len(t, detail.Worktrees, 1)
		require.NotNil(t, detail.Session.TerminatedAt)
	}},
	{"adding the id with another manifest is a conflict", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		other := b.manifest("s1", "/wt/other")
		other.ManifestHash = "another"
		_, err := b.AddSession(ctx, other)
		requireCode(t, teardown.CodeConflict, false, err)
	}},
	{"a path that is taken is a conflict that names the holder, and adds nothing", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/shared")
		n := b.manifest("s2", "/wt/own", "/wt/shared")
		n.Worktrees[1].ID = "another"
		_, err := b.AddSession(ctx, n)
		requireCode(t, teardown.CodeConflict, false, err)
		require.ErrorContains(t, err, "session s1")
		_, err = b.Session(ctx, "s2")
		requireCode(t, teardown.CodeSessionNotFound, false, err)
		_, _, found, err := b.WorktreeAt(ctx, host, "/wt/own")
		require.NoError(t, err)
		require.False(t, found)
	}},
	{"a resource at, above or below a registered worktree is a conflict that names the holder, and adds nothing", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		for _, path := range []string{"/wt/s1", "/wt", "/wt/s1/deep/file"} {
			n := b.manifest("s2", "/wt/own")
			n.Resources = []store.NewResource{{Kind: "file", Path: "/state/s2"}, {Kind: "dir", Path: path}}
			_, err := b.AddSession(ctx, n)
			requireCode(t, teardown.CodeConflict, false, err)
			require.ErrorContains(t, err, path+" is, holds or lies inside the worktree /wt/s1, which is registered and held by session s1")
			_, err = b.Session(ctx, "s2")
			requireCode(t, teardown.CodeSessionNotFound, false, err)
		}
		n := b.manifest("s2", "/wt/own")
		n.Resources = []store.NewResource{{Kind: "dir", Path: "/wt/s1-state"}, {Kind: "dir", Path: "/wt/s"}}
		b.add(n)
		elsewhere := b.manifest("s3")
		elsewhere.Host, elsewhere.Resources = "host2", []store.NewResource{{Kind: "dir", Path: "/wt/s1"}}
		b.add(elsewhere)
	}},
	{"a resource may be where a worktree was removed", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		n := b.manifest("s2")
		n.Resources = []store.NewResource{{Kind: "dir", Path: "/wt/s1"}}
		_, err := b.AddSession(ctx, n)
		requireCode(t, teardown.CodeConflict, false, err)
		require.ErrorContains(t, err, "held by nobody")
		b.remove(step, "/wt/s1")
		b.add(n)
	}},
	{"the same path on another host is another worktree", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		n := b.manifest("s2", "/wt/s1")
		n.Host, n.Worktrees[0].ID = "host2", "elsewhere"
		b.add(n)
		w, held, found, err := b.WorktreeAt(ctx, "host2", "/wt/s1")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, "elsewhere", w.ID)
		require.Equal(t, holder("s2"), held[0].Holder)
	}},
	{"a path may be used again once its worktree was removed", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/again")
		b.remove(step, "/wt/again")
		n := b.manifest("s2", "/wt/again")
		n.Worktrees[0].ID = "second"
		b.add(n)
		w, held, found, err := b.WorktreeAt(ctx, host, "/wt/again")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, "second", w.ID)
		require.Equal(t, "s2", held[0].ID)
	}},
	{"an old row in the way is retired in the same transaction", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/again")
		b.preserve(step, "/wt/again")
		n := b.manifest("s2", "/wt/again")
		n.Worktrees[0].ID, n.Retire = "second", []string{idOf("/wt/again")}
		b.add(n)
		require.Equal(t, store.WorktreeRemoved, b.state("/wt/again"))
	}},
	{"what is held is not retired, and the session not added", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/again")
		n := b.manifest("s2", "/wt/again")
		n.Worktrees[0].ID, n.Retire = "second", []string{idOf("/wt/again")}
		_, err := b.AddSession(ctx, n)
		requireCode(t, teardown.CodeConflict, false, err)
		require.Equal(t, store.WorktreeActive, b.state("/wt/again"))
	}},
	{"a task is opened by its first session, and closed by its barrier", func(t *testing.T, b *bundle) {
		n := b.manifest("s1")
		n.TaskID = "t1"
		b.add(n)
		session, err := b.Session(ctx, "s1")
		require.NoError(t, err)
		require.Equal(t, "t1", session.TaskID)
		b.exec("UPDATE tasks SET terminated_at = ? WHERE id = 't1'", session.CreatedAt)
		late := b.manifest("s2", "/wt/s2")
		late.TaskID = "t1"
		_, err = b.AddSession(ctx, late)
		requireCode(t, teardown.CodeTaskClosed, false, err)
		added, err := b.AddSession(ctx, n)
		require.NoError(t, err, "what is registered already stays a no-op")
		require.False(t, added)
	}},
	{"ids and paths that the tables or names could not hold are refused", func(t *testing.T, b *bundle) {
		for _, c := range []struct {
			code   teardown.Code
			change func(*store.NewSession)
		}{
			{teardown.CodeInvalidID, func(n *store.NewSession) { n.ID = "../s1" }},
			{teardown.CodeInvalidID, func(n *store.NewSession) { n.Host = "" }},
			{teardown.CodeInvalidID, func(n *store.NewSession) { n.TaskID = "a b" }},
			{teardown.CodeInvalidID, func(n *store.NewSession) { n.Worktrees[0].ID = "a/b" }},
			{teardown.CodeInvalidID, func(n *store.NewSession) { n.Resources = []store.NewResource{{ID: ".", Path: "/x"}} }},
			{teardown.CodePathNotUTF8, func(n *store.NewSession) { n.Worktrees[0].Path = "/wt/\xff" }},
			{teardown.CodePathNotUTF8, func(n *store.NewSession) { n.Worktrees[0].Path = "/wt/a\x00b" }},
			{teardown.CodePathNotUTF8, func(n *store.NewSession) { n.Worktrees[0].Repository = "/src/\xff" }},
			{teardown.CodePathNotUTF8, func(n *store.NewSession) { n.Resources = []store.NewResource{{Path: "/\xff"}} }},
			{teardown.CodeInvalidManifest, func(n *store.NewSession) { n.Worktrees[0].Path = "wt/s1" }},
			{teardown.CodeInvalidManifest, func(n *store.NewSession) { n.Worktrees[0].Path = "/wt/../s1" }},
			{teardown.CodeInvalidManifest, func(n *store.NewSession) { n.Worktrees[0].Path = "/wt/s1/" }},
			{teardown.CodeInvalidManifest, func(n *store.NewSession) { n.Worktrees = append(n.Worktrees, n.Worktrees[0]) }},
			{teardown.CodeInvalidManifest, func(n *store.NewSession) {
				n.Worktrees = append(n.Worktrees, store.NewWorktree{Path: "/elsewhere", ParentID: n.Worktrees[0].ID})
			}},
			{teardown.CodeInvalidManifest, func(n *store.NewSession) {
				n.Runtimes = []store.NewRuntime{{Handle: teardown.Runtime{Kind: "tmux", Role: "boss"}}}
			}},
			{teardown.CodeWorktreeRemoved, func(n *store.NewSession) { n.Worktrees[0].ParentID = "nobody" }},
		} {
			n := b.manifest("s1", "/wt/s1")
			c.change(&n)
			_, err := b.AddSession(ctx, n)
			requireCode(t, c.code, false, err)
		}
		_, err := b.Session(ctx, "s1")
		requireCode(t, teardown.CodeSessionNotFound, false, err)
	}},
	{"an id of a worktree, runtime or resource that is in use is a conflict", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		n := b.manifest("s2", "/wt/s2")
		n.Worktrees[0].ID = idOf("/wt/s1")
		_, err := b.AddSession(ctx, n)
		requireCode(t, teardown.CodeConflict, false, err)
		_, err = b.Session(ctx, "s2")
		requireCode(t, teardown.CodeSessionNotFound, false, err)
	}},
	{"a manifest may hold any text that is UTF-8", func(t *testing.T, b *bundle) {
		n := b.manifest("s1", "/wt/späti 🌲 \"quoted\" 'x' %s \\ $1 ?")
		n.Worktrees[0].ID = ""
		b.add(n)
		w, _, found, err := b.WorktreeAt(ctx, host, n.Worktrees[0].Path)
		require.NoError(t, err)
		require.True(t, found)
		require.NotEmpty(t, w.ID)
		require.NoError(t, teardown.ValidateID(w.ID), "a made id names refs and files")
	}},
}

var worktreePromises = []promise{
	{"a row that nobody holds is retired; again is a no-op", func(t *testing.T, b *bundle) {
		step := b.released("s1", "/wt/s1")
		b.preserve(step, "/wt/s1")
		require.NoError(t, b.RetireWorktree(ctx, idOf("/wt/s1")))
		require.NoError(t, b.RetireWorktree(ctx, idOf("/wt/s1")))
		require.Equal(t, store.WorktreeRemoved, b.state("/wt/s1"))
		_, _, found, err := b.WorktreeAt(ctx, host, "/wt/s1")
		require.NoError(t, err)
		require.False(t, found)
		next := b.retry(step)
		require.Empty(t, b.release(next))
		require.Equal(t, teardown.DispositionAlreadyGone, b.disposition(next, "/wt/s1"))
	}},
	{"a row that is held, or with something in quarantine, is not retired", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		requireCode(t, teardown.CodeConflict, false, b.RetireWorktree(ctx, idOf("/wt/s1")))
		step := b.released("s2", "/wt/s2")
		b.mustClaim(step, "/wt/s2")
		require.NoError(t, b.MovingAside(ctx, step, idOf("/wt/s2"), "/wt/.s2.unwind-x"))
		requireCode(t, teardown.CodeConflict, false, b.RetireWorktree(ctx, idOf("/wt/s2")))
	}},
	{"an unknown worktree is worktree_removed", func(t *testing.T, b *bundle) {
		_, err := b.Worktree(ctx, "nobody")
		requireCode(t, teardown.CodeWorktreeRemoved, false, err)
	}},
}
