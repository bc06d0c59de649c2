// Package pgtest gives tests a real Postgres of their own: a private cluster
// from the installed binaries, started once per test process, reachable by a
// socket in a private directory only, and gone with the process.
//
// UNWIND_TEST_POSTGRES_URL names a server to use instead; the role needs the
// right to create databases. Without either, the test fails: a database that
// nobody tested is not supported.
package pgtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/lib/pq" // driver "postgres"
)

const patience = 2 * time.Minute

// Database creates an empty database for one test, drops it at its end, and
// returns its URL.
func Database(t testing.TB) string {
	t.Helper()
	return create(t, "")
}

// Launch creates an empty database for a program that is no test. It goes with
// the process's private cluster.
func Launch() (url string, err error) {
	name, err := createDatabase("")
	if err != nil {
		return "", err
	}
	return server().at(name), nil
}

// Copy is Database with what prepare put into the first one of that name:
// prepare runs once per process, on the URL of an empty database, and must
// close its connections. On a server that stays it runs for each test, so that
// no database is left there.
func Copy(t testing.TB, name string, prepare func(ctx context.Context, url string) error) string {
	t.Helper()
	if server().stays {
		url := Database(t)
		if err := within(prepare, url); err != nil {
			t.Fatalf("preparing the Postgres database %q: %v", name, err)
		}
		return url
	}
	made, _ := templates.LoadOrStore(name, &template{})
	tmpl := made.(*template)
	tmpl.once.Do(func() {
		var db string
		if db, tmpl.err = createDatabase(""); tmpl.err == nil {
			tmpl.database = db
			tmpl.err = within(prepare, server().at(db))
		}
	})
	if tmpl.err != nil {
		t.Fatalf("preparing the Postgres database %q: %v", name, tmpl.err)
	}
	return create(t, tmpl.database)
}

func within(prepare func(ctx context.Context, url string) error, url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return prepare(ctx, url)
}

type template struct {
	once     sync.Once
	database string
	err      error
}

var templates sync.Map // name → *template

func create(t testing.TB, from string) string {
	t.Helper()
	name, err := createDatabase(from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := execute(`DROP DATABASE IF EXISTS "` + name + `" WITH (FORCE)`); err != nil {
			t.Errorf("dropping a test's database: %v", err)
		}
	})
	return server().at(name)
}

func createDatabase(from string) (string, error) {
	name := fmt.Sprintf("unwind_test_%d_%s", os.Getpid(), strings.ToLower(rand.Text()[:10]))
	statement := `CREATE DATABASE "` + name + `"`
	if from != "" {
		statement += ` TEMPLATE "` + from + `"`
	}
	return name, execute(statement)
}

// One connection at a time: copying a template fails while another copy of it
// is under way.
var admin sync.Mutex

func execute(statement string) error {
	s := server()
	if s.err != nil {
		return s.err
	}
	admin.Lock()
	defer admin.Unlock()
	db, err := sql.Open("postgres", s.url.String())
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = db.ExecContext(ctx, statement)
	return err
}

// running is the server of this process.
type running struct {
	url   url.URL // of a database to connect to for CREATE DATABASE
	stays bool    // after this process
	err   error
}

func (s running) at(database string) string {
	u := s.url
	u.Path = "/" + database
	return u.String()
}

var server = sync.OnceValue(func() running {
	if given := os.Getenv("UNWIND_TEST_POSTGRES_URL"); given != "" {
		u, err := url.Parse(given)
		if err != nil {
			return running{err: fmt.Errorf("UNWIND_TEST_POSTGRES_URL is not a URL")}
		}
		return running{url: *u, stays: true}
	}
	c, err := makeCluster()
	if err != nil {
		return running{err: err}
	}
	return running{url: *c.url()}
})

// Private is a server that one test alone has, to stop and start.
type Private struct {
	URL     string // of an empty database
	cluster *cluster
}

// How a server is stopped.
const (
	Fast      = syscall.SIGINT  // clients are cut off, what is committed is written
	Immediate = syscall.SIGQUIT // as by a crash
)

// StartPrivate makes and starts one from the installed binaries; it goes with the
// test.
func StartPrivate(t testing.TB) *Private {
	t.Helper()
	c, err := makeCluster()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.remove)
	return &Private{URL: c.url().String(), cluster: c}
}

// Stop returns when the server has ended.
func (p *Private) Stop(t testing.TB, how syscall.Signal) {
	t.Helper()
	if err := p.cluster.stop(how); err != nil {
		t.Fatal(err)
	}
}

// Start returns when the server answers again.
func (p *Private) Start(t testing.TB) {
	t.Helper()
	if err := p.cluster.start(); err != nil {
		t.Fatal(err)
	}
}
