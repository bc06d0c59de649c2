package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/teardown"
)

// source is what ended a session; "" while it is live.
func (b *bench) source(id string) string {
	b.Helper()
	session, err := b.store().Session(b.Context(), id)
	require.NoError(b, err)
	if session.TerminatedAt == nil {
		return ""
	}
	return session.TerminationSource
}

func (b *bench) session(id, worktree, repository string) {
	b.Helper()
	b.add(teardown.Manifest{ID: id, Worktrees: []teardown.WorktreeSpec{{Repository: repository, Path: worktree}}})
}

func TestHookExitOfAnAgentThatEndsInItsWorktree(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	for id, event := range map[string]string{
		"claude":  `{"session_id":"x","transcript_path":"/t","cwd":"%","hook_event_name":"SessionEnd","reason":"prompt_input_exit"}`,
		"copilot": `{"timestamp":1704614700000,"cwd":"%","reason":"complete"}`,
		"cursor":  `{"hook_event_name":"sessionEnd","workspace_roots":["/elsewhere","%"],"reason":"completed","duration_ms":7}`,
		"deep":    `{"cwd":"%/src/deep","hook_event_name":"SessionEnd","reason":"exit"}`,
	} {
		wt := b.worktree(app, id)
		require.NoError(t, os.MkdirAll(filepath.Join(wt, "src", "deep"), 0o700))
		b.session(id, wt, app)
		r := b.feed(strings.ReplaceAll(event, "%", wt), "hook", "exit")
		require.Equal(t, exitDone, r.code, r.stderr)
		require.Empty(t, r.stdout, "standard output is the agent's")
		require.Empty(t, r.stderr)
		require.Equal(t, teardown.SourceAgentExit, b.source(id))
	}
}

func TestHookExitByTheDirectoryThatItRunsIn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	b.session("s1", b.root+"/wt", b.repositoryOf(app, "wt"))
	p, _, stderr := b.program("")
	p.directory = filepath.Join(b.root, "wt")
	require.Zero(t, p.execute(t.Context(), []string{"hook", "exit"}), stderr)
	require.Equal(t, teardown.SourceAgentExit, b.source("s1"))
}

// repositoryOf adds a worktree and answers the repository.
func (b *bench) repositoryOf(repository, worktree string) string {
	b.worktree(repository, worktree)
	return repository
}

func TestHookExitAgainIsANoOp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	wt := b.worktree(b.repository("app"), "wt")
	b.session("s1", wt, filepath.Join(b.root, "app"))
	event := `{"cwd":"` + wt + `","hook_event_name":"SessionEnd","reason":"other"}`
	first := object[observed](t, b.feed(event, "hook", "exit", "--strict", "--json").stdout)
	require.Equal(t, observed{SessionID: "s1", Generation: 1, Changed: true, Source: "agent_exit"}, first)
	before, err := b.store().Session(t.Context(), "s1")
	require.NoError(t, err)
	r := b.feed(event, "hook", "exit", "--strict", "--json")
	require.Equal(t, exitDone, r.code, r.stderr)
	require.False(t, object[observed](t, r.stdout).Changed)
	b.must("hook", "exit", "--session", "s1", "--strict")
	after, err := b.store().Session(t.Context(), "s1")
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestHookExitNeverFailsTheAgent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	wt := b.worktree(app, "wt")
	b.session("s1", wt, app)
	for name, c := range map[string]struct {
		event, sentence string
		strict          exitCode
		args            []string
	}{
		"unknown directory":   {`{"cwd":"/somewhere/else"}`, "no live session of this host holds a worktree around /somewhere/else", exitRefused, nil},
		"unknown session":     {"", "session_not_found", exitRefused, []string{"--session", "nobody"}},
		"unknown tmux":        {"", "no live session of this host has its agent in tmux session $3", exitRefused, []string{"--tmux-socket", "/x", "--tmux-session", "$3"}},
		"not an end":          {`{"cwd":"` + wt + `","hook_event_name":"Stop"}`, `"Stop" is not the end of a session`, exitUsage, nil},
		"a conversation only": {`{"cwd":"` + wt + `","hook_event_name":"SessionEnd","reason":"clear"}`, "the agent goes on", exitUsage, nil},
		"another kind":        {`{"cwd":7}`, `its "cwd" has another type`, exitUsage, nil},
		"no object":           {`[`, "it is not a JSON object", exitUsage, nil},
		"too long":            {strings.Repeat(" ", maxEvent+1), "it is longer than 1.0 MiB", exitUsage, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			r := b.feed(c.event, append([]string{"hook", "exit"}, c.args...)...)
			require.Equal(t, exitDone, r.code)
			require.Contains(t, r.stderr, "unwind: nothing is recorded: ")
			require.Empty(t, r.stdout)
			if c.sentence != "session_not_found" {
				require.Contains(t, r.stderr, c.sentence)
			}
			require.Equal(t, c.strict, b.feed(c.event, append([]string{"hook", "exit", "--strict"}, c.args...)...).code)
			require.Empty(t, b.source("s1"))
		})
	}
}

func TestHookExitWithoutItsDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.environment = b.environment.with("UNWIND_DATABASE_URL=postgres://u:hush@127.0.0.1:1/unwind?sslmode=disable")
	r := b.feed(`{"cwd":"/x"}`, "hook", "exit")
	require.Equal(t, exitDone, r.code)
	require.Contains(t, r.stderr, "nothing is recorded")
	require.Equal(t, exitUnavailable, b.feed(`{"cwd":"/x"}`, "hook", "exit", "--strict").code)
}

// A mistake in the line itself is said at once, by the exit code too.
func TestHookExitWithAMistakeInTheLine(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, args := range [][]string{{"--tmux-session", "$1"}, {"--tmux-socket", "/x"}, {"--session", "s1", "--tmux-tag", "t"}, {"--session", "a/b"}, {"x"}} {
		require.Equal(t, exitUsage, b.run(append([]string{"hook", "exit"}, args...)...).code, args)
	}
}

// A hook may be given a standard input that nobody closes.
func TestHookExitWaitsForNoEventForEver(t *testing.T) {
	t.Parallel()
	silent, hold := io.Pipe()
	defer func() { _ = hold.Close() }()
	content, err := readWithin(silent, maxEvent, 20*time.Millisecond)
	require.NoError(t, err)
	require.Empty(t, content)
}

func TestHookExitByRunID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	wt := b.worktree(app, "wt")
	agent := exec.Command("sleep", "600")
	agent.Env = []string{"UNWIND_RUN_ID=run-7"}
	require.NoError(t, agent.Start())
	t.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait() })
	b.add(teardown.Manifest{ID: "s1",
		Runtimes:  []teardown.Runtime{{Kind: "process", PID: agent.Process.Pid, Identity: &teardown.RuntimeIdentity{EnvTag: "UNWIND_RUN_ID=run-7"}}},
		Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: wt}}})
	usual := b.environment

	// Another agent in the same worktree, such as one that the first has started.
	b.environment = usual.with("UNWIND_RUN_ID=another")
	r := b.feed(`{"cwd":"`+wt+`","hook_event_name":"SessionEnd"}`, "hook", "exit")
	require.Contains(t, r.stderr, "UNWIND_RUN_ID=another")
	require.Empty(t, b.source("s1"))

	b.environment = usual.with("UNWIND_RUN_ID=run-7")
	r = b.feed(`{"cwd":"/elsewhere","hook_event_name":"SessionEnd"}`, "hook", "exit")
	require.Empty(t, r.stderr)
	require.Equal(t, teardown.SourceAgentExit, b.source("s1"))
	require.Equal(t, exitDone, b.feed("", "hook", "exit", "--strict").code, "again is a no-op")
}

// The agent of a session that is over says nothing about the live session whose
// worktree lies around its own.
func TestHookExitOfANestedWorktree(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	outer := b.worktree(app, "wt")
	b.session("outer", outer, app)
	inner := b.worktree(b.repository("lib"), "wt/lib")
	b.session("inner", inner, filepath.Join(b.root, "lib"))
	for range 2 {
		b.feed(`{"cwd":"`+inner+`"}`, "hook", "exit")
		require.Equal(t, teardown.SourceAgentExit, b.source("inner"))
		require.Empty(t, b.source("outer"))
	}
}

func TestHookExitOfTmux(t *testing.T) {
	t.Parallel()
	b := setup(t)
	wt := filepath.Join(b.root, "wt")
	require.NoError(t, os.Mkdir(wt, 0o700))
	socket := b.tmux("agent", wt)
	tmux := func(args ...string) string {
		text, err := exec.Command("tmux", append([]string{"-S", socket, "-f", "/dev/null"}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", text)
		return strings.TrimSpace(string(text))
	}
	tmux("new-session", "-d", "-s", "other", "sleep 600")
	tmux("set-option", "-g", "remain-on-exit", "on")
	id := tmux("display-message", "-p", "-t", "=agent:", "#{session_id}")
	b.add(teardown.Manifest{ID: "s1", Runtimes: []teardown.Runtime{
		{Kind: "tmux", Socket: socket, Session: "agent"}, {Kind: "tmux", Role: "auxiliary", Socket: socket, Session: "other"}}})
	args := []string{"hook", "exit", "--strict", "--tmux-socket", socket, "--tmux-session", id}

	r := b.run(args...)
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.stderr, "the agent of session s1 still runs", "another pane may have died")
	require.Equal(t, exitRefused, b.run("hook", "exit", "--strict", "--tmux-socket", socket, "--tmux-session", "$99").code)
	require.Equal(t, exitRefused, b.run("hook", "exit", "--strict", "--tmux-socket", socket,
		"--tmux-session", tmux("display-message", "-p", "-t", "=other:", "#{session_id}")).code, "an auxiliary runtime is not the agent")
	require.Empty(t, b.source("s1"))

	// The pane stays, the program in it has ended.
	tag := tmux("show-options", "-v", "-t", "=agent:", "@unwind_run")
	pid := tmux("list-panes", "-t", "=agent:", "-F", "#{pane_pid}")
	require.NoError(t, exec.Command("kill", pid).Run())
	require.Eventually(t, func() bool { return tmux("list-panes", "-t", "=agent:", "-F", "#{pane_dead}") == "1" }, time.Minute, 10*time.Millisecond)
	b.must("hook", "exit", "--strict", "--tmux-tag", tag)
	require.Equal(t, teardown.SourceRuntimeExit, b.source("s1"))

	tmux("kill-session", "-t", "=agent")
	b.must(args...)
	require.Equal(t, teardown.SourceRuntimeExit, b.source("s1"))
}
