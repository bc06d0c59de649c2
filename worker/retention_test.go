package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
	"unwind/test/devserver"
)

func TestKeepsScrollbackWithinItsBounds(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "TEMPORAL_ADDRESS", devserver.Start(t).Address, "UNWIND_SNAPSHOT_KEEP", "1h")
	facts := m.store()
	dir := filepath.Join(m.dir, ".local/state/unwind/snapshots")
	require.NoError(t, os.Mkdir(dir, 0o700))
	file := func(name string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte("shown\n"), 0o600))
		old := time.Now().Add(-2 * time.Hour)
		require.NoError(t, os.Chtimes(path, old, old))
		return path
	}
	foreign := file("notes.txt")
	finished, needed := file("tmux-a.txt"), file("tmux-b.txt")
	for id, path := range map[string]string{"finished": finished, "needed": needed, "lost": filepath.Join(dir, "tmux-c.txt")} {
		_, err := facts.AddSession(t.Context(), store.NewSession{ID: id, Host: "h1", ManifestHash: id,
			Runtimes: []store.NewRuntime{{ID: id, Handle: teardown.Runtime{Kind: teardown.KindTmux}}}})
		require.NoError(t, err)
		_, _, err = facts.Terminate(t.Context(), id, "test")
		require.NoError(t, err)
		begun, err := facts.Begin(t.Context(), teardown.BeginInput{SessionID: id})
		require.NoError(t, err)
		_, err = facts.RuntimeReleased(t.Context(), begun.Step, id, "killed", path, teardown.RuntimeResult{Outcome: teardown.RuntimeReleased})
		require.NoError(t, err)
		if id == "finished" {
			_, err = facts.Finish(t.Context(), begun.Step)
		} else { // so that the worker leaves it unfinished
			_, err = facts.Hold(t.Context(), id, nil, "test")
		}
		require.NoError(t, err)
	}
	worker := m.start()
	require.Eventually(t, func() bool {
		recorded, err := facts.Snapshots(t.Context(), "h1")
		return err == nil && len(recorded) == 1 && recorded[0].RuntimeID == "needed"
	}, patience, 20*time.Millisecond)
	require.NoFileExists(t, finished)
	require.FileExists(t, needed)
	require.FileExists(t, foreign)
	require.Zero(t, worker.stop(syscall.SIGTERM))
}
