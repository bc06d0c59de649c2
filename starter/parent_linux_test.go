package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const asParent = "UNWIND_TEST_AS_PARENT"

// A program that is killed ends its children all the same. The test runs itself
// once more as that program.
func TestChildrenEndWithAKilledParent(t *testing.T) {
	t.Parallel()
	if os.Getenv(asParent) != "" {
		goruntime.LockOSThread()
		c, err := startChild(exec.Command("sleep", "600"), "sleep")
		require.NoError(t, err)
		fmt.Printf("pid %d\n", c.Process.Pid)
		select {}
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestChildrenEndWithAKilledParent$")
	parent.Env = append(os.Environ(), asParent+"=1")
	stdout, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	t.Cleanup(func() { _ = parent.Process.Kill() })
	pid := 0
	for lines := bufio.NewScanner(stdout); pid == 0 && lines.Scan(); {
		if text, found := strings.CutPrefix(lines.Text(), "pid "); found {
			pid, err = strconv.Atoi(text)
			require.NoError(t, err)
		}
	}
	require.Positive(t, pid)
	require.True(t, lives(pid))
	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	require.Eventually(t, func() bool { return !lives(pid) }, time.Minute, 10*time.Millisecond)
}

// lives: a zombie does not, but nobody may be there to collect it.
func lives(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	state := bytes.TrimSpace(text[bytes.LastIndexByte(text, ')')+1:])
	return len(state) > 0 && state[0] != 'Z' && state[0] != 'X'
}
