package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/internal/temporalclient"
)

// runAsWorker makes the test's own binary, race detector included, the worker.
const runAsWorker = "RUN_AS_UNWIND_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(runAsWorker) != "" {
		main()
	}
	os.Exit(m.Run())
}

// patience bounds what a test waits for.
const patience = 2 * time.Minute

// machine is a state directory and what a worker on it is told.
type machine struct {
	*testing.T
	dir string
	env environment
}

func newMachine(t *testing.T, pairs ...string) *machine {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	m := &machine{T: t, dir: dir}
	m.set(runAsWorker, "1", "HOME", dir, "TMPDIR", dir, "PATH", os.Getenv("PATH"), "UNWIND_HOST", "h1",
		"TEMPORAL_CONFIG_FILE", filepath.Join(dir, "none.toml"), "UNWIND_RECONCILE_INTERVAL", "100ms", "UNWIND_STOP_TIMEOUT", "5s")
	m.set(pairs...)
	return m
}

// set puts variables before those of the same name.
func (m *machine) set(pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		m.env = append(environment{pairs[i] + "=" + pairs[i+1]}, m.env...)
	}
}

func (m *machine) databaseURL() string {
	if url := m.env.get("UNWIND_DATABASE_URL"); url != "" {
		return url
	}
	return "sqlite://" + filepath.Join(m.dir, ".local/state/unwind/unwind.db")
}

func (m *machine) store() *store.Store {
	m.Helper()
	facts, err := store.Open(m.Context(), m.databaseURL())
	require.NoError(m, err)
	m.Cleanup(func() { _ = facts.Close() })
	return facts
}

// running is a worker's process.
type running struct {
	*machine
	command *exec.Cmd
	stdout  output
	stderr  output
}

// start starts a worker and makes sure that it ends with the test.
func (m *machine) start(args ...string) *running {
	m.Helper()
	r := &running{machine: m}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.command = exec.CommandContext(ctx, os.Args[0], args...)
	r.command.Env = m.uniqueEnv()
	r.command.Stdout, r.command.Stderr = &r.stdout, &r.stderr
	require.NoError(m, r.command.Start())
	m.Cleanup(func() {
		cancel()
		if r.command.ProcessState == nil {
			_ = r.command.Wait()
		}
		if m.Failed() {
			m.Logf("the worker wrote:\n%s", r.stderr.String())
		}
	})
	return r
}

func (m *machine) uniqueEnv() []string {
	var unique []string
	seen := map[string]bool{}
	for _, entry := range m.env {
		name, _, _ := strings.Cut(entry, "=")
		if !seen[name] {
			unique = append(unique, entry)
		}
		seen[name] = true
	}
	return unique
}

// ended waits for the worker to end by itself and answers its exit code.
func (r *running) ended() int {
	r.Helper()
	_ = r.command.Wait()
	require.NotEqual(r, -1, r.command.ProcessState.ExitCode(), "it had to be killed: %s", r.command.ProcessState)
	return r.command.ProcessState.ExitCode()
}

// says waits until the worker has written a text.
func (r *running) says(text string) {
	r.Helper()
	require.Eventually(r, func() bool { return strings.Contains(r.stderr.String(), text) }, patience, 10*time.Millisecond, text)
}

func (r *running) stop(signal os.Signal) int {
	r.Helper()
	require.NoError(r, r.command.Process.Signal(signal))
	return r.ended()
}

func (m *machine) run(args ...string) (code int, stdout, stderr string) {
	m.Helper()
	r := m.start(args...)
	code = r.ended()
	return code, r.stdout.String(), r.stderr.String()
}

// output is what a process wrote so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (m *machine) dial(address, namespace string) *temporalclient.Connection {
	m.Helper()
	connection, err := temporalclient.Dial(m.Context(), temporalclient.Options{Program: "unwind-test", Env: environment{
		"TEMPORAL_ADDRESS=" + address, "TEMPORAL_NAMESPACE=" + namespace, "TEMPORAL_CONFIG_FILE=" + filepath.Join(m.dir, "none.toml")}})
	require.NoError(m, err)
	m.Cleanup(connection.Close)
	return connection
}
