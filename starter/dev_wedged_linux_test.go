package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"unwind/internal/config"
	"unwind/internal/runtime"
	"unwind/internal/runtime/proctable"
)

const asListener = "UNWIND_TEST_AS_LISTENER"

// listenUntilEnd is what a process of listener does.
func listenUntilEnd(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	fmt.Printf("port %d\n", listener.Addr().(*net.TCPAddr).Port)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends that has started us
	_ = listener.Close()
}

// listener is a stopped process that holds a port: this program once more.
func listener(t *testing.T) (held proctable.Process, port int) {
	t.Helper()
	command := exec.Command(os.Args[0], "-test.run=^TestDevRefusesWhatItCannotProve$")
	command.Env = append(os.Environ(), asListener+"=1")
	stdin, err := command.StdinPipe()
	require.NoError(t, err)
	stdout, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	for lines := bufio.NewScanner(stdout); port == 0 && lines.Scan(); {
		if text, found := strings.CutPrefix(lines.Text(), "port "); found {
			port, err = strconv.Atoi(text)
			require.NoError(t, err)
		}
	}
	require.NotZero(t, port)
	require.NoError(t, command.Process.Signal(unix.SIGSTOP))
	require.Eventually(t, func() bool {
		held, err = proctable.Read(command.Process.Pid)
		return err == nil && held.Stopped
	}, time.Minute, pollInterval)
	return held, port
}

// wedge is an installation whose port is held by a stopped process.
func wedge(t *testing.T) (b *bench, d *development, held proctable.Process, port int) {
	t.Helper()
	b = setup(t)
	for _, program := range []string{"unwind-worker", "temporal"} {
		require.NoError(t, os.WriteFile(filepath.Join(b.root, program), []byte("#!/bin/sh\nexit 1\n"), 0o700))
	}
	held, port = listener(t)
	d = &development{config: config.Config{StateDir: b.state}}
	require.NoError(t, os.MkdirAll(filepath.Dir(d.recordPath()), 0o700))
	return b, d, held, port
}

func TestDevRefusesWhatItCannotProve(t *testing.T) {
	t.Parallel()
	if os.Getenv(asListener) != "" {
		listenUntilEnd(t)
		return
	}
	boot, err := runtime.ThisBoot()
	require.NoError(t, err)
	for name, record := range map[string]func(t *testing.T, held proctable.Process) *serverRecord{
		"no record": func(*testing.T, proctable.Process) *serverRecord { return nil },
		"a number that was used again": func(_ *testing.T, held proctable.Process) *serverRecord {
			return &serverRecord{PID: held.PID, Start: held.Start - 1, BootID: boot}
		},
		"an earlier boot": func(_ *testing.T, held proctable.Process) *serverRecord {
			return &serverRecord{PID: held.PID, Start: held.Start, BootID: "00000000-0000-4000-8000-000000000000"}
		},
		"no boot": func(_ *testing.T, held proctable.Process) *serverRecord {
			return &serverRecord{PID: held.PID, Start: held.Start}
		},
		"another process that lives": func(t *testing.T, _ proctable.Process) *serverRecord {
			other, _ := listener(t)
			return &serverRecord{PID: other.PID, Start: other.Start, BootID: boot}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, d, held, port := wedge(t)
			if r := record(t, held); r != nil {
				require.NoError(t, d.writeRecord(*r))
			}
			r := b.run("dev", "--port", strconv.Itoa(port))
			require.Equal(t, exitUnavailable, r.code, r.stderr)
			require.Contains(t, r.stderr, fmt.Sprintf("port %d is held by %s (pid %d), which does not answer as Temporal and is not proved to be", port, held.Command, held.PID))
			require.Contains(t, r.stderr, "end it, or choose another port with --port")
			now, err := proctable.Read(held.PID)
			require.NoError(t, err)
			require.Equal(t, held.Ref, now.Ref)
			require.True(t, now.Stopped, "it was sent no signal")
		})
	}
}

func TestDevRefusesASocketThatOthersShare(t *testing.T) {
	t.Parallel()
	shared, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = shared.Close() }()
	port := shared.Addr().(*net.TCPAddr).Port
	require.True(t, holdsAlone(os.Getpid(), port))
	file, err := shared.(*net.TCPListener).File()
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	heir := exec.Command("sleep", "600")
	heir.ExtraFiles = []*os.File{file}
	require.NoError(t, heir.Start())
	defer func() { _ = heir.Process.Kill(); _ = heir.Wait() }()
	require.False(t, holdsAlone(os.Getpid(), port))
}

// Nothing is ended if there is no server to start in its place.
func TestDevEndsNothingWithoutAReplacement(t *testing.T) {
	t.Parallel()
	boot, err := runtime.ThisBoot()
	require.NoError(t, err)
	b, d, held, port := wedge(t)
	require.NoError(t, d.writeRecord(serverRecord{PID: held.PID, Start: held.Start, BootID: boot}))
	require.NoError(t, os.Remove(filepath.Join(b.root, "temporal")))
	b.environment = b.environment.with("PATH=")
	r := b.run("dev", "--port", strconv.Itoa(port))
	require.Equal(t, exitUsage, r.code, r.stderr)
	require.Contains(t, r.stderr, "make bin/temporal")
	now, err := proctable.Read(held.PID)
	require.NoError(t, err)
	require.True(t, now.Stopped)
}
