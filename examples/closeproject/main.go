// Closeproject is a parent workflow of somebody else's: it ends all sessions of
// a project and has what they held released by unwind, as its children. Worker
// and starter are one program here. workflow.go is what is worth reading.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"unwind/teardown"
)

const usage = `Ends the sessions of a project and has what they held released by unwind.

usage: closeproject [flags] SESSION…

It starts workflow close-project-PROJECT, serves it, and prints what became of
each session. The same project again waits for the run that is there. Ctrl-C
cancels the workflow; what is being released already is released nonetheless.

Temporal is found by TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE and the other variables
of Temporal's own tools. Exit codes: 0 all is released, 3 something was kept, 1
failed, 2 usage.

flags:
`

type options struct {
	project, queue, unwindQueue, database string
	sessions                              []string
}

func main() {
	var o options
	flags := flag.NewFlagSet("closeproject", flag.ExitOnError)
	flags.StringVar(&o.project, "project", "example", "name of the project")
	flags.StringVar(&o.queue, "queue", "close-project", "task queue of this program's own workflow")
	flags.StringVar(&o.unwindQueue, "unwind-queue", cmp.Or(os.Getenv("UNWIND_TASK_QUEUE"), teardown.DefaultTaskQueue),
		"workflow queue of the unwind installation (UNWIND_TASK_QUEUE)")
	flags.StringVar(&o.database, "database", os.Getenv("UNWIND_DATABASE_URL"),
		"unwind's database, as unwind doctor shows it (UNWIND_DATABASE_URL)")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	_ = flags.Parse(os.Args[1:]) // it exits
	o.sessions = flags.Args()
	if len(o.sessions) == 0 || o.database == "" {
		fmt.Fprintln(os.Stderr, "closeproject: name the sessions, and unwind's database by -database or UNWIND_DATABASE_URL; see -help")
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	closed, err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "closeproject:", err)
		os.Exit(1)
	}
	os.Exit(report(closed))
}

func run(ctx context.Context, o options) ([]ClosedSession, error) {
	facts, err := OpenFacts(ctx, o.database)
	if err != nil {
		return nil, err
	}
	defer facts.Close()
	connection, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return nil, err
	}
	connection.Logger = log.NewStructuredLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	temporal, err := client.DialContext(ctx, connection)
	if err != nil {
		return nil, err
	}
	defer temporal.Close()

	w := worker.New(temporal, o.queue, worker.Options{})
	w.RegisterWorkflow(CloseProject)
	w.RegisterActivity(facts)
	if err := w.Start(); err != nil {
		return nil, err
	}
	defer w.Stop()

	started, err := temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "close-project-" + o.project, TaskQueue: o.queue},
		CloseProject, CloseProjectInput{Sessions: o.sessions, UnwindQueue: o.unwindQueue})
	if err != nil {
		return nil, err
	}
	var closed []ClosedSession
	err = started.Get(ctx, &closed)
	if ctx.Err() != nil {
		return nil, cancel(temporal, started)
	}
	return closed, err
}

// cancel cancels the workflow and sees it end, which needs this program's worker.
func cancel(temporal client.Client, started client.WorkflowRun) error {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	if err := temporal.CancelWorkflow(ctx, started.GetID(), started.GetRunID()); err != nil {
		return err
	}
	_ = started.Get(ctx, nil) // that it was cancelled
	return errors.New("cancelled; what is being released already is released nonetheless, see `unwind list`")
}

// report prints what became of the sessions and answers the exit code.
func report(closed []ClosedSession) (code int) {
	for _, session := range closed {
		if session.Error != nil {
			fmt.Printf("%s: %s: %s\n", session.SessionID, cmp.Or(session.Error.Code, "failed"), session.Error.Message)
			code = 1
			continue
		}
		fmt.Printf("%s: %s\n", session.SessionID, session.Outcome)
		if session.Outcome != teardown.OutcomeFinalized {
			code = cmp.Or(code, 3)
		}
		for _, worktree := range session.Kept {
			fmt.Printf("  %s: %s %v\n", worktree.Path, worktree.Code, worktree.Details)
		}
	}
	return code
}
