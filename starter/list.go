package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"unwind/internal/store"
	"unwind/teardown"
)

type listOptions struct {
	*program
	State  string
	Host   string
	Task   string
	Reason string
}

var states = []string{
	string(store.StateLive), string(store.StateTerminated), string(store.StateParked), string(store.StateHeld), string(store.StateFinished),
}

var parkedReasons = []string{
	teardown.ReasonPreserved, teardown.ReasonRefused, teardown.ReasonRuntimeRefused,
	teardown.ReasonAttemptsExhausted, teardown.ReasonHostUnreachable, teardown.ReasonCancelled,
}

// parkedTaskReasons are those of a task: its sessions' runtimes are theirs.
var parkedTaskReasons = []string{
	teardown.ReasonPreserved, teardown.ReasonRefused, teardown.ReasonAttemptsExhausted, teardown.ReasonHostUnreachable,
	teardown.ReasonSessionPreserved, teardown.ReasonSessionFailed, teardown.ReasonSessionHeld, teardown.ReasonCancelled,
}

const reasonsHelp = `Reasons for which a session is parked:
  preserved           a worktree holds what a person could miss
  refused             a worktree is none that is ever removed, such as a main one
  runtime_refused     a runtime is not for certain the session's
  attempts_exhausted  a step failed as often as it may be tried, or the run was
                      cancelled after the removals had begun
  host_unreachable    no worker of its host takes work
  cancelled           the run was cancelled when no removal was under way`

func newListCommand(p *program) *cobra.Command {
	o := &listOptions{program: p}
	command := &cobra.Command{
		Use:   "list",
		Short: "List sessions",
		Long: `List sessions, from the database.

States: live; terminated, being finalized; parked, waits for a person or for its
host; held, kept from the finalizer; finished.

` + reasonsHelp + `

When piped, the columns are separated by tabs: id, state, reason, host,
generation, worktrees, worktrees kept, bytes kept, last change.`,
		Example: `  unwind list --state parked
  unwind list --task t1
  unwind list --state parked --reason preserved --json`,
		Args: noArgs,
		RunE: runs(o.run),
	}
	flags := command.Flags()
	flags.StringVar(&o.State, "state", "", "only sessions in this state: "+strings.Join(states, ", "))
	flags.StringVar(&o.Host, "host", "", "only sessions of this host")
	flags.StringVar(&o.Task, "task", "", "only sessions of this task")
	flags.StringVar(&o.Reason, "reason", "", "only sessions parked for this reason: "+strings.Join(parkedReasons, ", "))
	completeWords(command, "state", states)
	completeWords(command, "reason", parkedReasons)
	return command
}

func completeWords(command *cobra.Command, flag string, words []string) {
	err := command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // no such flag
	}
}

// oneOf checks the value of a flag that takes one of a few words.
func oneOf(flag, value string, words []string) error {
	if value == "" || slices.Contains(words, value) {
		return nil
	}
	return usageError("--%s %q is not known; use %s", flag, value, strings.Join(words, ", "))
}

// summaryReport is one session in a list with --json.
type summaryReport struct {
	SessionID     string             `json:"session_id"`
	Host          string             `json:"host"`
	TaskID        string             `json:"task_id"`
	State         store.SessionState `json:"state"`
	Generation    int64              `json:"generation"`
	Round         int64              `json:"round"`
	CreatedAt     time.Time          `json:"created_at"`
	UpdatedAt     time.Time          `json:"updated_at"`
	TerminatedAt  *time.Time         `json:"terminated_at"`
	HeldUntil     *time.Time         `json:"held_until"`
	HeldBy        string             `json:"held_by"`
	ParkedAt      *time.Time         `json:"parked_at"`
	ParkedReason  string             `json:"parked_reason"`
	Failure       teardown.Failure   `json:"failure"`
	NextAttemptAt *time.Time         `json:"next_attempt_at"`
	FinishedAt    *time.Time         `json:"finished_at"`
	Outcome       teardown.Outcome   `json:"outcome"`
	Runtimes      int                `json:"runtimes"`
	RuntimesLeft  int                `json:"runtimes_left"`
	Worktrees     int                `json:"worktrees"`
	WorktreesKept int                `json:"worktrees_kept"`
	BytesKept     int64              `json:"bytes_kept"`
}

func summaryOf(s store.Summary) summaryReport {
	return summaryReport{
		SessionID: s.ID, Host: s.Host, TaskID: s.TaskID, State: s.State, Generation: s.Generation, Round: s.Round,
		CreatedAt: s.CreatedAt, UpdatedAt: s.ChangedAt(), TerminatedAt: s.TerminatedAt, HeldUntil: s.HeldUntil, HeldBy: s.HeldBy,
		ParkedAt: s.ParkedAt, ParkedReason: s.ParkedReason, Failure: teardown.Failure{Code: s.FailureCode, Message: s.FailureMessage},
		NextAttemptAt: s.NextAttemptAt, FinishedAt: s.FinishedAt, Outcome: s.Outcome,
		Runtimes: s.Runtimes, RuntimesLeft: s.RuntimesLeft, Worktrees: s.Worktrees, WorktreesKept: s.WorktreesKept, BytesKept: s.BytesKept,
	}
}

func (o *listOptions) run(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	t := newTable(o.streams, "ID", "STATE", "REASON", "HOST", "GEN", "WORKTREES", "KEPT", "BYTES", "CHANGED")
	at, some := now(), false
	filter := store.SessionFilter{State: store.SessionState(o.State), Host: o.Host, Task: o.Task, Reason: o.Reason}
	err = f.eachSession(ctx, filter, func(s store.Summary) error {
		some = true
		if o.json {
			o.printJSON(summaryOf(s))
			return nil
		}
		o.add(t, s, at)
		return nil
	})
	if err != nil {
		return err
	}
	if some {
		t.print()
	} else if o.outTerminal && !o.json {
		o.note("No sessions. Register one with `%s session add -f FILE`.", name)
	}
	return nil
}

func (o *listOptions) check() error {
	if err := oneOf("state", o.State, states); err != nil {
		return err
	}
	if err := oneOf("reason", o.Reason, parkedReasons); err != nil {
		return err
	}
	for _, id := range []struct{ flag, value string }{{"host", o.Host}, {"task", o.Task}} {
		if id.value == "" {
			continue
		}
		if err := teardown.ValidateID(id.value); err != nil {
			return usageError("--%s: %v", id.flag, err)
		}
	}
	return nil
}

func (o *listOptions) add(t *table, s store.Summary, at time.Time) {
	state, as := string(s.State), plain
	changed, kept := s.ChangedAt().UTC().Format(time.RFC3339), fmt.Sprint(s.BytesKept)
	if o.outTerminal {
		state, as = stateWords(s.State, s.ParkedReason, s.WorktreesKept)
		changed, kept = ago(s.ChangedAt(), at), ""
		if s.BytesKept > 0 {
			kept = bytesText(s.BytesKept)
		}
	}
	t.add(cell{s.ID, bold}, cell{state, as}, cell{text: s.ParkedReason}, cell{text: s.Host}, cell{text: fmt.Sprint(s.Generation)},
		cell{text: itoa(s.Worktrees)}, cell{text: itoa(s.WorktreesKept)}, cell{text: kept}, cell{text: changed})
}

const pageSize = 200

// eachSession walks all sessions that the filter lets through, page by page.
func (f *facts) eachSession(ctx context.Context, filter store.SessionFilter, do func(store.Summary) error) error {
	filter.Limit = pageSize
	for {
		page, err := f.Sessions(ctx, filter)
		if err != nil {
			return err
		}
		for _, summary := range page {
			if err := do(summary); err != nil {
				return err
			}
		}
		if len(page) < pageSize {
			return nil
		}
		filter.After = page[len(page)-1].ID
	}
}

// completionLimit is what a person who pressed the tab key waits for.
const completionLimit = 2 * time.Second

// completeIDs offers the ids of sessions to the shell.
func (p *program) completeIDs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
	defer cancel()
	f, err := p.openFacts(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer f.close()
	var ids []string
	// What could be read so far is offered.
	_ = f.eachSession(ctx, store.SessionFilter{}, func(s store.Summary) error {
		words, _ := stateWords(s.State, s.ParkedReason, s.WorktreesKept)
		ids = append(ids, s.ID+"\t"+words)
		return nil
	})
	return ids, cobra.ShellCompDirectiveNoFileComp
}
