package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

// Whatever kind it is called, nothing of these is registered.
func TestSessionAddRefusesResourcesThatAreNotTheSessions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	wt := b.worktree(app, "wt")
	b.add(teardown.Manifest{ID: "live", Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: wt}}})
	require.NoError(t, os.Mkdir(filepath.Join(wt, "src"), 0o700))
	b.environment = b.environment.with("UNWIND_ROOTS=" + filepath.Dir(b.root))
	long := filepath.Join(b.root, strings.Repeat("n", 300))
	for _, bad := range []struct {
		name, path, sentence string
		code                 teardown.Code
		exit                 exitCode
	}{
		{"inside another session's worktree", filepath.Join(wt, "src"), "lies inside the git working tree " + wt, teardown.CodeNestedRepository, exitRefused},
		{"inside a main checkout", filepath.Join(app, "src"), "lies inside the git working tree " + app, teardown.CodeNestedRepository, exitRefused},
		{"around another session's worktree", b.root, "held by session live", teardown.CodeConflict, exitRefused},
		{"the state directory", b.state, "never removed", teardown.CodeUnsafeTarget, exitRefused},
		{"the locks", filepath.Join(b.state, "locks"), "never removed", teardown.CodeUnsafeTarget, exitRefused},
		{"the database", filepath.Join(b.state, "unwind.db"), "never removed", teardown.CodeUnsafeTarget, exitRefused},
		{"a name too long", long, "resources[0]", teardown.CodeInvalidManifest, exitUsage},
		{"a name too long on the way", filepath.Join(long, "x"), "resources[0]", teardown.CodeInvalidManifest, exitUsage},
	} {
		t.Run(bad.name, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			r := b.feed(b.manifest(teardown.Manifest{ID: "s1", Resources: []teardown.ResourceSpec{{Kind: "dir", Path: bad.path}}}),
				"session", "add", "-f", "-", "--json")
			require.Equal(t, bad.exit, r.code, r.stderr)
			require.Equal(t, bad.code, object[printedError](t, r.stdout).Error.Code, r.stderr)
			require.Contains(t, r.stderr, bad.sentence)
		})
	}
}

func TestSessionAddProtectsADatabaseElsewhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	database := filepath.Join(b.root, "data", "facts.db")
	require.NoError(t, os.Mkdir(filepath.Dir(database), 0o700))
	b.environment = b.environment.with("UNWIND_DATABASE_URL=sqlite://" + database)
	for _, spec := range []teardown.ResourceSpec{
		{Kind: "file", Path: database}, {Kind: "file", Path: database + "-wal"}, {Kind: "file", Path: database + "-shm"},
		{Kind: "dir", Path: filepath.Dir(database)},
	} {
		r := b.feed(b.manifest(teardown.Manifest{ID: "s1", Resources: []teardown.ResourceSpec{spec}}), "session", "add", "-f", "-", "--json")
		require.Equal(t, exitRefused, r.code, r.stderr)
		require.Equal(t, teardown.CodeUnsafeTarget, object[printedError](t, r.stdout).Error.Code)
	}
	require.FileExists(t, database)
}

func TestSessionAddNamesWhatIsTooLong(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	wt := b.worktree(app, "wt")
	name := strings.Repeat("n", 300)
	deep := strings.Repeat("/deep", 1000)
	for _, m := range []teardown.Manifest{
		{Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: filepath.Join(b.root, name)}}},
		{Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: filepath.Join(b.root, name, "wt")}}},
		{Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: b.root + deep}}},
		{Worktrees: []teardown.WorktreeSpec{{Repository: filepath.Join(b.root, name), Path: wt}}},
		{Worktrees: []teardown.WorktreeSpec{{Repository: b.root + deep, Path: wt}}},
		{Resources: []teardown.ResourceSpec{{Kind: "file", Path: filepath.Join(b.root, name)}}},
		{Resources: []teardown.ResourceSpec{{Kind: "file", Path: b.root + deep}}},
	} {
		m.ID = "s1"
		r := b.feed(b.manifest(m), "session", "add", "-f", "-", "--json")
		require.Equal(t, exitUsage, r.code, r.stderr)
		require.Equal(t, teardown.CodeInvalidManifest, object[printedError](t, r.stdout).Error.Code)
		require.Contains(t, r.stderr, "too long")
	}
}

func TestPlanSeesWhatTheFinalizationWouldRefuse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dir, secret := filepath.Join(b.root, "state"), b.write("env", "x")
	require.NoError(t, os.Mkdir(dir, 0o700))
	b.add(teardown.Manifest{ID: "s1", Resources: []teardown.ResourceSpec{{Kind: "dir", Path: dir}, {Kind: "secret", Path: secret}}})
	require.Contains(t, b.must("plan", "s1"), "dir "+dir+": would be cleared")

	require.NoError(t, os.MkdirAll(filepath.Join(dir, "deep", "app", ".git"), 0o700))
	require.NoError(t, os.Remove(secret))
	require.NoError(t, os.Symlink(dir, secret))
	r := b.run("plan", "s1")
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.stdout, "dir "+dir+": would be refused (nested_repository)")
	require.Contains(t, r.stdout, "secret "+secret+": would be refused (unsafe_target)")

	require.NoError(t, os.RemoveAll(b.root))
	r = b.run("plan", "s1", "--roots", filepath.Dir(b.root))
	require.Equal(t, exitDone, r.code, r.stdout+r.stderr)
}

// A session whose one resource was refused: its worktrees are none, so no
// worktree was kept.
func TestARefusedResourceIsCalledThat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dir := filepath.Join(b.root, "state")
	require.NoError(t, os.Mkdir(dir, 0o700))
	b.add(teardown.Manifest{ID: "s1", Resources: []teardown.ResourceSpec{{Kind: "dir", Path: dir}}})
	s := b.store()
	_, _, err := s.Terminate(t.Context(), "s1", "test")
	require.NoError(t, err)
	begun, err := s.Begin(t.Context(), teardown.BeginInput{SessionID: "s1", WorkflowID: teardown.FinalizeSessionID("s1")})
	require.NoError(t, err)
	_, err = s.ReleaseLeases(t.Context(), begun.Step)
	require.NoError(t, err)
	_, err = s.Park(t.Context(), teardown.ParkInput{Step: begun.Step, Reason: teardown.ReasonRefused,
		Failure: teardown.Failure{Code: teardown.CodeNestedRepository, Message: "A resource is not ours to remove"}})
	require.NoError(t, err)

	require.Contains(t, b.must("status", "s1"), "Session s1  Resource refused")
	result, err := s.Result(t.Context(), "s1", 1)
	require.NoError(t, err)
	require.Equal(t, teardown.ResourcesResult{Kept: 1, Refused: 1}, result.Resources)
	require.Equal(t, exitRefused, exitOfResult(result))

	words, _ := stateWords(store.StateParked, teardown.ReasonRefused, 1)
	require.Equal(t, "Worktree kept", words)
}
