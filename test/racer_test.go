package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"unwind/activities"
	"unwind/internal/config"
	"unwind/internal/resource"
	"unwind/internal/runtime/kinds"
	"unwind/internal/store"
	"unwind/internal/worktree"
	"unwind/teardown"
	"unwind/workflows"
)

// isRacer, in the environment, makes this program a racer.
const isRacer = "UNWIND_TEST_RACER"

// racer is a process that does errands with what a worker has: the installation's
// database, its locks, git, the process table. It is this program again, under
// the race detector if this one is, and stays for many errands: what is raced is
// the work, not the start of processes.
type racer struct {
	t    *testing.T
	cmd  *exec.Cmd
	asks *json.Encoder
	told chan report
	log  *syncBuffer
}

// errand is one thing to do: first wait, then each that is asked for, in this
// order.
type errand struct {
	After     time.Duration                 `json:"after"`
	Terminate string                        `json:"terminate,omitempty"`
	Archive   string                        `json:"archive,omitempty"`
	Workflow  string                        `json:"workflow,omitempty"`
	Input     any                           `json:"input,omitempty"`
	Restore   *teardown.RestoreSessionInput `json:"restore,omitempty"`
}

// report is what came of an errand.
type report struct {
	Result json.RawMessage `json:"result,omitempty"`
	Code   teardown.Code   `json:"code,omitempty"`
	Error  string          `json:"error,omitempty"`
}

func (i *installation) racer() *racer {
	i.t.Helper()
	program, err := os.Executable()
	require.NoError(i.t, err)
	r := &racer{t: i.t, cmd: exec.Command(program), told: make(chan report), log: &syncBuffer{}}
	r.cmd.Env = i.environment(isRacer + "=1")
	r.cmd.Dir = "/"
	r.cmd.Stderr = r.log
	in, err := r.cmd.StdinPipe()
	require.NoError(i.t, err)
	out, err := r.cmd.StdoutPipe()
	require.NoError(i.t, err)
	require.NoError(i.t, r.cmd.Start())
	r.asks = json.NewEncoder(in)
	go func() {
		defer close(r.told)
		for answers := json.NewDecoder(out); ; {
			var answer report
			if answers.Decode(&answer) != nil {
				return
			}
			r.told <- answer
		}
	}()
	i.t.Cleanup(func() {
		_ = in.Close() // ends it
		for range r.told {
		}
		err := r.cmd.Wait()
		require.NoError(i.t, err, "a racer ended with a race or an error:\n%s", r.log)
	})
	return r
}

func (r *racer) ask(e errand) {
	r.t.Helper()
	require.NoError(r.t, r.asks.Encode(e), "%s", r.log)
}

// answer waits for the end of an errand: what does not come to an end is a
// deadlock.
func (r *racer) answer() report {
	r.t.Helper()
	select {
	case answer, alive := <-r.told:
		require.True(r.t, alive, "the racer has ended:\n%s", r.log)
		return answer
	case <-time.After(2 * patience):
		_ = r.cmd.Process.Signal(syscall.SIGQUIT)
		for range r.told {
		}
		r.t.Fatalf("a deadlock:\n%s", r.log)
		return report{}
	}
}

func (r *racer) do(e errand) report {
	r.t.Helper()
	r.ask(e)
	return r.answer()
}

// runRacer does errands until nobody can ask any more.
func runRacer() error {
	cfg, err := config.Load(os.Getenv)
	if err != nil {
		return err
	}
	facts, err := store.Open(context.Background(), cfg.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = facts.Close() }()
	engine := &worktree.Engine{Roots: cfg.Roots, Home: cfg.Home, Ignored: worktree.IgnoredPolicy(cfg.IgnoredFiles),
		Locks: cfg.Locks(), LockWait: cfg.LockWait}
	does := &doer{config: cfg, facts: &activities.Facts{Store: facts, Policy: cfg.Policy, SeenWithin: time.Minute},
		host: &activities.Host{Store: facts, Locks: cfg.Locks(), Worktrees: engine, Runtimes: kinds.All(),
			Resources:   resource.Cleaner{Roots: cfg.Roots, Home: cfg.Home, Protected: cfg.Protected()},
			SnapshotDir: cfg.Snapshots(), TmuxSocket: cfg.TmuxSocket(), LockWait: cfg.LockWait}}
	does.suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	errands := make(chan asked)
	go func() {
		for lines := json.NewDecoder(os.Stdin); ; {
			var a asked
			if lines.Decode(&a) != nil {
				os.Exit(0) // whatever is under way: nobody waits for it
			}
			errands <- a
		}
	}()
	for answers := json.NewEncoder(os.Stdout); ; {
		a := <-errands
		result, err := does.do(a.errand, a.Input)
		answer := report{Result: result}
		if err != nil {
			answer.Code, answer.Error = codeOf(err), err.Error()
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
}

// asked is an errand as a racer reads it.
type asked struct {
	errand
	Input json.RawMessage `json:"input"`
}

func codeOf(err error) teardown.Code {
	var application *sdk.ApplicationError
	if errors.As(err, &application) {
		return teardown.Code(application.Type())
	}
	return teardown.CodeOf(err)
}

type doer struct {
	suite  testsuite.WorkflowTestSuite
	config config.Config
	facts  *activities.Facts
	host   *activities.Host
}

func (d *doer) do(e errand, input json.RawMessage) (result json.RawMessage, err error) {
	time.Sleep(e.After)
	ctx := context.Background()
	if e.Terminate != "" {
		if _, _, err := d.facts.Store.Terminate(ctx, e.Terminate, "test"); err != nil {
			return nil, err
		}
	}
	if e.Archive != "" {
		if _, _, err := d.facts.Store.CloseTask(ctx, e.Archive, store.TaskArchived); err != nil {
			return nil, err
		}
	}
	if e.Workflow != "" {
		return d.run(e.Workflow, input)
	}
	if e.Restore != nil {
		return d.restore(*e.Restore)
	}
	return nil, nil
}

// run runs a workflow with the real activities, in this process.
func (d *doer) run(name string, input json.RawMessage) (result json.RawMessage, err error) {
	env := d.suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(patience)
	// On a machine that is very busy, a second passes without a turn.
	env.SetWorkerOptions(sdkworker.Options{DeadlockDetectionTimeout: patience})
	env.SetStartWorkflowOptions(teardown.StartOptions(d.config.TaskQueue, "racer"))
	env.RegisterWorkflowWithOptions(workflows.FinalizeSession, workflow.RegisterOptions{Name: teardown.FinalizeSessionWorkflow})
	env.RegisterWorkflowWithOptions(workflows.FinalizeTask, workflow.RegisterOptions{Name: teardown.FinalizeTaskWorkflow})
	env.RegisterWorkflowWithOptions(workflows.StartSession, workflow.RegisterOptions{Name: teardown.StartSessionWorkflow})
	env.RegisterActivity(d.facts)
	env.RegisterActivity(d.host)
	env.OnSignalExternalWorkflow(mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).
		Return(errors.New("no run waits")).Maybe()
	env.ExecuteWorkflow(name, input)
	if !env.IsWorkflowCompleted() {
		return nil, fmt.Errorf("%s has not come to its end", name)
	}
	if err := env.GetWorkflowError(); err != nil {
		return nil, err
	}
	return result, env.GetWorkflowResult(&result)
}

func (d *doer) restore(in teardown.RestoreSessionInput) (result json.RawMessage, err error) {
	env := d.suite.NewTestActivityEnvironment()
	env.RegisterActivity(d.host)
	value, err := env.ExecuteActivity(d.host.RestoreSession, in)
	if err != nil {
		return nil, err
	}
	var restored teardown.RestoreResult
	if err := value.Get(&restored); err != nil {
		return nil, err
	}
	return json.Marshal(restored)
}

// said reads a report's result.
func said[T any](t *testing.T, answer report) T {
	t.Helper()
	require.Empty(t, answer.Error)
	var result T
	require.NoError(t, json.NewDecoder(bytes.NewReader(answer.Result)).Decode(&result), "%s", answer.Result)
	return result
}
