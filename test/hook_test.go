package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

// tmuxHooks are the lines of docs/hooks.md, for a program at another place.
func tmuxHooks(t *testing.T, unwind string) []string {
	t.Helper()
	page, err := os.ReadFile("../docs/hooks.md")
	require.NoError(t, err)
	var lines []string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "set-hook ") {
			lines = append(lines, strings.ReplaceAll(line, "unwind hook", unwind+" hook"))
		}
	}
	require.NotEmpty(t, lines)
	return lines
}

// hooked starts the agent's tmux server with the hooks of docs/hooks.md: what they
// run finds this installation by a program of its own. The hooks of the server's own
// end find nothing any more, or the installation would come back.
func (i *installation) hooked(a *agent) {
	i.t.Helper()
	program := filepath.Join(i.dir, "unwind-here")
	var script strings.Builder
	script.WriteString("#!/bin/sh\n")
	for _, entry := range i.environment() {
		name, value, _ := strings.Cut(entry, "=")
		script.WriteString("export " + name + "='" + value + "'\n")
	}
	over, running := filepath.Join(i.dir, "hooks.over"), filepath.Join(i.dir, "hook.")
	script.WriteString("[ ! -e '" + over + "' ] && : >'" + running + "'$$ || exit 0\n" +
		"[ -e '" + over + "' ] || " + filepath.Join(programs, "unwind") + " \"$@\" 2>>" + filepath.Join(i.dir, "hooks.log") + "\n" +
		"rm -f '" + running + "'$$\n")
	i.t.Cleanup(func() {
		write(i.t, over, "")
		i.until("its hooks ended", func() bool {
			left, err := filepath.Glob(running + "*")
			return err == nil && len(left) == 0
		})
	})
	require.NoError(i.t, os.WriteFile(program, []byte(script.String()), 0o700))
	configuration := filepath.Join(i.dir, "hooks.conf")
	write(i.t, configuration, strings.Join(tmuxHooks(i.t, program), ""))
	i.tmuxDo(a, "source-file", configuration)
}

func (i *installation) tmuxDo(a *agent, args ...string) string {
	i.t.Helper()
	output, err := exec.Command("tmux", append([]string{"-f", "/dev/null", "-S", a.socket}, args...)...).CombinedOutput()
	require.NoError(i.t, err, "tmux %v: %s", args, output)
	return strings.TrimSpace(string(output))
}

func (i *installation) untilTerminated(s *store.Store, session string) store.Session {
	i.t.Helper()
	var seen store.Session
	i.until("terminated", func() bool {
		var err error
		seen, err = s.Session(i.t.Context(), session)
		require.NoError(i.t, err)
		return seen.TerminatedAt != nil
	})
	return seen
}

// takeNote has tmux see which of its children have ended. One that is built with
// libutempter may have missed the signal: it is ignored while the helper runs that
// notes the end of a pane's login, and with it goes the hook, until another child
// ends.
func (i *installation) takeNote(a *agent) {
	i.t.Helper()
	i.tmuxDo(a, "run-shell", "true")
}

func TestTmuxSessionThatClosesIsRecordedByItsHook(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		a := i.agent("s1")
		i.add(a)
		i.hooked(a)
		i.tmuxDo(a, "new-session", "-d", "-s", "passing", "true") // another one's end is not ours
		i.killAgent(a)
		s := i.store()
		require.Equal(t, teardown.SourceRuntimeExit, i.untilTerminated(s, a.id).TerminationSource)
		i.worker()
		i.untilFinished(s, a.id)
		i.requireReleased(a)
	})
}

func TestTmuxPaneThatDiesIsRecordedByItsHook(t *testing.T) {
	t.Parallel()
	i := install(t)
	a := i.agent("s1")
	i.tmuxDo(a, "set-option", "-g", "remain-on-exit", "on")
	i.add(a)
	i.hooked(a)
	// A pane beside the agent's that dies first ends nothing.
	i.tmuxDo(a, "split-window", "-d", "-t", "="+a.tmuxSession+":", "true")
	log := filepath.Join(i.dir, "hooks.log")
	i.until("the hook of the other pane", func() bool {
		i.takeNote(a)
		said, _ := os.ReadFile(log)
		return strings.Contains(string(said), "still runs")
	})
	s := i.store()
	session, err := s.Session(t.Context(), a.id)
	require.NoError(t, err)
	require.Nil(t, session.TerminatedAt)
	require.NoError(t, exec.Command("kill", a.panePID).Run())
	i.until("terminated", func() bool {
		i.takeNote(a)
		session, err := s.Session(t.Context(), a.id)
		require.NoError(t, err)
		return session.TerminatedAt != nil
	})
	require.Equal(t, teardown.SourceRuntimeExit, i.untilTerminated(s, a.id).TerminationSource)
	i.worker()
	i.untilFinished(s, a.id)
	i.requireReleased(a)
}

func TestAgentThatEndsIsRecordedByItsHookWithTemporalDown(t *testing.T) {
	t.Parallel()
	i := installWithOwnServer(t)
	a := i.agent("s1")
	i.add(a)
	require.NoError(t, i.server.Stop())
	event := `{"session_id":"6e1f","cwd":"` + a.nested + `","hook_event_name":"SessionEnd","reason":"prompt_input_exit"}`
	for range 2 {
		said := i.unwindWith(event, "hook", "exit", "--strict")
		require.Equal(t, answer{}, said)
	}
	s := i.store()
	require.Equal(t, teardown.SourceAgentExit, i.untilTerminated(s, a.id).TerminationSource)
	require.NoError(t, i.server.Resume())
	i.worker()
	i.untilFinished(s, a.id)
	i.requireReleased(a)
}
