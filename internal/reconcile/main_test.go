package reconcile_test

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"unwind/internal/reconcile"
	"unwind/internal/store"
	"unwind/internal/temporalclient"
	"unwind/test/devserver"
	"unwind/test/pgtest"
)

// server is shared: each test has a namespace of its own.
var server *devserver.Server

func TestMain(m *testing.M) {
	// Most of their time the tests wait for a workflow.
	_ = flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))) // the command line has the last word
	var err error
	if server, err = devserver.Launch(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	server.Close()
	os.Exit(code)
}

type variables map[string]string

func (v variables) LookupEnv(name string) (string, bool) { value, ok := v[name]; return value, ok }
func (v variables) Environ() []string                    { return nil }

// bundle is a database and a namespace of the test's own.
type bundle struct {
	*testing.T
	reconcile.Deps
	dialect store.Dialect
	source  string // the database, as its driver knows it
}

// onBothDatabases runs a test of this package with the store on each.
func onBothDatabases(t *testing.T, test func(*testing.T, *bundle)) {
	t.Helper()
	t.Parallel()
	for _, dialect := range []store.Dialect{store.SQLite, store.Postgres} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			test(t, setup(t, dialect))
		})
	}
}

func setup(t *testing.T, dialect store.Dialect) *bundle {
	t.Helper()
	source := filepath.Join(t.TempDir(), "unwind.db")
	url := "sqlite://" + source
	if dialect == store.Postgres {
		url = pgtest.Copy(t, "migrated", func(ctx context.Context, url string) error {
			_, err := store.Migrate(ctx, url)
			return err
		})
		source = url
	}
	facts, err := store.Open(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = facts.Close() })
	return &bundle{T: t, dialect: dialect, source: source, Deps: reconcile.Deps{
		Store: facts, Temporal: namespace(t), TaskQueue: queue, Logger: slog.New(slog.DiscardHandler),
		Host: store.Host{ID: here, Name: "one", Version: "v1"}, Serving: true,
	}}
}

// namespace makes a namespace of the test's own.
func namespace(t *testing.T) *temporalclient.Connection {
	t.Helper()
	namespaces, err := client.NewNamespaceClient(client.Options{HostPort: server.Address})
	require.NoError(t, err)
	defer namespaces.Close()
	name := rand.Text()
	require.NoError(t, namespaces.Register(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: name, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour)}))
	connection, err := temporalclient.Dial(t.Context(), temporalclient.Options{Program: "unwind-test", Env: variables{
		"TEMPORAL_ADDRESS": server.Address, "TEMPORAL_NAMESPACE": name, "TEMPORAL_CONFIG_FILE": filepath.Join(t.TempDir(), "none.toml")}})
	require.NoError(t, err)
	t.Cleanup(connection.Close)
	return connection
}
