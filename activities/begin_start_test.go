package activities

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

func (g *ground) toStart(name string) teardown.StartSessionInput {
	return teardown.StartSessionInput{ID: "s1", Host: "h1",
		Worktrees: []teardown.NewWorktree{{Repository: g.repo, Path: g.at(name), Branch: name}}}
}

func (g *ground) begun(in teardown.StartSessionInput) teardown.BeginStartResult {
	g.t.Helper()
	begun, err := g.beginStart(g.t.Context(), g.attempt(), in)
	require.NoError(g.t, err)
	return begun
}

func (g *ground) create(begun teardown.BeginStartResult, planned teardown.PlannedWorktree) teardown.StartedWorktree {
	g.t.Helper()
	made, err := g.createWorktree(g.t.Context(), g.attempt(), teardown.CreateWorktreeInput{Start: begun.Start, Worktree: planned})
	require.NoError(g.t, err)
	return made
}

// A session is started with what it asks for, and with nothing that another of
// its id had.
func TestStartUnderTheIDOfADeletedSession(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"two", "one"} {
		t.Run(path, func(t *testing.T) {
			onBothDatabases(t, func(t *testing.T, g *ground) {
				first := g.begun(g.toStart("one"))
				require.Len(t, first.Worktrees, 1)
				g.create(first, first.Worktrees[0])
				g.terminate("s1")
				require.NoDirExists(t, g.at("one"))
				_, deleted, err := g.Store.DeleteSession(t.Context(), "s1")
				require.NoError(t, err)
				require.True(t, deleted)

				second := g.begun(g.toStart(path))
				require.Len(t, second.Worktrees, 1)
				require.Len(t, second.Result.Worktrees, 1)
				_, err = g.createWorktree(t.Context(), g.attempt(), teardown.CreateWorktreeInput{Start: second.Start, Worktree: first.Worktrees[0]})
				require.Error(t, err, "it is not this start's to make")
				require.NoDirExists(t, g.at("one"))
				require.Equal(t, g.at(path), g.create(second, second.Worktrees[0]).Path)
				require.True(t, g.begun(g.toStart(path)).Done)
				results := g.terminate("s1")
				require.Len(t, results, 1)
				require.Equal(t, teardown.DispositionRemoved, results[0].Disposition)
			})
		})
	}
}

// What was put back while the start waited for the path's lock is there.
func TestStartLooksAgainUnderThePathLock(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, g *ground) {
		first := g.begun(g.toStart("a"))
		g.create(first, first.Worktrees[0])
		require.NoError(t, os.WriteFile(filepath.Join(g.at("a"), "draft.md"), []byte("mine"), 0o600))
		require.Equal(t, teardown.DispositionPreserved, g.terminate("s1")[0].Disposition)

		aside := filepath.Join(g.dir, "aside")
		require.NoError(t, os.Rename(g.at("a"), aside))
		in := g.toStart("a")
		in.ID, in.Worktrees[0].Branch = "s2", "b"
		trees, err := g.planWorktrees(t.Context(), in)
		require.NoError(t, err)
		require.NoError(t, os.Rename(aside, g.at("a")))
		n := store.NewSession{ID: "s2", Host: "h1"}
		err = g.addTree(t.Context(), &n, trees[0])
		require.Equal(t, teardown.CodePathOccupied, teardown.CodeOf(err), "%v", err)
		require.Empty(t, n.Retire)
		require.Equal(t, store.WorktreePreserved, g.row(first.Worktrees[0].ID).State)

		// What is gone for good is in nobody's way.
		require.NoError(t, os.Rename(g.at("a"), aside))
		require.Len(t, g.begun(in).Worktrees, 1)
		require.Equal(t, store.WorktreeRemoved, g.row(first.Worktrees[0].ID).State)
	})
}

// What was found occupied once is not made by the next attempt, for which nothing
// is registered any more.
func TestWorktreeThatWasNotMadeIsNotMadeLater(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, g *ground) {
		begun := g.begun(g.toStart("a"))
		require.NoError(t, os.Mkdir(g.at("a"), 0o700))
		for _, attempt := range []string{"first", "after the path was cleared"} {
			_, err := g.createWorktree(t.Context(), g.attempt(), teardown.CreateWorktreeInput{Start: begun.Start, Worktree: begun.Worktrees[0]})
			require.Equal(t, teardown.CodePathOccupied, teardown.CodeOf(err), "%s: %v", attempt, err)
			_ = os.Remove(g.at("a"))
			require.NoDirExists(t, g.at("a"), attempt)
		}
		require.False(t, g.begun(g.toStart("a")).Done, "it has no worktree")
	})
}
