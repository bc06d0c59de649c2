package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/runtime"
	"unwind/internal/store"
	"unwind/teardown"
)

// showed leaves a terminated session whose runtimes' snapshots are these files.
func (b *bench) showed(id, host string, paths ...string) {
	b.Helper()
	facts := b.store()
	n := store.NewSession{ID: id, Host: host, ManifestHash: id}
	for i := range paths {
		n.Runtimes = append(n.Runtimes, store.NewRuntime{ID: id + "-r" + itoa(i), Handle: teardown.Runtime{Kind: teardown.KindTmux, Session: "t" + itoa(i)}})
	}
	_, err := facts.AddSession(b.Context(), n)
	require.NoError(b, err)
	_, _, err = facts.Terminate(b.Context(), id, "test")
	require.NoError(b, err)
	begun, err := facts.Begin(b.Context(), teardown.BeginInput{SessionID: id})
	require.NoError(b, err)
	for i, path := range paths {
		_, err := facts.RuntimeReleased(b.Context(), begun.Step, id+"-r"+itoa(i), "killed", path, teardown.RuntimeResult{Outcome: teardown.RuntimeReleased})
		require.NoError(b, err)
	}
}

func TestSnapshotPrintsWhatIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must("migrate")
	one, two := filepath.Join(b.root, "tmux-1.txt"), filepath.Join(b.root, "tmux-2.txt")
	require.NoError(t, os.WriteFile(one, []byte("hello\xff\n"), 0o600))
	require.NoError(t, os.WriteFile(two, []byte("world\n"), 0o600))
	b.showed("s1", "h1", one)
	r := b.run("snapshot", "s1")
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Equal(t, "hello\xff\n", r.stdout)
	require.Empty(t, r.stderr)
	printed := object[keptSnapshot](t, b.must("snapshot", "s1", "--json"))
	require.Equal(t, "hello\uFFFD\n", printed.Text)
	require.EqualValues(t, 7, printed.Bytes)
	require.Equal(t, "t0", printed.Name)

	b.showed("s2", "h1", one, two)
	r = b.run("snapshot", "s2")
	require.Equal(t, exitDone, r.code)
	require.Equal(t, "hello\xff\nworld\n", r.stdout)
	require.Contains(t, r.stderr, "tmux agent t1, generation 1, saved ")

	require.NoError(t, os.Remove(one))
	r = b.run("snapshot", "s2")
	require.Equal(t, exitRefused, r.code)
	require.Equal(t, "world\n", r.stdout, "one that is gone hides no other")
	require.Contains(t, r.stderr, "is not there any more")
}

func TestSnapshotThatCannotBeHad(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must("migrate")
	b.add(teardown.Manifest{ID: "live"})
	b.showed("none", "h1")
	b.showed("elsewhere", "h2", "/snap/tmux-1.txt")
	link, large := filepath.Join(b.root, "link"), filepath.Join(b.root, "large")
	require.NoError(t, os.Symlink("/etc/passwd", link))
	require.NoError(t, os.WriteFile(large, nil, 0o600))
	require.NoError(t, os.Truncate(large, runtime.MaxSnapshot+1))
	b.showed("link", "h1", link)
	b.showed("large", "h1", large)
	b.showed("dir", "h1", b.root)
	for id, want := range map[string]struct {
		code teardown.Code
		says string
	}{
		"unknown":   {teardown.CodeSessionNotFound, ""},
		"live":      {teardown.CodeSnapshotMissing, "is live and nothing is kept yet"},
		"none":      {teardown.CodeSnapshotMissing, "nothing is kept of what session none showed"},
		"elsewhere": {teardown.CodeForeignHost, "kept on its host h2 and this is h1"},
		"link":      {teardown.CodeSnapshotMissing, "is not the file that was saved there"},
		"large":     {teardown.CodeSnapshotMissing, "is not the file that was saved there"},
		"dir":       {teardown.CodeSnapshotMissing, "is not the file that was saved there"},
	} {
		r := b.run("snapshot", id, "--json")
		require.Equal(t, exitRefused, r.code, id)
		require.Equal(t, want.code, object[printedError](t, r.stdout).Error.Code, id)
		require.Contains(t, r.stderr, want.says, id)
		require.NotContains(t, r.stdout, "root:", id)
	}
}
