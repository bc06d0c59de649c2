package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	_ "modernc.org/sqlite"

	"unwind/internal/store"
	"unwind/migrations"
	"unwind/teardown"
	"unwind/test/devserver"
)

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	code, stdout, stderr := m.run("--help")
	require.Zero(t, code)
	require.Empty(t, stderr)
	for _, part := range []string{"--database-url", "UNWIND_RECONCILE_INTERVAL", "TEMPORAL_ADDRESS", "Exit codes:"} {
		require.Contains(t, stdout, part)
	}
	code, stdout, _ = m.run("--version")
	require.Zero(t, code)
	require.Regexp(t, `^unwind-worker \S+\n$`, stdout)
	require.NoDirExists(t, filepath.Join(m.dir, ".local"), "nothing was made")
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--retries", "3"}, "unknown flag: --retries; see unwind-worker --help"},
		{[]string{"start"}, `it takes flags only, not "start"`},
		{[]string{"--stop-timeout", "soon"}, `UNWIND_STOP_TIMEOUT (--stop-timeout) is "soon": use a duration`},
		{[]string{"--database-url", "mysql://u:secret@h/d"}, "use sqlite:///absolute/path.db or postgres://"},
	} {
		code, stdout, stderr := m.run(c.args...)
		require.Equal(t, 64, code, c.args)
		require.Contains(t, stderr, c.says)
		require.NotContains(t, stderr, "secret")
		require.Equal(t, 1, strings.Count(stderr, "\n"), "one line: %s", stderr)
		require.Empty(t, stdout)
	}
}

// closedPort is an address at which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func TestSaysThatTemporalIsNotReachable(t *testing.T) {
	t.Parallel()
	address := closedPort(t)
	m := newMachine(t, "TEMPORAL_ADDRESS", address)
	code, _, stderr := m.run()
	require.Equal(t, 69, code)
	require.Contains(t, stderr, "unwind-worker: Temporal at "+address+" cannot be reached; start one with `make dev` or `unwind dev`, or set TEMPORAL_ADDRESS")
	require.NotContains(t, stderr, "Worker started")
}

func TestSaysThatTheDatabaseIsNotReachable(t *testing.T) {
	t.Parallel()
	address := closedPort(t)
	m := newMachine(t, "UNWIND_DATABASE_URL", "postgres://unwind:secret@"+address+"/unwind?sslmode=disable", "UNWIND_LOG_FORMAT", "json")
	code, _, stderr := m.run()
	require.Equal(t, 69, code)
	require.NotContains(t, stderr, "secret")
	var record struct{ Level, Msg, Code, Error string }
	require.NoError(t, json.Unmarshal([]byte(strings.TrimSpace(stderr)), &record))
	require.Equal(t, "ERROR", record.Level)
	require.Equal(t, "database_unavailable", record.Code)
	require.Contains(t, record.Error, address)
}

func TestRefusesADatabaseOfAnotherSchemaVersion(t *testing.T) {
	t.Parallel()
	server := devserver.Start(t)
	m := newMachine(t, "TEMPORAL_ADDRESS", server.Address)
	require.NoError(t, m.store().Close())
	db, err := sqlx.Open("sqlite", strings.TrimPrefix(m.databaseURL(), "sqlite://"))
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO " + migrations.Table + " (version_id, is_applied) VALUES (999, 1)")
	require.NoError(t, err)
	require.NoError(t, db.Close())

	code, _, stderr := m.run()
	require.Equal(t, 65, code)
	require.Contains(t, stderr, "999")
	require.NotContains(t, stderr, "Worker started")
}

// A schema that is migrated under it is another one's, too: it ends by its next
// pass, and a finalization that is terminated meanwhile is not parked for it.
func TestEndsWhenTheSchemaIsMigratedUnderIt(t *testing.T) {
	t.Parallel()
	server := devserver.Start(t)
	m := newMachine(t, "TEMPORAL_ADDRESS", server.Address, "UNWIND_RECONCILE_INTERVAL", "1s")
	facts := m.store()
	w := m.start()
	w.says("Started Worker")
	db, err := sqlx.Open("sqlite", strings.TrimPrefix(m.databaseURL(), "sqlite://"))
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO " + migrations.Table + " (version_id, is_applied) VALUES (999, 1)")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.Equal(t, 65, w.ended())
	w.says("The database has schema version 999 and this unwind knows only")
	require.Error(t, facts.SeeHost(t.Context(), store.Host{ID: "h1"}))
}

func TestSaysThatTheNamespaceIsMissing(t *testing.T) {
	t.Parallel()
	server := devserver.Start(t)
	for _, attributes := range []string{"on", "off"} {
		m := newMachine(t, "TEMPORAL_ADDRESS", server.Address, "TEMPORAL_NAMESPACE", "absent", "UNWIND_SEARCH_ATTRIBUTES", attributes)
		code, _, stderr := m.run()
		require.Equal(t, 69, code)
		require.Contains(t, stderr, `has no namespace "absent"; create it with`)
	}
}

func TestFinalizesWhatWasTerminatedAndStopsInOrder(t *testing.T) {
	t.Parallel()
	server := devserver.Start(t)
	m := newMachine(t, "TEMPORAL_ADDRESS", server.Address, "UNWIND_MISSPELT", "1")
	facts := m.store()
	secret := filepath.Join(m.dir, "agent", "env")
	require.NoError(t, os.MkdirAll(filepath.Dir(secret), 0o700))
	require.NoError(t, os.WriteFile(secret, []byte("TOKEN=x"), 0o600))
	_, err := facts.AddSession(t.Context(), store.NewSession{ID: "s1", Host: "h1", ManifestHash: "m",
		Runtimes: []store.NewRuntime{{Handle: teardown.Runtime{
			Kind: teardown.KindProcess, Role: teardown.RoleAgent, PID: 1 << 22, StartTime: 1, Gone: true,
			Identity: &teardown.RuntimeIdentity{EnvTag: "UNWIND_RUN_ID=s1"}}}},
		Resources: []store.NewResource{{Kind: teardown.ResourceSecret, Path: secret}}})
	require.NoError(t, err)
	_, _, err = facts.Terminate(t.Context(), "s1", "test")
	require.NoError(t, err)

	worker := m.start()
	worker.says(`msg="Worker started"`)
	for _, part := range []string{"host=h1", "workflow_queue=unwind", "host_queue=unwind-host-h1", "database=sqlite://" + m.dir,
		"temporal=" + server.Address, "namespace=default", "/namespaces/default/workflows", "variable=UNWIND_MISSPELT"} {
		require.Contains(t, worker.stderr.String(), part)
	}
	requireFinished(t, facts, "s1")
	require.NoFileExists(t, secret)

	have, err := m.dial(server.Address, "default").Client.OperatorService().ListSearchAttributes(t.Context(),
		&operatorservice.ListSearchAttributesRequest{Namespace: "default"})
	require.NoError(t, err)
	require.Equal(t, enumspb.INDEXED_VALUE_TYPE_KEYWORD, have.GetCustomAttributes()[teardown.PhaseAttribute])
	host, found, err := facts.Host(t.Context(), "h1")
	require.NoError(t, err)
	require.True(t, found)
	require.NotEmpty(t, host.Version)

	require.Zero(t, worker.stop(syscall.SIGTERM))
	require.Contains(t, worker.stderr.String(), "Stopping; steps that run are let finish")
	require.NotContains(t, worker.stderr.String(), "level=ERROR")
}

func requireFinished(t *testing.T, facts *store.Store, id string) {
	t.Helper()
	require.Eventually(t, func() bool {
		result, err := facts.Result(t.Context(), id, 1)
		return err == nil && result.Outcome == teardown.OutcomeFinalized
	}, patience, 20*time.Millisecond)
}

func TestTwoWorkersOnOneHost(t *testing.T) {
	t.Parallel()
	server := devserver.Start(t)
	m := newMachine(t, "TEMPORAL_ADDRESS", server.Address)
	one, two := m.start(), m.start()
	one.says("Worker started")
	two.says("Worker started")
	require.Zero(t, one.stop(syscall.SIGINT))

	facts := m.store()
	_, err := facts.AddSession(t.Context(), store.NewSession{ID: "s1", Host: "h1", ManifestHash: "m"})
	require.NoError(t, err)
	_, _, err = facts.Terminate(t.Context(), "s1", "test")
	require.NoError(t, err)
	requireFinished(t, facts, "s1")
	require.Zero(t, two.stop(syscall.SIGTERM))
}

func TestWithoutSearchAttributes(t *testing.T) {
	t.Parallel()
	server := devserver.Start(t)
	m := newMachine(t, "TEMPORAL_ADDRESS", server.Address)
	worker := m.start("--search-attributes", "off")
	worker.says("Worker started")
	require.Zero(t, worker.stop(syscall.SIGTERM))
	have, err := m.dial(server.Address, "default").Client.OperatorService().ListSearchAttributes(t.Context(),
		&operatorservice.ListSearchAttributesRequest{Namespace: "default"})
	require.NoError(t, err)
	require.NotContains(t, have.GetCustomAttributes(), teardown.PhaseAttribute)
}

func TestServesMetrics(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "TEMPORAL_ADDRESS", devserver.Start(t).Address, "UNWIND_METRICS_ADDRESS", "127.0.0.1:0")
	worker := m.start()
	worker.says("metrics=127.0.0.1:")
	address := regexp.MustCompile(`metrics=(127\.0\.0\.1:\d+)`).FindStringSubmatch(worker.stderr.String())[1]
	require.Eventually(t, func() bool {
		response, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return false
		}
		defer func() { _ = response.Body.Close() }()
		page, err := io.ReadAll(response.Body)
		return err == nil && strings.Contains(string(page), "temporal_num_pollers{")
	}, patience, 20*time.Millisecond)
	require.Zero(t, worker.stop(syscall.SIGTERM))
}

// Temporal's data is lost while the worker runs: it registers the search
// attributes again, or no workflow would go on.
func TestGoesOnWhenTemporalLostItsData(t *testing.T) {
	t.Parallel()
	server := devserver.Start(t)
	m := newMachine(t, "TEMPORAL_ADDRESS", server.Address)
	worker := m.start()
	worker.says("Worker started")
	require.NoError(t, server.Stop())
	facts := m.store()
	_, err := facts.AddSession(t.Context(), store.NewSession{ID: "s1", Host: "h1", ManifestHash: "m"})
	require.NoError(t, err)
	_, _, err = facts.Terminate(t.Context(), "s1", "test")
	require.NoError(t, err)
	worker.says("Not everything could be reconciled")
	require.NoError(t, server.Resume())
	requireFinished(t, facts, "s1")
	require.Zero(t, worker.stop(syscall.SIGTERM))
}
