package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

// scanned is a line of scan with --json.
type scanned struct {
	Kind        string               `json:"kind"`
	Path        string               `json:"path"`
	Branch      string               `json:"branch"`
	Disposition teardown.Disposition `json:"disposition"`
	Code        teardown.Code        `json:"code"`
	Bytes       int64                `json:"bytes"`
	Session     string               `json:"session"`
}

// leaky is an installation beside which worktrees have leaked.
func leaky(t *testing.T) (b *bench, app string) {
	t.Helper()
	b = setup(t)
	return b, b.leak()
}

func (b *bench) leak() (app string) {
	b.Helper()
	app = b.repository("app")
	b.worktree(app, "clean")
	b.worktree(app, "dirty")
	b.write("dirty/note.txt", "keep me")
	b.worktree(app, "clean/nested")
	return app
}

func (b *bench) scan(args ...string) map[string]scanned {
	b.Helper()
	found := map[string]scanned{}
	out := b.must(append([]string{"scan", "--json"}, args...)...)
	if out == "" {
		return found
	}
	for _, line := range objects[scanned](b.T, out) {
		found[strings.TrimPrefix(line.Path, b.root+"/")+line.Session] = line
	}
	return found
}

func TestScanFindsWhatNobodyHolds(t *testing.T) {
	t.Parallel()
	b, app := leaky(t)
	found := b.scan()
	require.NoFileExists(t, filepath.Join(b.state, "unwind.db"), "looking makes no database")
	require.Len(t, found, 3)
	require.Equal(t, teardown.DispositionRemoved, found["clean"].Disposition, "what is nested would go first")
	require.Equal(t, teardown.DispositionRemoved, found["clean/nested"].Disposition)
	require.Equal(t, teardown.CodeUntracked, found["dirty"].Code)
	require.Positive(t, found["dirty"].Bytes)
	require.Equal(t, "dirty", found["dirty"].Branch)
	require.Len(t, b.scan("app"), 3, "they are found wherever they lie")
	require.NoError(t, os.MkdirAll(filepath.Join(b.root, "empty"), 0o700))
	require.Empty(t, b.scan("empty"))
	require.Equal(t, exitUsage, b.run("scan", "none").code)

	// What somebody here has is left out, a task's too.
	b.session("s1", filepath.Join(b.root, "dirty"), app)
	b.add(teardown.Manifest{ID: "s2", TaskID: "t1", Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: filepath.Join(b.root, "clean", "nested")}}})
	b.forget("s2")
	require.Len(t, b.scan(), 1)
	require.Contains(t, b.must("scan"), filepath.Join(b.root, "clean")+": would be kept", "a worktree that somebody has lies in it")
	require.DirExists(t, filepath.Join(b.root, "clean", "nested"))
}

// forget drops a session as if it had never been: its task keeps the worktrees.
func (b *bench) forget(id string) {
	b.Helper()
	_, _, err := b.store().Terminate(b.Context(), id, "test")
	require.NoError(b, err)
	begun, err := b.store().Begin(b.Context(), teardown.BeginInput{SessionID: id})
	require.NoError(b, err)
	_, err = b.store().ReleaseLeases(b.Context(), begun.Step)
	require.NoError(b, err)
}

func TestScanOfTmuxServersThatAreNamedOrKnown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	socket := b.tmux("agent", b.root)
	other := exec.Command("tmux", "-S", socket, "-f", "/dev/null", "new-session", "-d", "-s", "leaked one", "sleep 600")
	require.NoError(t, other.Run())
	require.Empty(t, b.scan(), "no server that was not named")
	require.Len(t, b.scan("--socket", socket), 2)
	b.add(teardown.Manifest{ID: "s1", Runtimes: []teardown.Runtime{{Kind: "tmux", Socket: socket, Session: "agent"}}})
	found := b.scan()
	require.Len(t, found, 1)
	require.Equal(t, "tmux", found["leaked one"].Kind)
	require.Len(t, b.scan("--socket", filepath.Join(b.root, "none")), 1, "where no server listens there is none")
	out, err := exec.Command("tmux", "-S", socket, "list-sessions").Output()
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(out), "\n"), "nothing is ended")
}

func TestAdoptRegistersWhatLeakedAsTerminated(t *testing.T) {
	t.Parallel()
	for dialect, b := range onBoth(t) {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			adoptsWhatLeaked(t, b.in(t))
		})
	}
}

func adoptsWhatLeaked(t *testing.T, b *bench) {
	t.Helper()
	app := b.leak()
	clean, nested, dirty := filepath.Join(b.root, "clean"), filepath.Join(b.root, "clean", "nested"), filepath.Join(b.root, "dirty")
	require.Equal(t, exitUsage, b.run("adopt", clean).code, "nobody is there to be asked")
	require.Equal(t, exitUsage, b.run("adopt").code)
	lines := objects[adopted](t, b.must("adopt", "--yes", "--json", nested, clean, dirty, clean))
	sessions := map[string]string{}
	for _, line := range lines {
		require.NotEmpty(t, line.SessionID)
		sessions[line.Path] = line.SessionID
	}
	require.Len(t, sessions, 3)
	require.Equal(t, sessions[clean], sessions[nested], "what lies in one another is one session")
	require.NotEqual(t, sessions[clean], sessions[dirty])
	terminated, err := b.store().Sessions(t.Context(), store.SessionFilter{State: store.StateTerminated})
	require.NoError(t, err)
	require.Len(t, terminated, 2)
	require.Equal(t, teardown.SourceAdopted, b.source(sessions[dirty]))
	require.FileExists(t, filepath.Join(dirty, "note.txt"))
	require.Empty(t, b.scan())

	r := b.run("adopt", "--yes", clean, app, filepath.Join(b.root, "none"))
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.stderr, "is registered here already")
	require.Contains(t, r.stderr, "main_worktree")
}

func TestAdoptAsksOnATerminal(t *testing.T) {
	t.Parallel()
	b, _ := leaky(t)
	for answer, registered := range map[string]bool{"n\n": false, "\n": false, "y\n": true} {
		p, out, errs := b.program(answer)
		p.inTerminal = true
		require.Zero(t, p.execute(t.Context(), []string{"adopt", "dirty"}))
		require.Contains(t, errs.String(), "Register 1 worktree for removal? What could be lost is kept. [y/N]")
		require.Contains(t, out.String(), "would be kept (untracked)", "the plan comes first")
		require.Equal(t, registered, strings.Contains(out.String(), "Registered session adopted-dirty-"))
		if registered {
			return
		}
		require.Contains(t, errs.String(), "Nothing was registered.")
	}
}

func TestAdoptLeavesWhatSomebodyHasOrWorksIn(t *testing.T) {
	t.Parallel()
	b, app := leaky(t)
	clean, dirty := filepath.Join(b.root, "clean"), filepath.Join(b.root, "dirty")
	b.add(teardown.Manifest{ID: "s1", TaskID: "t1", Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: dirty}}})
	b.forget("s1") // a task without sessions has it
	inside := exec.Command("sleep", "600")
	inside.Dir = clean
	require.NoError(t, inside.Start())
	t.Cleanup(func() { _ = inside.Process.Kill(); _ = inside.Wait() })
	r := b.run("adopt", "--yes", "--json", clean, dirty)
	require.Equal(t, exitRefused, r.code, r.stdout)
	codes := map[string]teardown.Code{}
	for _, line := range objects[adopted](t, r.stdout) {
		require.Empty(t, line.SessionID)
		codes[line.Path] = line.Code
	}
	require.Equal(t, map[string]teardown.Code{clean: teardown.CodeInUse, dirty: teardown.CodeConflict}, codes)
	sessions, err := b.store().Sessions(t.Context(), store.SessionFilter{})
	require.NoError(t, err)
	require.Len(t, sessions, 1)
}

func (b *bench) tmuxSession(socket, name string) {
	b.Helper()
	require.NoError(b, exec.Command("tmux", "-S", socket, "-f", "/dev/null", "new-session", "-d", "-s", name, "-c", b.root, "sleep 600").Run())
}

func TestAdoptTakesATmuxSessionByItsNameOnly(t *testing.T) {
	t.Parallel()
	for dialect, b := range onBoth(t) {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			socket := b.tmux("held", b.root)
			b.add(teardown.Manifest{ID: "s1", Runtimes: []teardown.Runtime{{Kind: "tmux", Socket: socket, Session: "held"}}})
			b.tmuxSession(socket, "leaked one")
			b.tmuxSession(socket, "leaked")
			require.Equal(t, exitUsage, b.run("adopt", "--tmux", "leaked").code, "nobody is there to be asked")
			line := object[adopted](t, b.must("adopt", "--yes", "--json", "--tmux", "leaked"))
			require.Equal(t, "tmux", line.Kind)
			require.Equal(t, socket, line.Socket)
			require.Equal(t, teardown.SourceAdopted, b.source(line.SessionID))
			detail, err := b.store().SessionDetail(t.Context(), line.SessionID)
			require.NoError(t, err)
			require.Len(t, detail.Runtimes, 1)
			identity := detail.Runtimes[0].Handle.V.Identity
			require.NotEmpty(t, identity.Tag, "it is pinned, as a session's is that is added")
			require.NotEmpty(t, identity.Panes)
			found := b.scan()
			require.Len(t, found, 1, "a prefix is another one")
			require.Contains(t, found, "leaked one")

			r := b.run("adopt", "--yes", "--json", "--tmux", "held", "--tmux", "leaked", "--tmux", "none")
			require.Equal(t, exitRefused, r.code)
			codes := map[string]teardown.Code{}
			for _, line := range objects[adopted](t, r.stdout) {
				require.Empty(t, line.SessionID)
				codes[line.Session] = line.Code
			}
			require.Equal(t, map[string]teardown.Code{"held": teardown.CodeConflict, "leaked": teardown.CodeConflict, "none": teardown.CodeRuntimeUnroutable}, codes)
			out, err := exec.Command("tmux", "-S", socket, "list-sessions").Output()
			require.NoError(t, err)
			require.Equal(t, 3, strings.Count(string(out), "\n"), "a worker ends it, not this")
		})
	}
}

func TestAdoptShowsWhatRunsInATmuxSessionAndAsks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	socket := b.tmux("leaked", b.root)
	for answer, registered := range map[string]bool{"n\n": false, "y\n": true} {
		p, out, errs := b.program(answer)
		p.inTerminal = true
		require.Zero(t, p.execute(t.Context(), []string{"adopt", "--tmux", "leaked", "--socket", socket}))
		require.Contains(t, out.String(), "tmux session leaked: would be ended")
		require.Contains(t, out.String(), "runs sleep (pid ")
		require.Contains(t, errs.String(), "End 1 tmux session, with all that runs in it? [y/N]")
		require.Equal(t, registered, strings.Contains(out.String(), "Registered session adopted-leaked-"))
		if registered {
			return
		}
	}
}

func TestAdoptLeavesATmuxSessionThatSomebodyHas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	socket := b.tmux("leaked", b.root)
	adopt := func(flags ...string) ran {
		return b.run(append([]string{"adopt", "--yes", "--tmux", "leaked", "--socket", socket}, flags...)...)
	}
	tmux := func(args ...string) string {
		out, err := exec.Command("tmux", append([]string{"-S", socket}, args...)...).Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(out))
	}
	own := b.in(t)
	own.environment = b.environment.with("TMUX=" + socket + "," + tmux("display-message", "-p", "#{pid}") + ",0")
	r := own.run("adopt", "--yes", "--tmux", "leaked", "--socket", socket)
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.stderr, "is the one that this command runs in")

	// A client in control mode needs no terminal.
	client := exec.Command("tmux", "-S", socket, "-C", "attach-session", "-t", "leaked")
	input, err := client.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, client.Start())
	t.Cleanup(func() { _ = input.Close(); _ = client.Wait() })
	require.Eventually(t, func() bool { return tmux("display-message", "-p", "-t", "leaked:", "#{session_attached}") == "1" }, time.Minute, 20*time.Millisecond)
	r = adopt()
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.stderr, "is being looked at by 1 client; detach first")
	tmux("detach-client", "-s", "leaked")
	require.Eventually(t, func() bool { return tmux("display-message", "-p", "-t", "leaked:", "#{session_attached}") == "0" }, time.Minute, 20*time.Millisecond)

	tmux("set-option", "-t", "leaked:", "@unwind_run", "of-another-installation")
	r = adopt()
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.stderr, "give --marked")
	require.Equal(t, exitDone, adopt("--marked").code)
}

func TestAdoptedIDIsValid(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/wt/ünï code", "/wt/...", "/wt/" + strings.Repeat("x", 200), "/wt/ok_1"} {
		require.NoError(t, teardown.ValidateID(adoptedID(path)), path)
	}
	first, second := adoptedID("/wt/a"), adoptedID("/wt/a")
	require.NotEqual(t, first, second)
}
