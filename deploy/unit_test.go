package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/config"
)

func TestUnit(t *testing.T) {
	t.Parallel()
	found := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindStringSubmatch(read(t, "unwind-worker.service"))
	require.NotNil(t, found)
	seconds, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	settings, problems := config.Check(func(string) string { return "" })
	require.Empty(t, problems)
	require.Greater(t, time.Duration(seconds)*time.Second, settings.StopTimeout)

	verifyUnit(t, "unwind-worker.service", "unwind-worker")
}

func TestUnitOfThePage(t *testing.T) {
	t.Parallel()
	verifyUnit(t, "unwind-serve.service", "unwind")
}

func verifyUnit(t *testing.T, unit, program string) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("there is no systemd-analyze, which would look at the whole unit")
	}
	// It asks for the program and for the user's own directory of sockets.
	home := t.TempDir()
	path := filepath.Join(home, ".local", "bin", program)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755))
	cmd := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--user", unit)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_RUNTIME_DIR=" + t.TempDir()}
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, string(output))
	require.Empty(t, string(output))
}
