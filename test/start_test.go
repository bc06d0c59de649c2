package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"unwind/internal/store"
	"unwind/teardown"
)

// starting is a session that is to be started: a worktree with another one
// inside, a directory, a FIFO, a secret, a terminal and a process.
type starting struct {
	*agent
	in     teardown.StartSessionInput
	source string // of the secret
	fifo   string
}

const secretWords = "the-secret-words"

func (i *installation) toStart(name string) *starting {
	i.t.Helper()
	id := name + "-" + strings.TrimPrefix(filepath.Base(i.dir), directoryPrefix)
	home := filepath.Join(i.dir, id)
	s := &starting{agent: &agent{id: id,
		repository: filepath.Join(home, "src", "app"), library: filepath.Join(home, "src", "lib"),
		worktree: filepath.Join(home, "wt"), nested: filepath.Join(home, "wt", "vendor", "lib"),
		socket: filepath.Join(i.dir, "state-"+i.host, "tmux", "socket"), tmuxSession: id,
		directory: filepath.Join(home, "agent"), secret: filepath.Join(home, "agent", "token"),
	}, source: filepath.Join(home, "source"), fifo: filepath.Join(home, "agent", "events")}
	for _, repository := range []string{s.repository, s.library} {
		i.repository(repository)
	}
	write(i.t, s.source, secretWords)
	s.in = teardown.StartSessionInput{ID: id,
		Worktrees: []teardown.NewWorktree{
			{Repository: s.library, Path: s.nested, Branch: "agent/" + id},
			{Repository: s.repository, Path: s.worktree, Branch: "agent/" + id, Base: "HEAD"}},
		Resources: []teardown.NewResource{
			{Kind: teardown.ResourceDir, Path: s.directory},
			{Kind: teardown.ResourceFIFO, Path: s.fifo},
			{Kind: teardown.ResourceSecret, Path: s.secret, From: s.source}},
		Runtimes: []teardown.NewRuntime{
			{Command: []string{"sh", "-c", "pwd; echo ready; exec sleep 900;"}, Directory: s.worktree},
			{Kind: teardown.KindProcess, Role: teardown.RoleAuxiliary, Command: []string{"sleep", "900"}, Directory: s.nested}},
	}
	i.t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", s.socket, "kill-session", "-t", "="+id).Run()
		_ = exec.Command("tmux", "-S", s.socket, "kill-session", "-t", "=theirs").Run()
		for _, pid := range carrying(i.t, "UNWIND_RUN_ID=") {
			if at, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd")); err == nil && strings.HasPrefix(at, home) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	return s
}

func (s *starting) file(t *testing.T) string {
	t.Helper()
	content, err := json.Marshal(s.in)
	require.NoError(t, err)
	return string(content)
}

func (i *installation) start(code int, s *starting, args ...string) answer {
	i.t.Helper()
	a := i.unwindWith(s.file(i.t), append([]string{"session", "start", "-f", "-", "--json"}, args...)...)
	require.Equal(i.t, code, a.code, "%s%s", a.out, a.errors)
	return a
}

// tagged lists the processes that carry a tag of the session's runtimes.
func tagged(t *testing.T, facts *store.Store, id string) (pids []int) {
	t.Helper()
	detail, err := facts.SessionDetail(t.Context(), id)
	if err != nil {
		return nil
	}
	for _, rt := range detail.Runtimes {
		pids = append(pids, carrying(t, rt.Handle.V.Identity.EnvTag+"\x00")...)
	}
	return pids
}

// carrying lists the processes with an entry in their environment that begins
// so.
func carrying(t *testing.T, entry string) (pids []int) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, path := range processes {
		environment, err := os.ReadFile(path)
		if err == nil && strings.Contains("\x00"+string(environment), "\x00"+entry) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// requireTakenBack asserts that nothing is left of a start but the branches that
// it made.
func (i *installation) requireTakenBack(facts *store.Store, s *starting) {
	i.t.Helper()
	for _, path := range []string{s.nested, s.worktree, s.secret, s.fifo, s.directory} {
		require.False(i.t, exists(path), path)
	}
	for _, repository := range []string{s.repository, s.library} {
		require.Equal(i.t, 1, strings.Count(i.git(repository, "worktree", "list", "--porcelain"), "worktree "), "only the main one")
	}
	require.Empty(i.t, tagged(i.t, facts, s.id))
	require.NotContains(i.t, i.sessionsAt(s.socket), s.tmuxSession)
	require.FileExists(i.t, s.source)
	detail, err := facts.SessionDetail(i.t.Context(), s.id)
	require.NoError(i.t, err)
	for _, rt := range detail.Runtimes {
		require.Equal(i.t, store.RuntimeReleased, rt.State)
		if group := rt.Handle.V.Identity.Cgroup; group != "" {
			require.NoDirExists(i.t, group)
		}
	}
	for _, wt := range detail.Worktrees {
		require.Equal(i.t, store.WorktreeRemoved, wt.Worktree.State)
	}
}

func (i *installation) sessionsAt(socket string) string {
	i.t.Helper()
	out, _ := exec.Command("tmux", "-S", socket, "list-sessions", "-F", "#{session_name}").Output()
	return string(out)
}

func TestStartWorkTerminate(t *testing.T) {
	t.Parallel()
	i := install(t)
	w := i.worker("TEMPORAL_API_KEY=")
	s := i.toStart("s1")
	a := i.start(0, s)
	var started teardown.StartSessionResult
	require.NoError(t, json.Unmarshal([]byte(a.out), &started))
	require.Len(t, started.Worktrees, 2)
	require.Equal(t, s.tmuxSession, started.Runtimes[0].Session)

	token, err := os.ReadFile(s.secret)
	require.NoError(t, err)
	require.Equal(t, secretWords, string(token))
	info, err := os.Stat(s.secret)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.Equal(t, "agent/"+s.id, i.git(s.nested, "branch", "--show-current"))
	i.until("the agent in its worktree", func() bool {
		out, _ := exec.Command("tmux", "-S", s.socket, "capture-pane", "-p", "-t", "="+s.tmuxSession+":").Output()
		return strings.HasPrefix(string(out), s.worktree+"\nready\n")
	})
	facts := i.store()
	require.Len(t, tagged(t, facts, s.id), 2)
	for _, pid := range tagged(t, facts, s.id) {
		environment, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
		require.NoError(t, err)
		require.NotContains(t, string(environment), "UNWIND_DATABASE_URL", "settings are not handed on")
		require.NotContains(t, string(environment), "TEMPORAL_")
	}
	require.NotContains(t, i.historyText(teardown.StartSessionID(s.id)), secretWords)
	require.NotContains(t, w.log.String(), secretWords)

	again := i.start(0, s)
	require.JSONEq(t, a.out, again.out, "the same again changes nothing")
	require.Len(t, tagged(t, facts, s.id), 2)
	w.stop()
	require.Len(t, tagged(t, facts, s.id), 2, "they outlive the worker")

	i.git(s.worktree, "commit", "-q", "--allow-empty", "-m", "work")
	head := i.git(s.worktree, "rev-parse", "HEAD")
	i.worker()
	i.result(0, "terminate", s.id, "--wait")
	i.requireTakenBack(facts, s)
	require.Equal(t, head, i.git(s.repository, "rev-parse", "agent/"+s.id), "a branch is never deleted")
	require.Contains(t, i.must("snapshot", s.id).out, "ready")
	refused := i.start(65, s)
	require.Contains(t, refused.out, string(teardown.CodeSessionTerminated))
}

func (i *installation) historyText(workflowID string) string {
	i.t.Helper()
	var b strings.Builder
	events := i.client.GetWorkflowHistory(i.t.Context(), workflowID, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(i.t, err)
		b.WriteString(event.String())
	}
	return b.String()
}

// startPoints are all places between two effects of a start; see package fault.
var startPoints = []string{
	"start recorded", "resource intended", "resource made", "worktree made", "worktree recorded",
	"runtime started", "start of runtime recorded",
}

func TestWorkerKilledAtEachStepOfAStart(t *testing.T) {
	t.Parallel()
	for _, point := range startPoints {
		t.Run(point, func(t *testing.T) {
			onBothDatabases(t, func(t *testing.T, i *installation) {
				s := i.toStart("s1")
				killed := i.workerThatDiesAt(point)
				ended, file := make(chan answer), s.file(t)
				go func() { ended <- i.unwindWith(file, "session", "start", "-f", "-", "--json") }()
				killed.awaitDeath(t)
				i.worker()
				a := <-ended
				require.Equal(t, 0, a.code, "%s%s", a.out, a.errors)
				facts := i.store()
				require.Len(t, tagged(t, facts, s.id), 2, "each was started once")
				require.Equal(t, s.tmuxSession+"\n", i.sessionsAt(s.socket))
				i.result(0, "terminate", s.id, "--wait")
				i.requireTakenBack(facts, s)
			})
		})
	}
}

func TestWorkerKilledWhenAStartHasFailed(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		s := i.toStart("s1")
		s.in.Runtimes[1].Output = filepath.Join(i.dir, "no", "such", "dir")
		killed := i.workerThatDiesAt("start failed")
		ended, file := make(chan answer), s.file(t)
		go func() { ended <- i.unwindWith(file, "session", "start", "-f", "-", "--json") }()
		killed.awaitDeath(t)
		i.worker()
		a := <-ended
		require.Equal(t, 64, a.code, "%s%s", a.out, a.errors)
		require.Contains(t, a.out, string(teardown.CodeInvalidManifest))
		facts := i.store()
		i.untilFinished(facts, s.id)
		i.requireTakenBack(facts, s)
	})
}

// A runtime that a killed worker has started and not recorded is found by its
// tag: there is never a second one, and it is ended with its session.
func TestRuntimeThatWasStartedAndNotRecordedIsFoundByItsTag(t *testing.T) {
	t.Parallel()
	for kind, launch := range map[string]teardown.NewRuntime{
		teardown.KindTmux:    {Kind: teardown.KindTmux, Command: []string{"sleep", "900"}},
		teardown.KindProcess: {Kind: teardown.KindProcess, Command: []string{"sleep", "900"}},
	} {
		for name, then := range map[string]func(t *testing.T, i *installation, s *starting, facts *store.Store, process int){
			"and taken up, if the start goes on": func(t *testing.T, i *installation, s *starting, facts *store.Store, process int) {
				i.worker()
				i.start(0, s)
				require.Equal(t, []int{process}, tagged(t, facts, s.id), "it was started once")
				detail, err := facts.SessionDetail(t.Context(), s.id)
				require.NoError(t, err)
				rt := detail.Runtimes[0]
				require.Equal(t, store.RuntimeRunning, rt.State)
				recorded := rt.Handle.V.PID
				if kind == teardown.KindTmux {
					recorded = rt.Handle.V.Identity.Panes[0].PID
				}
				require.Equal(t, process, recorded)
				i.must("terminate", s.id)
			},
			"and ended, if the session is terminated": func(_ *testing.T, i *installation, s *starting, _ *store.Store, _ int) {
				i.must("terminate", s.id)
				i.worker()
			},
			"and ended by the next pass, if the start is lost": func(t *testing.T, i *installation, s *starting, _ *store.Store, _ int) {
				require.NoError(t, i.client.TerminateWorkflow(t.Context(), teardown.StartSessionID(s.id), "", "lost"))
				i.worker()
			},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				i := install(t)
				s := i.toStart("s1")
				s.in.Runtimes = []teardown.NewRuntime{launch}
				killed := i.workerThatDiesAt("runtime started")
				_, err := teardown.StartSession(t.Context(), i.client, i.queue, i.input(s))
				require.NoError(t, err)
				killed.awaitDeath(t)
				facts := i.store()
				detail, err := facts.SessionDetail(t.Context(), s.id)
				require.NoError(t, err)
				require.Equal(t, store.RuntimeCreating, detail.Runtimes[0].State, "its start is not recorded")
				processes := tagged(t, facts, s.id)
				require.Len(t, processes, 1)
				then(t, i, s, facts, processes[0])
				i.untilFinished(facts, s.id)
				i.requireTakenBack(facts, s)
			})
		}
	}
}

// Its start is cut off, and then somebody deletes its row.
func TestHalfStartedSessionWhoseRowVanishedIsReleased(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		s := i.toStart("s1")
		killed := i.workerThatDiesAt("runtime started")
		_, err := teardown.StartSession(t.Context(), i.client, i.queue, i.input(s))
		require.NoError(t, err)
		killed.awaitDeath(t)
		facts := i.store()
		worktrees := i.worktreesOf(facts, s.id)
		processes := tagged(t, facts, s.id)
		require.Len(t, processes, 1)
		require.NoError(t, i.client.TerminateWorkflow(t.Context(), teardown.StartSessionID(s.id), "", "lost"))
		i.vanish(s.id)
		i.worker()
		i.until("its process ended", func() bool { return !exists(fmt.Sprintf("/proc/%d", processes[0])) })
		for _, w := range worktrees {
			i.until("the worktree gone", func() bool { return !exists(w.Path) })
		}
	})
}

// The workflow is lost with the worker: reconcile takes back what there is.
func TestStartThatWasLostAtEachStepIsTakenBack(t *testing.T) {
	t.Parallel()
	for _, point := range startPoints[:len(startPoints)-1] {
		t.Run(point, func(t *testing.T) {
			onBothDatabases(t, func(t *testing.T, i *installation) {
				s := i.toStart("s1")
				killed := i.workerThatDiesAt(point)
				_, err := teardown.StartSession(t.Context(), i.client, i.queue, i.input(s))
				require.NoError(t, err)
				killed.awaitDeath(t)
				require.NoError(t, i.client.TerminateWorkflow(t.Context(), teardown.StartSessionID(s.id), "", "lost"))
				i.worker()
				facts := i.store()
				i.untilFinished(facts, s.id)
				i.requireTakenBack(facts, s)
				session, err := facts.Session(t.Context(), s.id)
				require.NoError(t, err)
				require.Equal(t, teardown.SourceStartFailed, session.TerminationSource)
			})
		})
	}
}

// input is the session as a workflow is given it.
func (i *installation) input(s *starting) teardown.StartSessionInput {
	in := s.in
	in.Host = i.host
	return in
}

func TestTerminatedWhileItIsStarted(t *testing.T) {
	t.Parallel()
	for _, point := range startPoints[:len(startPoints)-1] {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			i := install(t)
			s := i.toStart("s1")
			hold := filepath.Join(i.dir, "hold")
			write(t, hold, "")
			i.worker("UNWIND_FAULT_POINT="+point, "UNWIND_FAULT_MARK="+filepath.Join(i.dir, "fault"), "UNWIND_FAULT_HOLD="+hold)
			run, err := teardown.StartSession(t.Context(), i.client, i.queue, i.input(s))
			require.NoError(t, err)
			i.until("the start under way", func() bool { return exists(filepath.Join(i.dir, "fault")) })
			i.must("terminate", s.id)
			require.NoError(t, os.Remove(hold))
			require.ErrorContains(t, run.Get(t.Context(), nil), "terminated")
			facts := i.store()
			i.untilFinished(facts, s.id)
			i.requireTakenBack(facts, s)
		})
	}
}

func TestStartThatFailsIsTakenBackAndTouchesNothingElse(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	occupied := filepath.Join(i.dir, "occupied")
	require.NoError(t, os.Mkdir(occupied, 0o700))
	write(t, filepath.Join(occupied, "mine"), "mine\n")
	for name, c := range map[string]struct {
		change func(*starting)
		code   teardown.Code
		// recorded: it is found only when something was made.
		recorded bool
	}{
		"path":     {func(s *starting) { s.in.Worktrees[1].Path, s.in.Worktrees = occupied, s.in.Worktrees[1:] }, teardown.CodePathOccupied, false},
		"resource": {func(s *starting) { s.in.Resources[0].Path = occupied }, teardown.CodePathOccupied, false},
		"branch": {func(s *starting) {
			i.git(s.repository, "branch", "agent/"+s.id)
			i.git(s.repository, "commit", "-q", "--allow-empty", "-m", "two")
		}, teardown.CodeConflict, false},
		"base":    {func(s *starting) { s.in.Worktrees[0].Base = "nosuch" }, teardown.CodeInvalidManifest, false},
		"command": {func(s *starting) { s.in.Runtimes[0].Command[0] = "no-such-program" }, teardown.CodeInvalidManifest, false},
		"name":    {func(s *starting) { s.in.Runtimes[0].Session = "#(touch x)" }, teardown.CodeInvalidManifest, false},
		"source":  {func(s *starting) { s.in.Resources[2].From = filepath.Join(i.dir, "nosuch") }, teardown.CodeInvalidManifest, true},
		"taken": {func(s *starting) {
			s.socket = filepath.Join(i.dir, "theirs.sock")
			s.in.Runtimes[0].Socket, s.in.Runtimes[0].Session = s.socket, "theirs"
			require.NoError(t, exec.Command("tmux", "-S", s.socket, "-f", "/dev/null", "new-session", "-d", "-s", "theirs", "sleep", "900").Run())
		}, teardown.CodeConflict, true},
		"output": {func(s *starting) { s.in.Runtimes[1].Output = filepath.Join(i.dir, "no", "such", "dir") }, teardown.CodeInvalidManifest, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := i.in(t)
			s := i.toStart(name)
			c.change(s)
			a := i.unwindWith(s.file(t), "session", "start", "-f", "-", "--json")
			require.NotZero(t, a.code)
			require.Contains(t, a.out, `"code":"`+string(c.code)+`"`, a.errors)
			facts := i.store()
			_, err := facts.Session(t.Context(), s.id)
			if !c.recorded {
				require.Equal(t, teardown.CodeSessionNotFound, teardown.CodeOf(err))
				require.FileExists(t, filepath.Join(occupied, "mine"))
				return
			}
			require.NoError(t, err)
			require.Contains(t, a.errors, "What had been made is taken back")
			i.requireTakenBack(facts, s)
			if name == "taken" {
				require.Equal(t, "theirs\n", i.sessionsAt(s.in.Runtimes[0].Socket))
			}
			require.FileExists(t, filepath.Join(occupied, "mine"))
		})
	}
}

// in is the same installation in a subtest.
func (i *installation) in(t *testing.T) *installation {
	same := *i
	same.t = t
	return &same
}

func TestCancelledStartIsTakenBack(t *testing.T) {
	t.Parallel()
	i := install(t)
	s := i.toStart("s1")
	hold := filepath.Join(i.dir, "hold")
	write(t, hold, "")
	i.worker("UNWIND_FAULT_POINT=worktree made", "UNWIND_FAULT_MARK="+filepath.Join(i.dir, "fault"), "UNWIND_FAULT_HOLD="+hold)
	run, err := teardown.StartSession(t.Context(), i.client, i.queue, i.input(s))
	require.NoError(t, err)
	i.until("the start under way", func() bool { return exists(filepath.Join(i.dir, "fault")) })
	require.NoError(t, i.client.CancelWorkflow(t.Context(), run.GetID(), ""))
	require.NoError(t, os.Remove(hold))
	require.Error(t, run.Get(t.Context(), nil))
	facts := i.store()
	i.untilFinished(facts, s.id)
	i.requireTakenBack(facts, s)
}

func TestStartWithFlags(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	s := i.toStart("s1")
	i.must("session", "start", s.id, "--repository", s.repository, "--path", s.worktree, "--branch", "agent/x", "--", "sleep", "900")
	require.Equal(t, "agent/x", i.git(s.worktree, "branch", "--show-current"))
	status := i.must("status", s.id).out
	require.Contains(t, status, "running")
	i.must("plan", s.id)
	i.result(0, "terminate", s.id, "--wait")
	require.NoDirExists(t, s.worktree)
}
