package activities

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"golang.org/x/sys/unix"

	"unwind/internal/lock"
	"unwind/internal/resource"
	"unwind/internal/runtime"
	"unwind/internal/runtime/kinds"
	"unwind/internal/store"
	"unwind/teardown"
)

// The secrets of a session are unlinked as soon as its runtime is gone, and what
// waits at its FIFOs is let go, also when the runtime could not be pictured and
// another resource cannot be cleared.
func TestResourcesAreClearedWhateverElseFails(t *testing.T) {
	t.Parallel()
	// Short, for the socket.
	dir, err := os.MkdirTemp("", "unwind-clear-")
	require.NoError(t, err)
	dir, err = filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx := context.Background()
	facts, err := store.Open(ctx, "sqlite://"+filepath.Join(dir, "unwind.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = facts.Close() })
	root := filepath.Join(dir, "root")
	snapshots := filepath.Join(dir, "snapshots")
	require.NoError(t, os.WriteFile(snapshots, nil, 0o600), "a file where the snapshots' directory is to be")
	h := &Host{Store: facts, Locks: lock.Dir(filepath.Join(dir, "locks")), Runtimes: kinds.All(), SnapshotDir: snapshots,
		Resources: resource.Cleaner{Roots: []string{root}}, LockWait: time.Minute}

	in := func(name string) string { return filepath.Join(root, name) }
	require.NoError(t, os.MkdirAll(filepath.Join(in("kept"), ".git"), 0o700))
	for _, name := range []string{"secret", "another"} {
		require.NoError(t, os.WriteFile(in(name), []byte("secret"), 0o600))
	}
	require.NoError(t, os.Symlink(in("kept"), in("link")), "a secret that is refused")
	require.NoError(t, unix.Mkfifo(in("events"), 0o600))
	require.NoError(t, unix.Mkfifo(in("answers"), 0o600))

	planned, err := h.Runtimes[teardown.KindTmux].(runtime.Starter).Plan(
		teardown.Runtime{Kind: teardown.KindTmux, Role: teardown.RoleAgent, Socket: filepath.Join(dir, "s"), Session: "agent"})
	require.NoError(t, err)
	_, err = facts.AddSession(ctx, store.NewSession{ID: "s1", Host: "h1", ManifestHash: "x", Starting: true,
		Runtimes: []store.NewRuntime{{ID: "r1", Handle: planned}},
		Resources: []store.NewResource{
			{ID: "1", Kind: teardown.ResourceDir, Path: in("kept")},
			{ID: "2", Kind: teardown.ResourceSecret, Path: in("link")},
			{ID: "3", Kind: teardown.ResourceSecret, Path: in("secret")},
			{ID: "4", Kind: teardown.ResourceSecret, Path: in("another")},
			{ID: "5", Kind: teardown.ResourceFIFO, Path: in("events")},
			{ID: "6", Kind: teardown.ResourceFIFO, Path: in("answers")},
		}})
	require.NoError(t, err)
	a := &attempt{info: activity.Info{Deadline: time.Now().Add(time.Minute)}}
	// The runtime reads one FIFO and writes the other; both wait for an end that
	// never comes.
	_, err = h.startRuntime(ctx, a, teardown.StartRuntimeInput{Start: teardown.StartStep{SessionID: "s1", Generation: 1}, RuntimeID: "r1",
		Launch: teardown.NewRuntime{Command: []string{"sh", "-c", `cat "$0" & echo >"$1"`, in("events"), in("answers")}}})
	require.NoError(t, err)

	_, _, err = facts.Terminate(ctx, "s1", "test")
	require.NoError(t, err)
	begun, err := facts.Begin(ctx, teardown.BeginInput{SessionID: "s1"})
	require.NoError(t, err)
	destroyed, err := h.destroyRuntime(ctx, a, teardown.DestroyRuntimeInput{Step: begun.Step, RuntimeID: "r1"})
	require.NoError(t, err)
	require.Equal(t, teardown.RuntimeReleased, destroyed.Runtime.Outcome, "the reader and the writer are gone with it")
	require.Empty(t, destroyed.Runtime.Snapshot)
	require.NoFileExists(t, in("secret"))
	require.NoFileExists(t, in("another"))
	require.FileExists(t, in("events"), "only secrets go at once")

	_, err = facts.ReleaseLeases(ctx, begun.Step)
	require.NoError(t, err)
	cleared, err := h.clearResources(ctx, a, teardown.ClearResourcesInput{Step: begun.Step})
	require.NoError(t, err)
	require.Len(t, cleared.Refused, 2)
	require.NoFileExists(t, in("events"))
	require.NoFileExists(t, in("answers"))
	require.DirExists(t, filepath.Join(in("kept"), ".git"))
	for _, name := range []string{"events", "answers"} {
		require.Zero(t, openAt(t, in(name)), "nothing of it is left open")
	}
}

// openAt counts this process's descriptors of a path, which may be unlinked.
func openAt(t *testing.T, path string) (n int) {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, link := range links {
		target, err := os.Readlink(link)
		if err == nil && (target == path || target == path+" (deleted)") {
			n++
		}
	}
	return n
}
