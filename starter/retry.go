package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"

	"unwind/internal/store"
	"unwind/internal/temporalclient"
	"unwind/teardown"
)

type retryOptions struct {
	*program
	ID                   string
	All                  bool
	Reason               string
	Host                 string
	Wait                 bool
	RuntimeConfirmedGone bool
	SaveChanges          bool
}

func newRetryCommand(p *program) *cobra.Command {
	o := &retryOptions{program: p}
	command := &cobra.Command{
		Use:   "retry ID | --all",
		Short: "Look again at what was kept or failed, and release it",
		Long: `Begin one more round of a session's finalization: everything that is not yet
released is looked at again, at once, with all attempts anew.

The retry is recorded first. If Temporal does not answer, the round begins when it
is back; for a session that is held, when the hold ends or is lifted. --all takes
all sessions and tasks that are parked; a task has no host, so that --host leaves
tasks out.

` + reasonsHelp + `

` + taskReasonsHelp + `

--save-changes commits what is uncommitted (untracked files and the index included)
to a ref below refs/unwind/saved/, compares it, and then removes the worktree; it
holds for all later rounds, too. What a commit cannot hold, such as ignored files
that are not regenerable and nested repositories, still keeps the worktree.
"unwind recover" brings the work back.

--runtime-confirmed-gone says that you looked yourself and the runtime is gone. It
replaces the look only, is recorded with your name, and processes that outlived
the runtime are searched for all the same.`,
		Example: `  unwind retry s1 --wait
  unwind retry s1 --save-changes --wait
  unwind retry --all --reason preserved
  unwind retry s1 --runtime-confirmed-gone`,
		Args:              o.args,
		ValidArgsFunction: p.completeIDs,
		RunE:              runs(o.run),
	}
	flags := command.Flags()
	flags.BoolVar(&o.All, "all", false, "all sessions and tasks that are parked")
	flags.StringVar(&o.Reason, "reason", "", "with --all: only those parked for this reason: "+strings.Join(retriedReasons(), ", "))
	flags.StringVar(&o.Host, "host", "", "with --all: only those of this host")
	flags.BoolVar(&o.Wait, "wait", false, "wait until all is released or a person has to decide")
	flags.BoolVar(&o.SaveChanges, "save-changes", false, "save uncommitted work to a ref, then remove")
	flags.BoolVar(&o.RuntimeConfirmedGone, "runtime-confirmed-gone", false, "you have seen that the runtime is gone")
	completeWords(command, "reason", retriedReasons())
	return command
}

// retriedReasons are those of sessions and of tasks.
func retriedReasons() []string {
	all := slices.Clone(parkedReasons)
	for _, reason := range parkedTaskReasons {
		if !slices.Contains(all, reason) {
			all = append(all, reason)
		}
	}
	return all
}

func (o *retryOptions) args(cmd *cobra.Command, args []string) error {
	switch {
	case o.All && len(args) > 0:
		return usageError("give the id of a session or --all, not both")
	case o.All:
		return nil
	case len(args) == 0:
		return usageError("name the session to retry, or give --all; see `%s list --state parked`", name)
	case o.Reason != "" || o.Host != "":
		return usageError("--reason and --host go with --all")
	}
	return takesID(&o.ID)(cmd, args)
}

// retried is what retry prints for each session with --json, unless it waits.
type retried struct {
	SessionID string `json:"session_id"`
	Round     int64  `json:"round"`
	// Recorded is false if there was nothing to retry.
	Recorded bool `json:"recorded"`
	// Signalled: the finalization's run was told.
	Signalled bool         `json:"signalled"`
	RequestID string       `json:"request_id"`
	Message   string       `json:"message"`
	Error     *errorObject `json:"error,omitempty"`

	generation int64
}

func (o *retryOptions) run(ctx context.Context) error {
	if err := oneOf("reason", o.Reason, retriedReasons()); err != nil {
		return err
	}
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	r := &retrying{retryOptions: o, facts: f}
	defer func() { r.server.Close() }()
	if !o.All {
		done, err := r.retry(ctx, o.ID)
		if err != nil {
			return err
		}
		return asVerdict(r.settle(ctx, done))
	}
	return r.all(ctx)
}

// retrying is one call of the command; Temporal is dialled when it is first
// needed.
type retrying struct {
	*retryOptions
	facts   *facts
	server  temporal
	dialled bool
}

func (r *retrying) temporal(ctx context.Context) temporal {
	if !r.dialled {
		r.server, r.dialled = r.dial(ctx), true
	}
	return r.server
}

// all retries everything that is parked, sessions before tasks: a task waits for
// its sessions. One that cannot be retried stops no other.
func (r *retrying) all(ctx context.Context) error {
	sessions, tasks, err := r.parked(ctx)
	if err != nil {
		return err
	}
	if len(sessions)+len(tasks) == 0 {
		r.say("Nothing is parked; nothing to retry.")
		return nil
	}
	codes := []exitCode{exitDone}
	var recorded []retried
	for _, id := range sessions {
		done, err := r.retry(ctx, id)
		if err != nil {
			object := errorObjectOf(err)
			done = retried{SessionID: id, Error: &object, Message: "Session " + id + ": " + object.Message}
			codes = append(codes, exitOf(err))
			r.print(done)
			continue
		}
		recorded = append(recorded, done)
	}
	var recordedTasks []retriedTask
	for _, id := range tasks {
		done, err := r.retryTask(ctx, id)
		if err != nil {
			object := errorObjectOf(err)
			done = retriedTask{TaskID: id, Error: &object, Message: "Task " + id + ": " + object.Message}
			codes = append(codes, exitOf(err))
			r.printTask(done)
			continue
		}
		recordedTasks = append(recordedTasks, done)
	}
	// All are told before the first is waited for.
	for _, done := range recorded {
		codes = append(codes, r.settle(ctx, done))
	}
	for _, done := range recordedTasks {
		codes = append(codes, r.settleTask(ctx, done))
	}
	return asVerdict(worst(codes...))
}

// parked lists what is to be retried.
func (r *retrying) parked(ctx context.Context) (sessions, tasks []string, err error) {
	filter := store.SessionFilter{State: store.StateParked, Host: r.Host, Reason: r.Reason}
	err = r.facts.eachSession(ctx, filter, func(s store.Summary) error {
		sessions = append(sessions, s.ID)
		return nil
	})
	if err != nil || r.Host != "" {
		return sessions, nil, err
	}
	err = r.facts.eachTask(ctx, func(task store.TaskSummary) {
		if task.Status == store.TaskStateParked && (r.Reason == "" || r.Reason == task.ParkedReason) {
			tasks = append(tasks, task.ID)
		}
	})
	return sessions, tasks, err
}

func (r *retrying) retry(ctx context.Context, id string) (retried, error) {
	seen, err := r.facts.look(ctx, id)
	if err != nil {
		return retried{}, err
	}
	done := retried{SessionID: id, generation: seen.Session.Generation}
	if seen.state == store.StateFinished {
		done.Message = "Session " + id + " is already finalized; nothing to retry."
		return done, nil
	}
	by := r.whoAmI()
	done.Round, done.Recorded, err = r.facts.Retry(ctx, id, store.RetryOptions{
		SaveChanges: r.SaveChanges, IfParked: r.All, Reason: r.Reason, By: by, RuntimeConfirmedGone: r.RuntimeConfirmedGone})
	if err != nil {
		return retried{}, err
	}
	if !done.Recorded {
		done.Message = "Session " + id + " is no longer parked; nothing to retry."
		return done, nil
	}
	done.RequestID = uuid.NewString()
	err = r.signal(ctx, done, by)
	done.Signalled = err == nil
	switch {
	case seen.state == store.StateHeld:
		done.Message = fmt.Sprintf("The retry of session %s is recorded (round %d). %s It begins when the hold ends or is lifted with `%s hold %s --release`.",
			id, done.Round, heldText(seen.Session), name, id)
	case err != nil:
		done.Message = fmt.Sprintf("The retry of session %s is recorded (round %d) and will begin when Temporal is back: %s.",
			id, done.Round, brief(err))
	default:
		done.Message = fmt.Sprintf("Session %s is being looked at again (round %d).", id, done.Round)
	}
	return done, nil
}

func (r *retrying) signal(ctx context.Context, done retried, by string) error {
	server := r.temporal(ctx)
	if server.away != nil {
		return server.away
	}
	_, err := teardown.SignalRetry(ctx, server.Client, r.facts.config.TaskQueue, done.SessionID, teardown.RetryRequest{
		RequestID: done.RequestID, RequestedBy: by, Round: done.Round, SaveChanges: r.SaveChanges, RuntimeConfirmedGone: r.RuntimeConfirmedGone})
	if err != nil {
		return server.Explain(err)
	}
	skipBackoff(ctx, server, done.SessionID)
	return nil
}

// skipBackoff has the steps that wait for their next attempt tried now. It is a
// courtesy: a server that does not know how, or does not answer, only makes the
// retry take effect later.
func skipBackoff(ctx context.Context, server temporal, sessionID string) {
	ctx, cancel := context.WithTimeout(ctx, liveLimit)
	defer cancel()
	workflowID := teardown.FinalizeSessionID(sessionID)
	described, err := server.Client.DescribeWorkflow(ctx, workflowID, "")
	if err != nil {
		return
	}
	for _, activity := range described.RawResponse.GetPendingActivities() {
		step := stepOf(activity)
		if step.State != stepWaiting || step.NextAttemptAt == nil || step.NextAttemptAt.Before(now().Add(100*time.Millisecond)) {
			continue
		}
		_, _ = server.Client.WorkflowService().ResetActivity(ctx, &workflowservice.ResetActivityRequest{
			Namespace: server.Namespace,
			Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID},
			Identity:  temporalclient.Identity(name),
			Activity:  &workflowservice.ResetActivityRequest_Id{Id: step.activityID},
		})
	}
}

// settle prints what became of a retry, after waiting for it if asked to.
func (r *retrying) settle(ctx context.Context, done retried) exitCode {
	if !r.Wait || !done.Recorded {
		r.print(done)
		return exitDone
	}
	if !done.Signalled {
		r.print(done)
		return exitRetryable
	}
	waiting := awaiting{program: r.program, facts: r.facts, server: r.server, id: done.SessionID,
		generation: done.generation, request: done.RequestID, round: done.Round}
	code, err := waiting.waitFor(ctx)
	var said verdict
	if err != nil && !errors.As(err, &said) {
		r.note("%s: %s: %s", name, done.SessionID, sentence(err.Error()))
	}
	return code
}

func (r *retrying) print(done retried) {
	switch {
	case r.json:
		r.printJSON(done)
	case done.Error != nil:
		r.note("%s: %s", name, done.Message)
	default:
		r.say("%s", done.Message)
	}
}
