package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/internal/worktree"
	"unwind/teardown"
)

func TestSaveByHandAndRecover(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	wt := b.worktree(app, "wt")
	b.write("wt/note.txt", "keep me")
	ref := "refs/unwind/saved/by-hand/wt"

	r := b.run("worktree", "inspect", "--save-changes", wt)
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "would be saved first: untracked: note.txt")
	require.DirExists(t, wt)
	line := object[worktreeLine](t, b.must("worktree", "remove", "--save-changes", "--json", wt))
	require.Equal(t, teardown.DispositionRemoved, line.Disposition)
	require.Equal(t, ref, line.SavedRef)
	require.NoDirExists(t, wt)

	require.Equal(t, ref, strings.Split(b.must("recover", "--list", "--repository", app), "\t")[0])
	kept := object[keptLine](t, b.must("recover", "--list", "--repository", app, "--json"))
	require.Equal(t, wt, kept.Path)
	require.Equal(t, "wt", kept.Branch)

	require.Contains(t, b.must("recover", ref, "--repository", "app"), wt+": recovered, on branch wt")
	require.FileExists(t, filepath.Join(wt, "note.txt"))
	again := b.run("recover", ref, "--repository", app, "--json")
	require.Equal(t, exitRefused, again.code)
	require.Equal(t, teardown.CodePathOccupied, object[printedError](t, again.stdout).Error.Code)
	second := object[recoveredLine](t, b.must("recover", ref, "--repository", app, "--to", "elsewhere", "--json"))
	require.Equal(t, filepath.Join(b.root, "elsewhere"), second.Path)
	require.Equal(t, "unwind/recovered/wt", second.Branch)
	require.Contains(t, second.Notes[0], "is checked out at "+wt)
	require.Contains(t, b.must("worktree", "remove", "--save-changes", wt), "unwind recover "+ref+" --repository "+app)
	require.NoFileExists(t, filepath.Join(b.state, "unwind.db"), "no database is needed")
}

// savedSession is a session of which two worktrees were saved.
func savedSession(t *testing.T) (b *bench, outer, inner string) {
	b = setup(t)
	app := b.repository("app")
	outer, inner = b.worktree(app, "wt"), b.worktree(app, "wt/inner")
	b.add(teardown.Manifest{ID: "s1", Worktrees: []teardown.WorktreeSpec{
		{Repository: app, Path: outer}, {Repository: app, Path: inner, Parent: outer}}})
	s := b.store()
	_, _, err := s.Terminate(t.Context(), "s1", "test")
	require.NoError(t, err)
	begun, err := s.Begin(t.Context(), teardown.BeginInput{SessionID: "s1", WorkflowID: "w"})
	require.NoError(t, err)
	_, err = s.ReleaseLeases(t.Context(), begun.Step)
	require.NoError(t, err)
	b.write("app/.git/info/exclude", "/inner/\n")
	for _, path := range []string{inner, outer} {
		b.write(filepath.Join(path, "note.txt"), "of "+path)
		row, _, _, err := s.WorktreeAt(t.Context(), "h1", path)
		require.NoError(t, err)
		line := object[worktreeLine](t, b.must("worktree", "remove", "--save-changes", "--json", path))
		_, err = s.Removed(t.Context(), begun.Step, row.ID, teardown.WorktreeResult{Disposition: line.Disposition, SavedRef: line.SavedRef})
		require.NoError(t, err)
	}
	return b, outer, inner
}

func TestRecoverSession(t *testing.T) {
	t.Parallel()
	b, outer, inner := savedSession(t)
	require.Contains(t, b.must("status", "s1"), "`unwind recover s1` brings it back")
	require.Equal(t, exitUsage, b.run("recover", "s1", "--to", "x").code)
	r := b.run("recover", "s1", "--worktree", filepath.Join(b.root, "none"))
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.stderr, "unwind recover --list s1")

	one := object[recoveredLine](t, b.must("recover", "s1", "--worktree", inner, "--to", "other", "--branch", "again", "--json"))
	require.Equal(t, "again", one.Branch)
	content, err := os.ReadFile(filepath.Join(b.root, "other/note.txt"))
	require.NoError(t, err)
	require.Equal(t, "of "+inner, string(content))

	both := objects[recoveredLine](t, b.must("recover", "s1", "--json"))
	require.Equal(t, []string{outer, inner}, []string{both[0].Path, both[1].Path})
	require.FileExists(t, filepath.Join(inner, "note.txt"))

	// One that cannot be recovered stops no other.
	require.NoError(t, os.RemoveAll(filepath.Join(b.root, "wt")))
	b.git(filepath.Join(b.root, "app"), "worktree", "prune")
	b.git(filepath.Join(b.root, "app"), "update-ref", "-d", both[0].Ref)
	r = b.run("recover", "s1")
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.stderr, "there is no saved work at "+both[0].Ref)
	require.Contains(t, r.stdout, inner+": recovered")
}

func TestRecoverCommandLine(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	b.add(teardown.Manifest{ID: "s1"})
	for _, args := range [][]string{{}, {"s1", "s2"}, {"a/b"}, {"--list", "--to", "x"}, {"refs/unwind/saved/x", "--worktree", "x"}, {"s1", "--repository", app}} {
		require.Equal(t, exitUsage, b.run(append([]string{"recover"}, args...)...).code, args)
	}
	for _, args := range [][]string{{"s1"}, {"s2"}, {"refs/unwind/saved/x", "--repository", app}, {"refs/heads/main", "--repository", app}, {"refs/unwind/saved/x"}} {
		require.Equal(t, exitRefused, b.run(append([]string{"recover"}, args...)...).code, args)
	}
	require.Empty(t, b.must("recover", "--list"))
	require.Empty(t, b.must("recover", "--list", "s1", "--repository", app))
}

// The flag is a fact before anybody is told.
func TestRetrySaveChangesIsRecorded(t *testing.T) {
	t.Parallel()
	b, s := parked(t)
	require.Contains(t, b.must("status", "s1"), "With --save-changes it saves uncommitted work")
	b.must("retry", "s1", "--save-changes")
	detail, err := s.SessionDetail(t.Context(), "s1")
	require.NoError(t, err)
	require.True(t, detail.Finalizations[0].SaveRequested)
	b.write("wt/a.txt", "x")
	require.Contains(t, b.must("plan", "s1"), "would be saved first: untracked: a.txt")
	_, _, err = s.Retry(t.Context(), "s1", store.RetryOptions{})
	require.NoError(t, err)
	require.Contains(t, b.must("plan", "s1"), "would be saved first", "the wish holds for later rounds")
}

// rescuedCommit is a repository in which a removed worktree has left a commit.
func rescuedCommit(t *testing.T) (b *bench, app string) {
	b = setup(t)
	app = b.repository("app")
	wt := filepath.Join(b.root, "wt")
	b.git(app, "worktree", "add", "-q", "--detach", wt)
	b.git(wt, "commit", "-q", "--allow-empty", "-m", "only here")
	b.must("worktree", "remove", wt)
	return b, app
}

func TestRescue(t *testing.T) {
	t.Parallel()
	b, app := rescuedCommit(t)
	require.Empty(t, b.must("rescue", "list"), "no session has had a worktree in it")
	kept := object[keptLine](t, b.must("rescue", "list", "--repository", app, "--json"))
	require.Equal(t, "only here", kept.Subject)
	require.Equal(t, app, kept.Repository)
	require.NotEmpty(t, kept.WorktreeID)
	require.NotNil(t, kept.At)
	fields := strings.Split(strings.TrimSpace(b.must("rescue", "list", "--repository", app)), "\t")
	require.Equal(t, []string{kept.Ref, kept.Commit[:12]}, fields[:2])

	// Registered, the repository is found by itself; one that is gone is passed over.
	gone := b.repository("gone")
	b.add(teardown.Manifest{ID: "s1", Worktrees: []teardown.WorktreeSpec{
		{Repository: app, Path: b.worktree(app, "wt1")}, {Repository: gone, Path: b.worktree(gone, "wt2")}}})
	require.NoError(t, os.RemoveAll(gone))
	r := b.run("rescue", "list")
	require.Equal(t, exitDone, r.code)
	require.Contains(t, r.stdout, kept.Ref)
	require.Contains(t, r.stderr, "gone/.git is not in a git repository")
	require.Equal(t, exitRefused, b.run("rescue", "list", "--repository", gone).code)

	for _, args := range [][]string{{"drop"}, {"drop", "--all", kept.Ref}, {"drop", kept.Ref}, {"drop", "refs/heads/main", "--yes"}, {"list", "x"}} {
		require.Equal(t, exitUsage, b.run(append([]string{"rescue"}, args...)...).code, args)
	}
	require.Contains(t, b.must("rescue", "drop", kept.Ref, "--yes"), "Dropped "+kept.Ref+", which was "+kept.Commit)
	require.Empty(t, b.must("rescue", "list", "--repository", app))
	require.Contains(t, b.must("rescue", "drop", "--all", "--yes"), "nothing to drop")
}

// TestSavedWorkIsListedAndDropped: no other command drops it.
func TestSavedWorkIsListedAndDropped(t *testing.T) {
	t.Parallel()
	b, app := rescuedCommit(t)
	wt := b.worktree(app, "wt1")
	b.write("wt1/new.txt", "x")
	b.must("worktree", "remove", "--save-changes", wt)
	list := func(kind string) []keptLine {
		out := b.must("rescue", "list", "--json", "--repository", app, "--kind", kind)
		if out == "" {
			return nil
		}
		return objects[keptLine](t, out)
	}
	saved := list(worktree.KindSaved)
	require.Len(t, saved, 1)
	require.Equal(t, worktree.KindSaved, saved[0].Kind)
	require.Len(t, list(worktree.KindRescued), 1)
	require.Equal(t, exitUsage, b.run("rescue", "list", "--kind", "other").code)
	require.Contains(t, b.must("rescue", "drop", "--all", "--yes", "--repository", app), "/rescue/")
	require.Empty(t, list(worktree.KindRescued))
	require.Len(t, list(worktree.KindSaved), 1, "--all means the rescued commits")
	require.Contains(t, b.must("rescue", "drop", saved[0].Ref, "--yes", "--repository", app), "Dropped "+saved[0].Ref)
	require.Empty(t, list(worktree.KindSaved))
}

// TestPlanForeseesSavingWhileTheRuntimeLives: the runtime works in the worktree
// now, but not when it is saved.
func TestPlanForeseesSavingWhileTheRuntimeLives(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	wt := b.worktree(app, "wt")
	pid, _ := b.process(wt)
	b.add(teardown.Manifest{ID: "s1", Runtimes: []teardown.Runtime{{Kind: teardown.KindProcess, Role: teardown.RoleAgent, PID: pid}}, Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: wt}}})
	b.write("wt/a.txt", "x")
	s := b.store()
	_, _, err := s.Terminate(t.Context(), "s1", "test")
	require.NoError(t, err)
	_, err = s.Begin(t.Context(), teardown.BeginInput{SessionID: "s1", WorkflowID: teardown.FinalizeSessionID("s1")})
	require.NoError(t, err)
	_, _, err = s.Retry(t.Context(), "s1", store.RetryOptions{SaveChanges: true})
	require.NoError(t, err)
	out := b.run("plan", "s1")
	require.Contains(t, out.stdout, "would be saved first: untracked: a.txt")
	require.Contains(t, out.stdout, "would be removed")
	require.Equal(t, exitDone, out.code)
}

func TestRescueDropAsksOnATerminal(t *testing.T) {
	t.Parallel()
	b, app := rescuedCommit(t)
	for _, answer := range []string{"", "n\n", "whatever\n", "y\n"} {
		p, stdout, stderr := b.program(answer)
		p.inTerminal = true
		require.EqualValues(t, exitDone, p.execute(t.Context(), []string{"rescue", "drop", "--all", "--repository", app}))
		require.Contains(t, stderr.String(), "Drop 1 ref?")
		require.Equal(t, answer == "y\n", strings.Contains(stdout.String(), "Dropped"), answer)
	}
}
