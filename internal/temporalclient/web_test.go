package temporalclient_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/temporalclient"
)

func TestWebURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ address, base, want string }{
		{"localhost:7233", "", "http://localhost:8233/namespaces/a%20b/workflows"},
		{"127.0.0.1:17233", "", "http://127.0.0.1:18233/namespaces/a%20b/workflows"},
		{"[::1]:7233", "", "http://[::1]:8233/namespaces/a%20b/workflows"},
		{"temporal.example:7233", "", ""},
		{"dns:///temporal.example", "", ""},
		{"temporal.example:7233", "https://ui.example/t", "https://ui.example/t/namespaces/a%20b/workflows"},
	} {
		connection := &temporalclient.Connection{Address: c.address, Namespace: "a b"}
		require.Equal(t, c.want, connection.WebURL(c.base, ""), c.address)
	}
	connection := &temporalclient.Connection{Address: "localhost:7233", Namespace: "default"}
	require.Equal(t, "http://localhost:8233/namespaces/default/workflows/finalize-session-s1", connection.WebURL("", "finalize-session-s1"))
}
