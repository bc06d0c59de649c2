package temporalclient_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/temporalclient"
	"unwind/teardown"
	"unwind/test/devserver"
)

// server is shared: each test that changes something has its own namespace.
var server *devserver.Server

func TestMain(m *testing.M) {
	var err error
	if server, err = devserver.Launch(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	server.Close()
	os.Exit(code)
}

// variables is an environment.
type variables map[string]string

func (v variables) LookupEnv(name string) (string, bool) { value, ok := v[name]; return value, ok }

func (v variables) Environ() []string {
	var all []string
	for name, value := range v {
		all = append(all, name+"="+value)
	}
	return all
}

// at is an environment that names a server, without any profile of this machine.
func at(t *testing.T, address string, more ...string) variables {
	t.Helper()
	v := variables{"TEMPORAL_ADDRESS": address, "TEMPORAL_CONFIG_FILE": filepath.Join(t.TempDir(), "none.toml")}
	for i := 0; i < len(more); i += 2 {
		v[more[i]] = more[i+1]
	}
	return v
}

func dial(t *testing.T, env variables) *temporalclient.Connection {
	t.Helper()
	connection, err := temporalclient.Dial(t.Context(), temporalclient.Options{Program: "unwind-test", Env: env})
	require.NoError(t, err)
	t.Cleanup(connection.Close)
	return connection
}

func requireCode(t *testing.T, err error, code teardown.Code, retryable bool) {
	t.Helper()
	var own *teardown.Error
	require.ErrorAs(t, err, &own)
	require.Equal(t, code, own.Code, own.Error())
	require.Equal(t, retryable, own.Retryable, own.Error())
}

func TestDial(t *testing.T) {
	t.Parallel()
	connection := dial(t, at(t, server.Address))
	require.Equal(t, server.Address, connection.Address)
	require.Equal(t, "default", connection.Namespace)
}

func TestDialReadsAProfile(t *testing.T) {
	t.Parallel()
	profiles := filepath.Join(t.TempDir(), "temporal.toml")
	require.NoError(t, os.WriteFile(profiles, []byte("[profile.there]\naddress = '"+server.Address+"'\nnamespace = 'ours'\n"), 0o600))
	connection := dial(t, variables{"TEMPORAL_CONFIG_FILE": profiles, "TEMPORAL_PROFILE": "there"})
	require.Equal(t, "ours", connection.Namespace)
}

func TestDialSaysThatTemporalIsAway(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())

	_, err = temporalclient.Dial(t.Context(), temporalclient.Options{Program: "unwind-test", Env: at(t, address)})
	requireCode(t, err, teardown.CodeTemporalUnavailable, true)
	require.ErrorContains(t, err, "Temporal at "+address+" cannot be reached; start one with `make dev` or `unwind dev`, or set TEMPORAL_ADDRESS")
}

// A server that was stopped, or the wrong port, may take connections and say
// nothing.
func TestDialDoesNotWaitForASilentServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })

	_, err = temporalclient.Dial(t.Context(), temporalclient.Options{Program: "unwind-test", Env: at(t, listener.Addr().String())})
	requireCode(t, err, teardown.CodeTemporalUnavailable, true)
	require.ErrorContains(t, err, "cannot be reached")
}

func TestDialRefusesBadSettings(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]variables{
		"profile that is not there": at(t, "127.0.0.1:1", "TEMPORAL_PROFILE", "nowhere"),
		"certificate without key":   at(t, "127.0.0.1:1", "TEMPORAL_TLS_CLIENT_CERT_PATH", "/nonexistent/cert.pem"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := temporalclient.Dial(context.Background(), temporalclient.Options{Program: "unwind-test", Env: env})
			requireCode(t, err, teardown.CodeInvalidConfig, false)
			require.ErrorContains(t, err, "TEMPORAL_… variables or the profile in temporal.toml")
		})
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	require.Regexp(t, `^unwind-worker@[^@]+:\d+$`, temporalclient.Identity("unwind-worker"))
}
