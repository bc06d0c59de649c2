package pgtest_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"testing"

	"unwind/test/pgtest"
)

func TestDatabaseIsEmptyAndOnesOwn(t *testing.T) {
	t.Parallel()
	first, second := open(t, pgtest.Database(t)), open(t, pgtest.Database(t))
	if _, err := first.Exec("CREATE TABLE kept (id TEXT)"); err != nil {
		t.Fatal(err)
	}
	if tableExists(t, second) {
		t.Error("a table of one test is in the database of another")
	}
}

func TestCopyIsPreparedOnce(t *testing.T) {
	t.Parallel()
	runs, name := 0, rand.Text()
	prepare := func(ctx context.Context, url string) error {
		runs++
		db, err := sql.Open("postgres", url)
		if err != nil {
			return err
		}
		defer db.Close()
		_, err = db.ExecContext(ctx, "CREATE TABLE kept (id TEXT)")
		return err
	}
	for range 3 {
		if !tableExists(t, open(t, pgtest.Copy(t, name, prepare))) {
			t.Error("a copy lacks what was prepared")
		}
	}
	want := 1
	if os.Getenv("UNWIND_TEST_POSTGRES_URL") != "" {
		want = 3
	}
	if runs != want {
		t.Errorf("prepared %d times, want %d", runs, want)
	}
}

func open(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func tableExists(t *testing.T, db *sql.DB) (exists bool) {
	t.Helper()
	if err := db.QueryRow("SELECT to_regclass('kept') IS NOT NULL").Scan(&exists); err != nil {
		t.Fatal(err)
	}
	return exists
}
