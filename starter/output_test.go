package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/teardown"
)

// refusing is a standard output that takes nothing.
type refusing struct {
	err   error
	tries int
}

func (r *refusing) Write([]byte) (int, error) {
	r.tries++
	return 0, &os.PathError{Op: "write", Path: "stdout", Err: r.err}
}

func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.add(teardown.Manifest{ID: "s1"})
	b.add(teardown.Manifest{ID: "s2"})
	for _, line := range []string{"list", "list --json", "status s1", "status s1 --json", "--help", "version", "migrate --status", "completion bash"} {
		p, _, stderr := b.program("")
		out := &refusing{err: syscall.ENOSPC}
		p.out = out
		require.Equal(t, exitFailed, exitCode(p.execute(t.Context(), strings.Fields(line))), line)
		require.Contains(t, stderr.String(), "the output is not complete: write stdout: no space left on device", line)
		require.Equal(t, 1, strings.Count(stderr.String(), "\n"), line)
		require.Equal(t, 1, out.tries, line)

		p, _, stderr = b.program("")
		p.out = &refusing{err: syscall.EPIPE}
		require.Equal(t, exitDone, exitCode(p.execute(t.Context(), strings.Fields(line))), line)
		require.Empty(t, stderr.String(), line)
	}
	p, _, _ := b.program("")
	p.out = &refusing{err: syscall.ENOSPC}
	require.Equal(t, exitRefused, exitCode(p.execute(t.Context(), []string{"status", "s9", "--json"})), "what went wrong before counts more")
}

func TestBar(t *testing.T) {
	t.Parallel()
	require.Empty(t, barLines(teardown.Progress{Files: 7}), "the size is not known")
	for files, want := range map[int64]string{0: "  [........................................] 0%", 50: "  [####################....................] 50%",
		100: "  [########################################] 100%", 120: "  [########################################] 100%"} {
		require.Equal(t, []string{want}, barLines(teardown.Progress{Files: files, TotalFiles: 100}))
	}
}
