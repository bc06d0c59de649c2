package store

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/teardown"
	"unwind/test/pgtest"
)

// Whoever may only read hears who may write, and loses nothing by waiting.
func TestADatabaseThatMayOnlyBeRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ url, readOnly, sentence string }{
		"sqlite":   {"sqlite://" + t.TempDir() + "/unwind.db", "PRAGMA query_only = 1", "only the owner of "},
		"postgres": {pgtest.Database(t), "SET ROLE pg_read_all_data", "with the user that owns the tables"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := openMigrated(c.url)
			require.NoError(t, err)
			t.Cleanup(func() { _ = s.Close() })
			s.db.SetMaxOpenConns(1)
			ctx := context.Background()
			require.NoError(t, s.Writable(ctx))
			_, err = s.db.ExecContext(ctx, c.readOnly)
			require.NoError(t, err)
			for _, err := range []error{s.Writable(ctx), s.SeeHost(ctx, Host{ID: "h1"})} {
				require.Equal(t, teardown.CodeDatabaseUnavailable, teardown.CodeOf(err))
				require.ErrorContains(t, err, c.sentence)
			}
			_, found, err := s.Host(ctx, "h1")
			require.NoError(t, err)
			require.False(t, found)
		})
	}
}
