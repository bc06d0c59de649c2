package main

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"unwind/internal/store"
	"unwind/teardown"
)

type taskShowOptions struct {
	*program
	ID string
}

func newTaskShowCommand(p *program) *cobra.Command {
	o := &taskShowOptions{program: p}
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show a task: its sessions, its worktrees, and what was kept and why",
		Long: `Show a task, from the database: its sessions, the worktrees that it holds or held,
and what became of them. States: active; archiving, deleting, its release is under
way; parked, that waits for a person, a host or a session; archived; deleted.`,
		Example: `  unwind task show t1
  unwind task show t1 --json`,
		Args:              takesTaskID(&o.ID),
		ValidArgsFunction: p.completeTaskIDs,
		RunE:              runs(o.run),
	}
}

// taskReport is what task show prints with --json.
type taskReport struct {
	TaskID       string                   `json:"task_id"`
	Generation   int64                    `json:"generation"`
	State        store.TaskState          `json:"state"`
	CreatedAt    time.Time                `json:"created_at"`
	UpdatedAt    time.Time                `json:"updated_at"`
	TerminatedAt *time.Time               `json:"terminated_at"`
	Sessions     []teardown.SessionResult `json:"sessions"`
	SessionsLive int                      `json:"sessions_live"`
	// Worktrees are those of the task's generation.
	Worktrees    []taskWorktree   `json:"worktrees"`
	Round        int64            `json:"round"`
	ParkedAt     *time.Time       `json:"parked_at"`
	ParkedReason string           `json:"parked_reason"`
	Failure      teardown.Failure `json:"failure"`
	FinishedAt   *time.Time       `json:"finished_at"`
	Outcome      teardown.Outcome `json:"outcome"`
}

// taskWorktree is one worktree that a task holds or held.
type taskWorktree struct {
	ID          string               `json:"id"`
	Host        string               `json:"host"`
	Repository  string               `json:"repository"`
	Path        string               `json:"path"`
	Branch      string               `json:"branch"`
	State       string               `json:"state"`
	Held        bool                 `json:"held"`
	Disposition teardown.Disposition `json:"disposition"`
	Code        teardown.Code        `json:"code"`
	Details     []string             `json:"details"`
	SavedRef    string               `json:"saved_ref"`
}

func (o *taskShowOptions) run(ctx context.Context) error {
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	detail, err := f.TaskDetail(ctx, o.ID)
	if err != nil {
		return err
	}
	report := taskReportOf(detail)
	if o.json {
		o.printJSON(report)
		return nil
	}
	o.print(report)
	return nil
}

func taskReportOf(detail store.TaskDetail) taskReport {
	task, f := detail.Task, detail.Finalization()
	report := taskReport{TaskID: task.ID, Generation: task.Generation, State: detail.State, CreatedAt: task.CreatedAt, UpdatedAt: task.UpdatedAt,
		TerminatedAt: task.TerminatedAt, Sessions: detail.Sessions, SessionsLive: detail.SessionsLive, Round: f.Round, ParkedAt: f.ParkedAt,
		ParkedReason: f.ParkedReason, Failure: teardown.Failure{Code: f.FailureCode, Message: f.FailureMessage}, FinishedAt: f.FinishedAt, Outcome: f.Outcome}
	if report.Sessions == nil {
		report.Sessions = []teardown.SessionResult{}
	}
	report.Worktrees = []taskWorktree{}
	for _, wt := range detail.Worktrees {
		if wt.Lease.Generation != task.Generation {
			continue
		}
		report.Worktrees = append(report.Worktrees, taskWorktree{ID: wt.Worktree.ID, Host: wt.Worktree.Host, Repository: wt.Worktree.Repository,
			Path: wt.Worktree.Path, Branch: wt.Worktree.Branch, State: wt.Worktree.State, Held: wt.Lease.ReleasedAt == nil,
			Disposition: wt.Lease.Disposition, Code: wt.Lease.Code, Details: wt.Lease.Details.V, SavedRef: wt.Lease.SavedRef})
	}
	return report
}

func (o *taskShowOptions) print(r taskReport) {
	o.say("Task %s  %s, generation %d", r.TaskID, o.styled(string(r.State), taskStyle(r.State)), r.Generation)
	if r.ParkedReason != "" {
		o.say("  waits (%s): %s", r.ParkedReason, sentence(r.Failure.Message))
		o.say("  %s", whatNextForTask(r.TaskID, r.ParkedReason))
	}
	for _, s := range r.Sessions {
		o.say("  session %s: %s%s", s.SessionID, cmp.Or(string(s.Outcome), "live or under way"), because(s.Failure.Code))
	}
	for _, wt := range r.Worktrees {
		became := o.styled(string(wt.Disposition), dispositionStyle(wt.Disposition)) + because(wt.Code)
		if wt.Held {
			became = "held"
		}
		o.say("  worktree %s (branch %s): %s", shown(wt.Path), shown(cmp.Or(wt.Branch, "none")), became)
		o.sayDetails(wt.Details)
		if wt.SavedRef != "" {
			o.say("    uncommitted work saved; `%s recover %s --repository %s` brings it back", name, shown(wt.SavedRef), shown(wt.Repository))
		}
	}
}

func taskStyle(state store.TaskState) style {
	switch state {
	case store.TaskStateActive:
		return green
	case store.TaskStateParked:
		return yellow
	case store.TaskStateArchived, store.TaskStateDeleted:
		return faint
	}
	return plain
}
