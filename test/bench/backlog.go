package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"unwind/internal/store"
	"unwind/teardown"
	"unwind/test/devserver"
)

// backlog measures what a worker does that starts when thousands of sessions were
// terminated without one. They hold nothing. Every few seconds another session is
// terminated: it must not wait for them.
func backlog(ctx context.Context, o options) ([]row, error) {
	server, err := devserver.Launch()
	if err != nil {
		return nil, err
	}
	defer server.Close()
	var rows []row
	for _, dialect := range []store.Dialect{store.SQLite, store.Postgres} {
		if o.database != "" && o.database != string(dialect) {
			continue
		}
		more, err := backlogOn(ctx, o, server, dialect)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// newEvery is how often a new session is terminated meanwhile.
const newEvery = 5 * time.Second

func backlogOn(ctx context.Context, o options, server *devserver.Server, dialect store.Dialect) ([]row, error) {
	say("a backlog of %d on %s", o.backlog, dialect)
	p, err := newPlant(ctx, o, server, dialect)
	if err != nil {
		return nil, err
	}
	defer p.close()
	at := "'2026-01-02 03:04:05+00:00'"
	if err := execute(ctx, p.url, dialect, "INSERT INTO sessions (id, host, terminated_at, created_at, updated_at) "+
		"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < "+strconv.Itoa(o.backlog)+") "+
		"SELECT 'backlog-"+p.name+"-' || n, 'bench', "+at+", "+at+", "+at+" FROM numbers"); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	if err := p.listens(ctx); err != nil {
		return nil, err
	}
	most := make(chan int, 1)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go func() { most <- p.worker.mostMemory(watching) }()
	var took []time.Duration
	for {
		done, err := p.newOne(ctx, len(took))
		if err != nil {
			return nil, err
		}
		took = append(took, done)
		left := 0
		if err := p.sql.GetContext(ctx, &left, `SELECT COUNT(*) FROM sessions s WHERE NOT EXISTS (SELECT 1 FROM finalizations f
			WHERE f.holder_kind = 'session' AND f.holder_id = s.id AND f.finished_at IS NOT NULL)`); err != nil {
			return nil, err
		}
		if left == 0 {
			break
		}
		say("%s: %d left after %s; the new one took %s", p.name, left, time.Since(began).Round(time.Second), done.Round(time.Millisecond))
		time.Sleep(newEvery)
	}
	all := time.Since(began)
	stop()
	fastest, err := p.mostStarted(ctx)
	if err != nil {
		return nil, err
	}
	longest, err := p.longestHistory(ctx, o.backlog)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("backlog of %d sessions at boot (%s): ", o.backlog, p.name)
	return []row{
		{what + "until all are finished", all.Round(time.Second).String(), "", ""},
		{what + "most begun within one second", strconv.Itoa(fastest), "", ""},
		{what + fmt.Sprintf("p50 from terminate to finished of %d new ones meanwhile", len(took)), milliseconds(percentile(took, 50)), "", ""},
		{what + "p99 of these", milliseconds(percentile(took, 99)), "", ""},
		{what + "memory of the worker", fmt.Sprintf("%d MiB", <-most), "", ""},
		{what + "longest history of a hundred", strconv.Itoa(longest) + " events", "", ""},
	}, nil
}

// listens waits until the worker hears of what is terminated: what was before it is
// part of the backlog.
func (p *plant) listens(ctx context.Context) error {
	for limit := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		hosts, err := p.store.Hosts(ctx)
		if err != nil {
			return err
		}
		if len(hosts) > 0 {
			time.Sleep(3 * time.Second) // a connection of its own is made beside the pass
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("the worker does not come up")
		}
	}
}

// newOne terminates a session, and waits until it is finished.
func (p *plant) newOne(ctx context.Context, n int) (time.Duration, error) {
	id := fmt.Sprintf("z-new-%s-%d", p.name, n)
	if err := p.add(ctx, id); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := p.terminate(ctx, id); err != nil {
		return 0, err
	}
	for {
		result, err := p.store.Result(ctx, id, 1)
		if err != nil {
			return 0, err
		}
		if result.FinishedAt != nil {
			return time.Since(began), nil
		}
		if time.Since(began) > 10*time.Minute {
			return 0, fmt.Errorf("session %s is starved", id)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// mostStarted counts the finalizations that began within one second, the most.
func (p *plant) mostStarted(ctx context.Context) (most int, err error) {
	var at []string
	column := "CAST(started_at AS TEXT)"
	if err := p.sql.SelectContext(ctx, &at, "SELECT "+column+" FROM finalizations"); err != nil {
		return 0, err
	}
	seconds := map[string]int{}
	for _, text := range at {
		second, _, _ := strings.Cut(text, ".")
		seconds[second]++
		most = max(most, seconds[second])
	}
	return most, nil
}

func (p *plant) longestHistory(ctx context.Context, of int) (longest int, err error) {
	for n := 1; n <= of; n += max(1, of/100) {
		run, err := p.client.DescribeWorkflow(ctx, teardown.FinalizeSessionID(fmt.Sprintf("backlog-%s-%d", p.name, n)), "")
		if err != nil {
			return 0, err
		}
		longest = max(longest, int(run.RawResponse.GetWorkflowExecutionInfo().GetHistoryLength()))
	}
	return longest, nil
}
