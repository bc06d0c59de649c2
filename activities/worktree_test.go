package activities

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"unwind/internal/lock"
	"unwind/internal/store"
	"unwind/internal/worktree"
	"unwind/teardown"
	"unwind/test/pgtest"
)

// ground is a host with a repository, and the short words of the tests.
type ground struct {
	*Host
	t    *testing.T
	dir  string
	repo string
}

func onBothDatabases(t *testing.T, story func(*testing.T, *ground)) {
	t.Helper()
	t.Parallel()
	for _, dialect := range []store.Dialect{store.SQLite, store.Postgres} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			dir, err := filepath.EvalSymlinks(t.TempDir())
			require.NoError(t, err)
			url := "sqlite://" + filepath.Join(dir, "unwind.db")
			if dialect == store.Postgres {
				url = pgtest.Copy(t, "migrated", func(ctx context.Context, url string) error {
					_, err := store.Migrate(ctx, url)
					return err
				})
			}
			facts, err := store.Open(t.Context(), url)
			require.NoError(t, err)
			t.Cleanup(func() { _ = facts.Close() })
			locks := lock.Dir(filepath.Join(dir, "locks"))
			g := &ground{t: t, dir: dir, repo: filepath.Join(dir, "repo"), Host: &Host{Store: facts, Locks: locks, LockWait: time.Minute,
				Worktrees: &worktree.Engine{Roots: []string{dir}, Home: filepath.Join(dir, "home"), Locks: locks, LockWait: time.Minute}}}
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "wt"), 0o700))
			g.git(dir, "init", "-q", "-b", "main", "repo")
			g.git(g.repo, "-c", "user.name=T", "-c", "user.email=t@example.invalid", "commit", "-q", "--allow-empty", "-m", "one")
			story(t, g)
		})
	}
}

func (g *ground) git(dir string, args ...string) string {
	g.t.Helper()
	out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput()
	require.NoError(g.t, err, string(out))
	return strings.TrimSpace(string(out))
}

func (g *ground) at(name string) string { return filepath.Join(g.dir, "wt", name) }

func (g *ground) attempt() *attempt {
	return &attempt{info: activity.Info{Deadline: time.Now().Add(time.Minute)}}
}

// archived has a task hold a worktree on a branch of its name, and archives it.
func (g *ground) archived(task, name string) (removed []teardown.WorktreeResult) {
	g.t.Helper()
	g.git(g.repo, "worktree", "add", "-q", "-b", name, g.at(name))
	made, err := g.Worktrees.Register(g.t.Context(), worktree.Target{Repository: g.repo, Path: g.at(name)})
	require.NoError(g.t, err)
	_, _, err = g.Store.AddTask(g.t.Context(), store.NewTask{ID: task, Host: "h1", Worktrees: []store.NewWorktree{
		{ID: store.NewID(), Repository: made.CommonDir, Path: made.Path, Branch: name, Nonce: made.Nonce}}})
	require.NoError(g.t, err)
	return g.archive(task)
}

func (g *ground) archive(task string) []teardown.WorktreeResult {
	g.t.Helper()
	_, _, err := g.Store.CloseTask(g.t.Context(), task, store.TaskArchived)
	require.NoError(g.t, err)
	return g.finalize(teardown.BeginInput{TaskID: task})
}

func (g *ground) terminate(session string) []teardown.WorktreeResult {
	g.t.Helper()
	_, _, err := g.Store.Terminate(g.t.Context(), session, "test")
	require.NoError(g.t, err)
	return g.finalize(teardown.BeginInput{SessionID: session})
}

// finalize removes what it can, and finishes if that is all.
func (g *ground) finalize(in teardown.BeginInput) (results []teardown.WorktreeResult) {
	g.t.Helper()
	begun, err := g.Store.Begin(g.t.Context(), in)
	require.NoError(g.t, err)
	plan, err := g.Store.ReleaseLeases(g.t.Context(), begun.Step)
	require.NoError(g.t, err)
	for _, removal := range plan.Removals {
		result, err := g.removeWorktree(g.t.Context(), g.attempt(), teardown.RemoveWorktreeInput{Step: begun.Step, WorktreeID: removal.WorktreeID})
		require.NoError(g.t, err)
		results = append(results, result.Worktree)
	}
	_, err = g.Store.Finish(g.t.Context(), begun.Step)
	require.NoError(g.t, err)
	return results
}

// reopened answers the one worktree that the task is to have again.
func (g *ground) reopened(task string) (id string) {
	g.t.Helper()
	plan, err := g.Store.ReopenTask(g.t.Context(), task)
	require.NoError(g.t, err)
	require.Len(g.t, plan.Recreations, 1)
	return plan.Recreations[0].WorktreeID
}

func (g *ground) recreate(id string) (teardown.RecreateWorktreeResult, error) {
	return g.recreateWorktree(g.t.Context(), g.attempt(), teardown.RecreateWorktreeInput{WorktreeID: id})
}

func (g *ground) row(id string) store.Worktree {
	g.t.Helper()
	row, err := g.Store.Worktree(g.t.Context(), id)
	require.NoError(g.t, err)
	return row
}

// stray has a session hold a worktree of which nothing is recorded but that it is
// to be made, and then nobody.
func (g *ground) stray(name, nonce string) (id string) {
	g.t.Helper()
	id = store.NewID()
	_, err := g.Store.AddSession(g.t.Context(), store.NewSession{ID: name, Host: "h1", ManifestHash: name, Starting: true,
		Worktrees: []store.NewWorktree{{ID: id, Repository: filepath.Join(g.repo, ".git"), Path: g.at(name), Branch: name, Nonce: nonce}}})
	require.NoError(g.t, err)
	_, _, err = g.Store.Terminate(g.t.Context(), name, "test")
	require.NoError(g.t, err)
	begun, err := g.Store.Begin(g.t.Context(), teardown.BeginInput{SessionID: name})
	require.NoError(g.t, err)
	_, err = g.Store.ReleaseLeases(g.t.Context(), begun.Step)
	require.NoError(g.t, err)
	_, err = g.Store.Restore(g.t.Context(), store.Restoration{SessionID: name, Generation: 1})
	require.NoError(g.t, err)
	return id
}

// What was to be made again and never was is not what a person has put there.
func TestWhatAPersonHasMadeInTheMeantimeStays(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, g *ground) {
		g.archived("t1", "a")
		require.NoDirExists(t, g.at("a"))
		id := g.reopened("t1")
		g.git(g.repo, "worktree", "add", "-q", "-b", "mine", g.at("a"))
		_, err := g.recreate(id)
		require.Equal(t, teardown.CodePathOccupied, teardown.CodeOf(err), "%v", err)
		results := g.archive("t1")
		require.Len(t, results, 1)
		require.Equal(t, teardown.DispositionAlreadyGone, results[0].Disposition)
		require.Equal(t, "mine", g.git(g.at("a"), "branch", "--show-current"))
		require.Equal(t, store.WorktreeRemoved, g.row(id).State)
	})
}

// What an unarchiving has made and not recorded is found by its mark.
func TestWhatWasMadeAgainAndNotRecordedIsRemoved(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, g *ground) {
		g.archived("t1", "a")
		row := g.row(g.reopened("t1"))
		_, err := g.Worktrees.Recreate(t.Context(), target(row), row.Branch, worktree.Hooks{})
		require.NoError(t, err)
		results := g.archive("t1")
		require.Len(t, results, 1)
		require.Equal(t, teardown.DispositionRemoved, results[0].Disposition)
		require.NoDirExists(t, g.at("a"))
	})
}

// One that is there already, on its branch, is taken as it is, whatever its mark.
func TestWhatAPersonHasMadeOfTheBranchIsTaken(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, g *ground) {
		g.archived("t1", "a")
		id := g.reopened("t1")
		g.git(g.repo, "worktree", "add", "-q", g.at("a"), "a")
		theirs, err := g.Worktrees.Register(t.Context(), worktree.Target{Repository: g.repo, Path: g.at("a")})
		require.NoError(t, err)
		made, err := g.recreate(id)
		require.NoError(t, err)
		require.True(t, made.Made)
		require.Equal(t, theirs.Nonce, g.row(id).Nonce)
		results := g.archive("t1")
		require.Equal(t, teardown.DispositionRemoved, results[0].Disposition)
	})
}

// A row without a mark says nothing of what is at its path.
func TestNothingIsRemovedForARowWithoutAMark(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, g *ground) {
		id := g.stray("converged", "")
		g.git(g.repo, "worktree", "add", "-q", "-b", "mine", g.at("converged"))
		result, err := g.convergeWorktree(t.Context(), g.attempt(), id)
		require.NoError(t, err)
		require.Equal(t, teardown.DispositionAlreadyGone, result.Disposition)
		require.DirExists(t, g.at("converged"))
		require.Equal(t, store.WorktreeRemoved, g.row(id).State)

		_, err = g.Store.AddSession(t.Context(), store.NewSession{ID: "ended", Host: "h1", ManifestHash: "x", Worktrees: []store.NewWorktree{
			{ID: "w1", Repository: filepath.Join(g.repo, ".git"), Path: g.at("ended"), Branch: "ended"}}})
		require.NoError(t, err)
		g.git(g.repo, "worktree", "add", "-q", "-b", "another", g.at("ended"))
		results := g.terminate("ended")
		require.Len(t, results, 1)
		require.Equal(t, teardown.DispositionAlreadyGone, results[0].Disposition)
		require.DirExists(t, g.at("ended"))
		require.Equal(t, store.WorktreeRemoved, g.row("w1").State)
	})
}

// What git had made for a start that was cut off before it was marked is the
// start's, also if nobody finalizes that.
func TestConvergeFindsWhatWasMadeAndNotMarked(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, g *ground) {
		nonce := worktree.NewNonce()
		id := g.stray("a", nonce)
		g.git(g.repo, "worktree", "add", "-q", "--lock", "--reason", "unwind is making this worktree "+nonce, "-b", "a", g.at("a"))
		result, err := g.convergeWorktree(t.Context(), g.attempt(), id)
		require.NoError(t, err)
		require.Equal(t, teardown.DispositionRemoved, result.Disposition)
		require.NoDirExists(t, g.at("a"))
	})
}
