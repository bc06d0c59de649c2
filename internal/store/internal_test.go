package store

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"unwind/teardown"
	"unwind/test/pgtest"
)

func TestATransactionThatLostIsRunAgain(t *testing.T) {
	t.Parallel()
	s, err := openMigrated(pgtest.Database(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	fail := func(tx queries, state string) error {
		_, err := tx.exec(context.Background(), "DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '"+state+"'; END $$")
		return err
	}
	for _, state := range []string{"40001", "40P01"} {
		tries := 0
		require.NoError(t, s.write(context.Background(), func(tx queries) error {
			if tries++; tries < 3 {
				return fail(tx, state)
			}
			return nil
		}))
		require.Equal(t, 3, tries)

		tries = 0
		err := s.write(context.Background(), func(tx queries) error {
			tries++
			return fail(tx, state)
		})
		require.Equal(t, collisionTries, tries)
		require.Equal(t, teardown.CodeDatabaseUnavailable, teardown.CodeOf(err))
	}
	tries := 0
	err = s.write(context.Background(), func(tx queries) error {
		tries++
		return fail(tx, "23503")
	})
	require.Equal(t, 1, tries, "another trouble is not helped by running it again")
	require.Equal(t, teardown.CodeInternal, teardown.CodeOf(err))
}

func openMigrated(url string) (*Store, error) {
	if _, err := Migrate(context.Background(), url); err != nil {
		return nil, err
	}
	return Open(context.Background(), url)
}

// A migration is checked before it is committed, since its connection enforces
// no foreign keys.
func TestAMigrationThatBreaksAReferenceIsRolledBack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "unwind.db")
	s, err := Open(context.Background(), "sqlite://"+path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	db, err := s.at.connectToMigrate(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	var enforced bool
	require.NoError(t, db.Get(&enforced, "PRAGMA foreign_keys"))
	require.False(t, enforced)

	first, err := s.at.migrations().Open("00001_facts.sql")
	require.NoError(t, err)
	require.NoError(t, first.Close())
	files := fstest.MapFS{
		"00001_facts.sql": {Data: []byte("-- +goose Up\nSELECT 1;")},
		"00002_break.sql": {Data: []byte("-- +goose Up\nCREATE TABLE more (id TEXT);\n" +
			"INSERT INTO sessions (id, host, task_id, created_at, updated_at) VALUES ('s', 'h', 'nothing', '', '');")},
	}
	provider, err := s.at.provider(t.Context(), db.DB, files)
	require.NoError(t, err)
	_, err = provider.Up(context.Background())
	require.ErrorContains(t, err, "rows of sessions would refer to rows that do not exist")
	failed := s.at.migrationFailed(err)
	require.Equal(t, teardown.CodeSchemaVersion, teardown.CodeOf(failed))
	require.ErrorContains(t, failed, "00002_break.sql")
	var tables int
	require.NoError(t, db.Get(&tables, "SELECT COUNT(*) FROM sqlite_master WHERE name = 'more'"))
	require.Zero(t, tables)
}

func TestSecretsAreRedacted(t *testing.T) {
	t.Parallel()
	at, err := locate("postgres://u:s%40krit@h/db?password=other&sslpassword=third")
	require.NoError(t, err)
	told := at.explain(errors.New("cannot use s@krit, s%40krit, other or third"))
	for _, secret := range []string{"krit", "other", "third"} {
		require.NotContains(t, told.Error(), secret)
	}
	plain := errors.New("nothing secret")
	require.ErrorIs(t, at.explain(plain), plain)
}

func TestTextFromOutsideIsMadeReadable(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a\uFFFDb\uFFFDc", readable("a\x00b\xffc", 100))
	require.Equal(t, "ä…", readable("ää", 3))
	require.Equal(t, strings.Repeat("x", 10), readable(strings.Repeat("x", 10), 10))
}

func FuzzJSONColumn(f *testing.F) {
	for _, seed := range []string{"", "null", "{}", "[]", `{"kind":"tmux","identity":{"panes":[{"pid":1}]}}`, `{"pid":1e999}`, "\xff", "[[[[", `"\ud800"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var handle JSON[teardown.Runtime]
		if handle.Scan(text) == nil {
			bound, err := handle.Value()
			require.NoError(t, err)
			var again JSON[teardown.Runtime]
			require.NoError(t, again.Scan(bound))
			require.Equal(t, handle, again)
		}
		var details JSON[[]string]
		_ = details.Scan(string(text))
		require.Error(t, details.Scan(42))
	})
}
