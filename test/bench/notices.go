package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"unwind/internal/store"
	"unwind/teardown"
	"unwind/test/devserver"
	"unwind/test/pgtest"
)

// plant is a worker with one database and Temporal's development server; its
// sessions hold nothing.
type plant struct {
	name, url string
	dialect   store.Dialect
	store     *store.Store
	sql       *sqlx.DB // somebody else's connection
	client    client.Client
	worker    *installation // its process
	closing   []func()
}

// newPlant starts no worker yet.
func newPlant(ctx context.Context, o options, server *devserver.Server, dialect store.Dialect) (p *plant, err error) {
	dir, err := os.MkdirTemp("", "unwind-bench-")
	if err != nil {
		return nil, err
	}
	p = &plant{name: string(dialect), dialect: dialect, closing: []func(){func() { _ = os.RemoveAll(dir) }}}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	file := filepath.Join(dir, "unwind.db")
	p.url = "sqlite://" + file
	source := file + "?_pragma=busy_timeout(20000)"
	if dialect == store.Postgres {
		if p.url, err = pgtest.Launch(); err != nil {
			return nil, err
		}
		source = p.url
	}
	if _, err := store.Migrate(ctx, p.url); err != nil {
		return nil, err
	}
	if p.store, err = store.Open(ctx, p.url); err != nil {
		return nil, err
	}
	p.closing = append(p.closing, func() { _ = p.store.Close() })
	if p.sql, err = sqlx.Open(string(dialect), source); err != nil {
		return nil, err
	}
	p.sql.SetMaxOpenConns(1)
	p.closing = append(p.closing, func() { _ = p.sql.Close() })
	if p.client, err = client.Dial(client.Options{HostPort: server.Address}); err != nil {
		return nil, err
	}
	p.closing = append(p.closing, p.client.Close)
	p.worker = &installation{scene: &scene{dir: dir}, options: o, store: p.store, client: p.client, env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TEMPORAL_ADDRESS=" + server.Address, "UNWIND_STATE_DIR=" + filepath.Join(dir, "state"),
		"UNWIND_DATABASE_URL=" + p.url, "UNWIND_ROOTS=" + dir, "UNWIND_LOG_LEVEL=warn", "UNWIND_TASK_QUEUE=bench-" + p.name}}
	return p, nil
}

func (p *plant) start(ctx context.Context, env ...string) error {
	w := p.worker
	w.worker = exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(w.programs, "unwind-worker"))
	w.worker.Env, w.worker.Dir, w.worker.Stderr = slices.Concat(w.env, env), w.dir, os.Stderr
	if err := w.worker.Start(); err != nil {
		return err
	}
	p.closing = append(p.closing, w.stopWorker)
	return nil
}

func (p *plant) close() {
	for i := len(p.closing) - 1; i >= 0; i-- {
		p.closing[i]()
	}
}

func (p *plant) add(ctx context.Context, id string) error {
	_, err := p.store.AddSession(ctx, store.NewSession{ID: id, Host: "bench", ManifestHash: id})
	return err
}

// terminate is what a program does that knows nothing of unwind but its table.
func (p *plant) terminate(ctx context.Context, id string) error {
	_, err := p.sql.ExecContext(ctx, p.sql.Rebind("UPDATE sessions SET terminated_at = ? WHERE id = ?"), time.Now().UTC().Format("2006-01-02 15:04:05.999999-07:00"), id)
	return err
}

// started waits for the workflow and answers when Temporal started it.
func (p *plant) started(ctx context.Context, id string) (time.Time, error) {
	limit := time.Now().Add(time.Minute)
	for {
		run, err := p.client.DescribeWorkflow(ctx, teardown.FinalizeSessionID(id), "")
		var missing *serviceerror.NotFound
		switch {
		case err == nil:
			return run.WorkflowStartTime, nil
		case !errors.As(err, &missing):
			return time.Time{}, err
		case time.Now().After(limit):
			return time.Time{}, fmt.Errorf("nobody started the finalization of %s", id)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// noticed is how many facts are written, one after the other.
const noticed = 50

// notices measures how long after a plain UPDATE the workflow is started. Passes
// are so rare that only what the worker hears explains it.
func notices(ctx context.Context, o options) ([]row, error) {
	server, err := devserver.Launch()
	if err != nil {
		return nil, err
	}
	defer server.Close()
	took := map[store.Dialect][]time.Duration{}
	for _, dialect := range []store.Dialect{store.SQLite, store.Postgres} {
		if took[dialect], err = noticesOn(ctx, o, server, dialect); err != nil {
			return nil, err
		}
	}
	var rows []row
	for _, p := range []int{50, 99} {
		sqlite, postgres := percentile(took[store.SQLite], p), percentile(took[store.Postgres], p)
		rows = append(rows, row{fmt.Sprintf("p%d from a plain SQL UPDATE to its workflow started (SQLite; baseline Postgres)", p),
			milliseconds(sqlite), milliseconds(postgres), ""})
	}
	return rows, nil
}

func noticesOn(ctx context.Context, o options, server *devserver.Server, dialect store.Dialect) ([]time.Duration, error) {
	say("%d facts on %s", noticed, dialect)
	p, err := newPlant(ctx, o, server, dialect)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := p.start(ctx, "UNWIND_RECONCILE_INTERVAL=1h"); err != nil {
		return nil, err
	}
	var took []time.Duration
	for n := range noticed + 1 {
		id := fmt.Sprintf("noticed-%s-%d", p.name, n)
		if err := p.add(ctx, id); err != nil {
			return nil, err
		}
		// At any point of the time between two looks.
		time.Sleep(rand.N(500 * time.Millisecond))
		began := time.Now()
		if err := p.terminate(ctx, id); err != nil {
			return nil, err
		}
		at, err := p.started(ctx, id)
		if err != nil {
			return nil, err
		}
		if n > 0 { // until the first one the worker was starting
			took = append(took, at.Sub(began))
		}
	}
	return took, nil
}
