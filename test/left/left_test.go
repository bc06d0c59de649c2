//go:build linux

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/runtime/proctable"
)

const role = "LEFT_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(role) == "" {
		os.Exit(m.Run())
	}
	main()
}

// left runs a shell script under the program, and sees that what it says was left
// is ended.
func left(t *testing.T, script string) (code int, said string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-patience", "1s", "sh", "-c", script)
	cmd.Env = append(os.Environ(), role+"=left", "TMPDIR="+t.TempDir())
	cmd.Dir = "/"
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if exited := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exited) {
		t.Fatal(err)
	}
	for _, pid := range pids(t, out.String()) {
		if p, err := proctable.Read(pid); err == nil && !p.Dead {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Errorf("process %d lives: %s", pid, out.String())
		}
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

func pids(t *testing.T, said string) (listed []int) {
	t.Helper()
	for _, match := range regexp.MustCompile(`(?m)^  (\d+), \S+ old: `).FindAllStringSubmatch(said, -1) {
		pid, err := strconv.Atoi(match[1])
		require.NoError(t, err)
		listed = append(listed, pid)
	}
	return listed
}

func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{
		`touch "$TMPDIR/x" && rm "$TMPDIR/x"`: 0,
		`(sleep .3; true) & exit 0`:           0, // it has its time to end
		`exit 7`:                              7,
		`kill -QUIT $$`:                       128 + 3,
	} {
		code, said := left(t, script)
		require.Equal(t, want, code, "%s: %s", script, said)
		require.Empty(t, said)
	}
	code, said := left(t, `exec /no/such/program`)
	require.NotZero(t, code, said)
}

func TestProcessesThatAreLeftAreListed(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"in the background":                `sleep 901 >/dev/null 2>&1 &`,
		"in a kernel session of its own":   `setsid sleep 901 >/dev/null 2>&1 &`,
		"without an environment":           `cd /; env -i setsid sleep 901 >/dev/null 2>&1 &`,
		"a daemon":                         `(cd /; env -i setsid sh -c 'sleep 901 & exit' >/dev/null 2>&1 &)`,
		"below a tmux server":              `cd /; env -i PATH="$PATH" tmux -S "$TMPDIR/s" -f /dev/null new-session -d 'exec env -i sleep 901'`,
		"that a tmux server has left":      `cd /; tmux -S "$TMPDIR/s" -f /dev/null new-session -d 'trap "" HUP; exec env -i sleep 901'; sleep .5; tmux -S "$TMPDIR/s" kill-server`,
		"though the command failed itself": `sleep 901 >/dev/null 2>&1 & exit 3`,
		"by a test that was killed":        `sleep 901 >/dev/null 2>&1 & kill -QUIT $$`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, said := left(t, script)
			require.NotZero(t, code)
			if strings.Contains(script, "exit 3") {
				require.Equal(t, 3, code)
			}
			require.Regexp(t, `Processes were left, and are ended: \d`, said)
			require.Contains(t, said, "sleep 901")
		})
	}
}

func TestFilesThatAreLeftAreListed(t *testing.T) {
	t.Parallel()
	code, said := left(t, `mkdir -p "$TMPDIR/a/b/c" && touch "$TMPDIR/a/x"`)
	require.Equal(t, 1, code)
	require.Contains(t, said, filepath.Join("a", "x"))
	require.NotContains(t, said, filepath.Join("b", "c"))
}
