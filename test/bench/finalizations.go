package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"unwind/internal/store"
	"unwind/teardown"
	"unwind/test/devserver"
)

// installation is one worker on Temporal's development server and SQLite.
type installation struct {
	*scene
	options
	store  *store.Store
	client client.Client
	worker *exec.Cmd
	env    []string
}

func finalizations(ctx context.Context, o options) ([]row, error) {
	s, err := newScene(ctx, o.files)
	if err != nil {
		return nil, err
	}
	defer s.clear()
	server, err := devserver.Launch()
	if err != nil {
		return nil, err
	}
	defer server.Close()
	i := &installation{scene: s, options: o}
	i.env = append(slices.Clone(s.env), "TEMPORAL_ADDRESS="+server.Address, "UNWIND_STATE_DIR="+filepath.Join(s.dir, "state"),
		"UNWIND_DATABASE_URL=sqlite://"+filepath.Join(s.dir, "unwind.db"), "UNWIND_ROOTS="+s.dir, "UNWIND_LOG_LEVEL=warn")
	if i.store, err = store.Open(ctx, "sqlite://"+filepath.Join(s.dir, "unwind.db")); err != nil {
		return nil, err
	}
	defer func() { _ = i.store.Close() }()
	if i.client, err = client.Dial(client.Options{HostPort: server.Address}); err != nil {
		return nil, err
	}
	defer i.client.Close()
	if err := i.startWorker(ctx); err != nil {
		return nil, err
	}
	defer i.stopWorker()
	single, err := i.oneAtATime(ctx)
	if err != nil {
		return nil, err
	}
	many, err := i.allAtOnce(ctx)
	if err != nil {
		return nil, err
	}
	empty, err := i.emptyAtOnce(ctx)
	return slices.Concat(many, []row{empty}, single), err
}

func (i *installation) startWorker(ctx context.Context) error {
	i.worker = exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(i.programs, "unwind-worker"))
	i.worker.Env, i.worker.Dir, i.worker.Stderr = i.env, i.dir, os.Stderr
	if err := i.worker.Start(); err != nil {
		return err
	}
	// The first session warms everything up.
	if err := i.register(ctx, "warm"); err != nil {
		return err
	}
	if err := i.terminate(ctx, "warm"); err != nil {
		return err
	}
	return i.await(ctx, "warm")
}

func (i *installation) stopWorker() {
	_ = i.worker.Process.Signal(syscall.SIGTERM)
	_ = i.worker.Wait()
}

// register makes a session and registers it.
func (i *installation) register(ctx context.Context, name string) error {
	if err := i.session(ctx, name); err != nil {
		return err
	}
	manifest, err := i.manifest(name)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(i.programs, "unwind"), "session", "add", "-f", "-")
	cmd.Env, cmd.Dir, cmd.Stdin = i.env, i.dir, bytes.NewReader(manifest)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("session add: %w: %s", err, output)
	}
	return nil
}

func (i *installation) terminate(ctx context.Context, name string) error {
	if _, _, err := i.store.Terminate(ctx, name, "bench"); err != nil {
		return err
	}
	_, err := teardown.Start(ctx, i.client, "", teardown.FinalizeSessionInput{SessionID: name})
	return err
}

func (i *installation) await(ctx context.Context, name string) error {
	var result teardown.Result
	if err := i.client.GetWorkflow(ctx, teardown.FinalizeSessionID(name), "").Get(ctx, &result); err != nil {
		return err
	}
	if result.Outcome != teardown.OutcomeFinalized {
		return fmt.Errorf("session %s ended as %s: %s", name, result.Outcome, result.Failure.Message)
	}
	if _, err := os.Lstat(i.worktree(name)); err == nil {
		return fmt.Errorf("session %s is finalized, but its worktree is there", name)
	}
	return nil
}

// oneAtATime alternates unwind and the loop, so that both meet the same machine.
func (i *installation) oneAtATime(ctx context.Context) ([]row, error) {
	say("%d sessions one at a time, each beside a turn of the loop", i.singles)
	var unwind, baseline []time.Duration
	for n := range i.singles {
		a, b := fmt.Sprintf("single-%03d", n), fmt.Sprintf("plain-%03d", n)
		if err := i.register(ctx, a); err != nil {
			return nil, err
		}
		if err := i.session(ctx, b); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := i.terminate(ctx, a); err != nil {
			return nil, err
		}
		if err := i.await(ctx, a); err != nil {
			return nil, err
		}
		unwind = append(unwind, time.Since(began))
		began = time.Now()
		if err := i.shellLoop(ctx, b); err != nil {
			return nil, err
		}
		baseline = append(baseline, time.Since(began))
	}
	events, dispatched, err := i.history(ctx, "single-000")
	if err != nil {
		return nil, err
	}
	rest, err := i.memory()
	rows := []row{}
	for _, p := range []int{50, 99} {
		u, b := percentile(unwind, p), percentile(baseline, p)
		rows = append(rows, row{fmt.Sprintf("p%d from terminate to finished, one at a time", p),
			milliseconds(u), milliseconds(b), fmt.Sprintf("%+d ms", (u - b).Milliseconds())})
	}
	return append(rows,
		row{"history events of a finalization", strconv.Itoa(events), "", ""},
		row{"dispatched activity tasks of a finalization", strconv.Itoa(dispatched), "", ""},
		row{"memory of the worker at rest", fmt.Sprintf("%d MiB", rest), "", ""}), err
}

func (i *installation) allAtOnce(ctx context.Context) ([]row, error) {
	say("%d sessions at once, then as many in the loop", i.sessions)
	var ours, theirs []string
	for n := range i.sessions {
		ours = append(ours, fmt.Sprintf("many-%03d", n))
		theirs = append(theirs, fmt.Sprintf("loop-%03d", n))
		if err := i.register(ctx, ours[n]); err != nil {
			return nil, err
		}
		if err := i.session(ctx, theirs[n]); err != nil {
			return nil, err
		}
	}
	most := make(chan int, 1)
	watching, stop := context.WithCancel(ctx)
	go func() { most <- i.mostMemory(watching) }()
	took, err := i.finalizeAll(ctx, ours)
	stop()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := i.shellLoop(ctx, theirs...); err != nil {
		return nil, err
	}
	plain := time.Since(began)
	u, b := perSecond(i.sessions, took), perSecond(i.sessions, plain)
	return []row{
		{fmt.Sprintf("finalizations per second, %d at once", i.sessions), fmt.Sprintf("%.1f", u), fmt.Sprintf("%.1f", b), times(u, b)},
		{"memory of the worker meanwhile", fmt.Sprintf("%d MiB", <-most), "", ""},
	}, nil
}

// finalizeAll terminates all sessions at once and answers when all are finalized.
func (i *installation) finalizeAll(ctx context.Context, names []string) (time.Duration, error) {
	began := time.Now()
	for _, name := range names {
		if err := i.terminate(ctx, name); err != nil {
			return 0, err
		}
	}
	for _, name := range names {
		if err := i.await(ctx, name); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// emptyAtOnce measures what remains of a finalization when there is nothing to
// release: the store's and Temporal's share of it.
func (i *installation) emptyAtOnce(ctx context.Context) (row, error) {
	say("%d sessions at once that hold nothing", i.sessions)
	var names []string
	for n := range i.sessions {
		names = append(names, fmt.Sprintf("empty-%03d", n))
		if _, err := i.store.AddSession(ctx, store.NewSession{ID: names[n], Host: "bench", ManifestHash: names[n]}); err != nil {
			return row{}, err
		}
	}
	took, err := i.finalizeAll(ctx, names)
	return row{fmt.Sprintf("the same of sessions that hold nothing, %d at once", i.sessions), fmt.Sprintf("%.1f", perSecond(i.sessions, took)), "", ""}, err
}

func (i *installation) history(ctx context.Context, name string) (events, dispatched int, err error) {
	history := i.client.GetWorkflowHistory(ctx, teardown.FinalizeSessionID(name), "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		if err != nil {
			return 0, 0, err
		}
		events++
		if event.GetEventType() == enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED {
			dispatched++
		}
	}
	return events, dispatched, nil
}

// memory is the worker's resident set, in MiB.
func (i *installation) memory() (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", i.worker.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmRSS:" {
			kilobytes, err := strconv.Atoi(fields[1])
			return kilobytes / 1024, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmRSS", i.worker.Process.Pid)
}

func (i *installation) mostMemory(ctx context.Context) (most int) {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return most
		case <-ticker.C:
			if now, err := i.memory(); err == nil {
				most = max(most, now)
			}
		}
	}
}

func percentile(measured []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(measured))
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
