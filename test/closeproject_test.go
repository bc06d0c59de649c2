package test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	temporalsdk "go.temporal.io/sdk/temporal"

	"unwind/teardown"
)

// closeProject is a run of the example program.
type closeProject struct {
	*exec.Cmd
	project     string
	out, errors bytes.Buffer
}

func (i *installation) closeProject(agents ...*agent) *closeProject {
	i.t.Helper()
	p := &closeProject{project: i.queue}
	program := filepath.Join(i.dir, "closeproject")
	output, err := exec.Command("go", "build", "-o", program, "unwind/examples/closeproject").CombinedOutput()
	require.NoError(i.t, err, string(output))
	p.Cmd = exec.Command(program, "-project", p.project, "-queue", "close-"+i.queue)
	for _, a := range agents {
		p.Args = append(p.Args, a.id)
	}
	p.Env = i.environment()
	p.Stdout, p.Stderr = &p.out, &p.errors
	require.NoError(i.t, p.Start())
	i.t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}

// run is the program's workflow.
func (p *closeProject) run(ctx context.Context, c client.Client) client.WorkflowRun {
	return c.GetWorkflow(ctx, "close-project-"+p.project, "")
}

// closedSession is an element of the workflow's result.
type closedSession struct {
	SessionID string                    `json:"session_id"`
	Outcome   teardown.Outcome          `json:"outcome"`
	Kept      []teardown.WorktreeResult `json:"kept"`
	Error     *teardown.Failure         `json:"error"`
}

func TestCloseProject(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.env = []string{"UNWIND_RECONCILE_INTERVAL=1h"}
	i.worker()
	first, dirty, last := i.agent("first"), i.agent("dirty"), i.agent("last")
	draft := filepath.Join(dirty.nested, "draft.md")
	write(t, draft, "mine\n")
	for _, a := range []*agent{first, dirty, last} {
		i.add(a)
	}
	program := i.closeProject(first, dirty, last)
	var exit *exec.ExitError
	require.ErrorAs(t, program.Wait(), &exit, program.errors.String())
	require.Equal(t, 3, exit.ExitCode(), program.errors.String())

	var closed []closedSession
	require.NoError(t, program.run(t.Context(), i.client).Get(t.Context(), &closed))
	require.Len(t, closed, 3)
	require.Equal(t, closedSession{SessionID: first.id, Outcome: teardown.OutcomeFinalized}, closed[0])
	require.Equal(t, dirty.id, closed[1].SessionID)
	require.Equal(t, teardown.OutcomePreserved, closed[1].Outcome)
	require.Nil(t, closed[1].Error)
	require.Len(t, closed[1].Kept, 2, "the worktree with the draft and the one around it")
	require.Equal(t, closedSession{SessionID: last.id, Outcome: teardown.OutcomeFinalized}, closed[2])
	require.Contains(t, program.out.String(), dirty.nested+": untracked [draft.md]")

	i.requireReleased(first)
	i.requireReleased(last)
	require.FileExists(t, draft)
}

// A worker may be quicker than the parent to find what was terminated, and its
// run waits for a person.
func TestCloseProjectGoesOnBesideARunThatWaits(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	dirty := i.agent("dirty")
	draft := filepath.Join(dirty.nested, "draft.md")
	write(t, draft, "mine\n")
	i.add(dirty)
	i.result(3, "terminate", dirty.id, "--wait")

	program := i.closeProject(dirty)
	var closed []closedSession
	var exit *exec.ExitError
	require.ErrorAs(t, program.Wait(), &exit)
	require.Equal(t, 3, exit.ExitCode(), program.errors.String())
	require.NoError(t, program.run(t.Context(), i.client).Get(t.Context(), &closed))
	require.Len(t, closed, 1)
	require.Equal(t, teardown.OutcomePreserved, closed[0].Outcome)
	require.Len(t, closed[0].Kept, 2)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, i.workflowStatus(dirty.id), "the run that waits is let be")
}

func TestCloseProjectGoesOnWhenASessionIsNotKnown(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	known := i.agent("known")
	i.add(known)
	unknown := &agent{id: "un" + known.id}
	program := i.closeProject(unknown, known)
	require.Error(t, program.Wait())
	var closed []closedSession
	require.NoError(t, program.run(t.Context(), i.client).Get(t.Context(), &closed))
	require.Len(t, closed, 2)
	require.Equal(t, teardown.CodeSessionNotFound, closed[0].Error.Code)
	require.Equal(t, teardown.OutcomeFinalized, closed[1].Outcome)
}

func TestCancelledCloseProjectCancelsNoFinalization(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.env = []string{"UNWIND_RECONCILE_INTERVAL=1h"}
	agents := []*agent{i.agent("s1"), i.agent("s2"), i.agent("s3")}
	for _, a := range agents {
		i.add(a)
	}
	// No worker of unwind yet: the children are open when their parent is cancelled.
	program := i.closeProject(agents...)
	children := make([]client.WorkflowRun, len(agents))
	for n, a := range agents {
		children[n] = i.untilStarted(a)
	}
	require.NoError(t, program.Process.Signal(os.Interrupt))
	require.Error(t, program.Wait())
	require.Contains(t, program.errors.String(), "cancelled")
	var cancelled *temporalsdk.CanceledError
	require.ErrorAs(t, program.run(t.Context(), i.client).Get(t.Context(), nil), &cancelled)

	i.worker()
	for n, a := range agents {
		i.requireFinalizedBy(children[n])
		i.requireReleased(a)
	}
}

// untilStarted waits until a run of the session's finalization exists.
func (i *installation) untilStarted(a *agent) (run client.WorkflowRun) {
	i.t.Helper()
	i.until("a run for "+a.id, func() bool {
		described, err := i.client.DescribeWorkflow(i.t.Context(), teardown.FinalizeSessionID(a.id), "")
		if err == nil {
			run = i.client.GetWorkflow(i.t.Context(), described.WorkflowExecution.ID, described.WorkflowExecution.RunID)
		}
		return err == nil
	})
	return run
}

// requireFinalizedBy waits for the end of exactly this run.
func (i *installation) requireFinalizedBy(run client.WorkflowRun) {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(i.t.Context(), patience)
	defer cancel()
	var result teardown.Result
	require.NoError(i.t, run.Get(ctx, &result))
	require.Equal(i.t, teardown.OutcomeFinalized, result.Outcome)
}
