package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/runtime"
	"unwind/internal/runtime/kinds"
	"unwind/internal/runtime/process"
	"unwind/internal/store"
	"unwind/teardown"
)

func TestWorktreeByHand(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	clean, dirty := b.worktree(app, "clean"), b.worktree(app, "dirty")
	child := b.worktree(app, "dirty/child")
	b.write("dirty/note.txt", "keep me")

	r := b.run("worktree", "inspect", clean, "./dirty", child)
	require.Equal(t, exitPreserved, r.code, r.stderr)
	for _, part := range []string{clean + ": would be removed", dirty + ": would be kept (untracked)", "untracked: note.txt", child + ": would be removed"} {
		require.Contains(t, r.stdout, part)
	}
	require.DirExists(t, clean)

	r = b.run("worktree", "remove", "--json", clean, dirty, child, app, filepath.Join(b.root, "none"), "../x", "/usr")
	require.Equal(t, exitRefused, r.code, r.stderr)
	lines := objects[worktreeLine](t, r.stdout)
	verdicts := map[string]string{}
	for _, line := range lines {
		verdicts[line.Path] = string(line.Disposition) + " " + string(line.Code)
	}
	require.Equal(t, map[string]string{clean: "removed ", dirty: "preserved untracked", child: "removed ", app: "refused main_worktree",
		filepath.Join(b.root, "none"): "already_gone ", b.root + "/../x": "refused unsafe_target", "/usr": "refused outside_roots"}, verdicts)
	require.NoDirExists(t, clean)
	require.NoDirExists(t, child)
	require.FileExists(t, filepath.Join(dirty, "note.txt"))
	require.NoFileExists(t, filepath.Join(b.state, "unwind.db"), "no database is needed")

	var keys map[string]any
	require.NoError(t, json.Unmarshal([]byte(strings.Split(r.stdout, "\n")[0]), &keys))
	require.ElementsMatch(t, []string{"path", "disposition", "code", "retryable", "details", "bytes"}, slices.Collect(maps.Keys(keys)))

	require.NoError(t, os.Remove(filepath.Join(dirty, "note.txt")))
	require.Equal(t, exitDone, b.run("worktree", "remove", "--repository", app, dirty).code)
}

func TestWorktreeIgnoredFlag(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	wt := b.worktree(app, "wt")
	b.write("app/.git/info/exclude", "*.secret\n")
	b.write("wt/a.secret", "x")
	require.Equal(t, exitPreserved, b.run("worktree", "remove", wt).code)
	require.Equal(t, exitUsage, b.run("worktree", "remove", "--ignored", "burn", wt).code)
	require.Equal(t, exitDone, b.run("worktree", "remove", "--ignored", "discard", wt).code)
}

func TestWorktreeListFromAFile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	odd := filepath.Join(b.root, "odd\xff\n")
	b.git(app, "worktree", "add", "-q", "-b", "odd", odd)
	list := `[{"repository":"` + app + `","path_b64":"` + base64.StdEncoding.EncodeToString([]byte(odd)) + `"}]`
	r := b.feed(list, "worktree", "remove", "--json", "-f", "-")
	require.Equal(t, exitDone, r.code, r.stdout)
	line := object[worktreeLine](t, r.stdout)
	require.Equal(t, base64.StdEncoding.EncodeToString([]byte(odd)), line.PathB64)
	require.NoDirExists(t, odd)

	for name, bad := range map[string]struct{ list, sentence string }{
		"empty":         {`[]`, "the list of worktrees is empty"},
		"object":        {`{"path":"/x"}`, "it must be a list, not an object"},
		"unknown field": {`[{"path":"/x","branch":"b"}]`, `"[0].branch" is not a known field`},
		"not base64":    {`[{"path_b64":"?"}]`, "[0].path_b64 is not base64"},
		"not UTF-8":     {"[{\"path\":\"/\xff\"}]", "is not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			r := b.feed(bad.list, "worktree", "inspect", "-f", "-")
			require.Equal(t, exitUsage, r.code)
			require.Contains(t, r.stderr, bad.sentence)
		})
	}
	for _, args := range [][]string{{}, {"-f", "-", "/x"}, {"-f", "-", "--repository", app}} {
		require.Equal(t, exitUsage, b.feed(list, append([]string{"worktree", "inspect"}, args...)...).code)
	}
}

func TestRuntimeByHand(t *testing.T) {
	t.Parallel()
	b := setup(t)
	wt := filepath.Join(b.root, "wt")
	require.NoError(t, os.Mkdir(wt, 0o700))
	socket := b.tmux("s1", wt)
	rt := teardown.Runtime{Kind: "tmux", Role: "agent", Socket: socket, Session: "s1"}
	bare, err := json.Marshal(rt)
	require.NoError(t, err)
	r := b.feed(string(bare), "runtime", "destroy", "-f", "-")
	require.Equal(t, exitRefused, r.code, "a name alone is no identity: %s", r.stdout)

	kind, err := kinds.All().For(rt)
	require.NoError(t, err)
	rt, err = kind.Pin(t.Context(), rt)
	require.NoError(t, err)
	pinned, err := json.Marshal(map[string]any{"name": "a case", "timeout_s": 5, "runtime": rt})
	require.NoError(t, err)
	b.write("case.json", string(pinned))
	require.Equal(t, "alive", object[probed](t, b.must("runtime", "probe", "-f", "case.json", "--json")).State)
	done := object[destroyed](t, b.must("runtime", "destroy", "-f", "case.json", "--json"))
	require.Equal(t, teardown.RuntimeReleased, done.Outcome)
	require.Contains(t, b.must("runtime", "probe", "-f", "case.json"), "gone")
	require.Contains(t, b.must("runtime", "destroy", "-f", "case.json"), "already gone")
	require.NoFileExists(t, filepath.Join(b.state, "unwind.db"), "no database is needed")

	for name, bad := range map[string]struct {
		object, sentence string
		exit             exitCode
	}{
		"no kind":       {`{"pid":12}`, `the runtime has no "kind"`, exitUsage},
		"unknown kind":  {`{"kind":"vm"}`, `"vm" is not known`, exitRefused},
		"unknown field": {`{"runtime":{"kind":"tmux","name":"x"}}`, `"name" is not a known field`, exitUsage},
		"a list":        {`[]`, `it must be an object`, exitUsage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			r := b.feed(bad.object, "runtime", "destroy", "-f", "-")
			require.Equal(t, bad.exit, r.code)
			require.Contains(t, r.stderr, bad.sentence)
		})
	}
}

func TestPlanChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	clean, dirty := b.worktree(app, "clean"), b.worktree(app, "dirty")
	socket := b.tmux("s1", clean)
	pid, end := b.process("/")
	file, secret := b.write("prompt", "x"), b.write("env", "x")
	b.add(teardown.Manifest{ID: "s1",
		Runtimes:  []teardown.Runtime{{Kind: "tmux", Socket: socket, Session: "s1"}, {Kind: "process", Role: "auxiliary", PID: pid}},
		Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: clean}, {Repository: app, Path: dirty}},
		Resources: []teardown.ResourceSpec{{Kind: "file", Path: file}, {Kind: "secret", Path: secret}}})

	r := b.run("plan", "s1", "--json")
	require.Equal(t, exitDone, r.code, r.stdout)
	made := object[plan](t, r.stdout)
	require.Equal(t, teardown.RuntimeReleased, made.Runtimes[0].Outcome)
	require.Equal(t, teardown.DispositionRemoved, made.Worktrees[0].Disposition, "in use by the runtime only")

	b.write("dirty/note.txt", "x")
	r = b.run("plan", "s1")
	require.Equal(t, exitPreserved, r.code)
	for _, part := range []string{"tmux agent s1: alive, would be ended", clean + ": would be removed", dirty + ": would be kept (untracked)",
		"untracked: note.txt", "file " + file + ": would be kept", "secret " + secret + ": would be cleared"} {
		require.Contains(t, r.stdout, part)
	}
	end()
	require.Equal(t, exitPreserved, b.run("plan", "--all").code)
	for _, path := range []string{clean, dirty, file, secret} {
		require.FileExists(t, strings.Replace(path, clean, clean+"/.git", 1)+map[bool]string{true: "/.git"}[path == dirty])
	}
	detail, err := b.store().SessionDetail(t.Context(), "s1")
	require.NoError(t, err)
	require.Nil(t, detail.Session.TerminatedAt)
	require.Empty(t, detail.Finalizations)

	b.environment = b.environment.with("UNWIND_HOST=h2")
	r = b.run("plan", "s1")
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.stderr, "session s1 belongs to host h1 and this is h2; run `unwind plan s1` there")
	r = b.run("plan", "--all")
	require.Equal(t, exitDone, r.code)
	require.Contains(t, r.stderr, "1 session is of host h1; run `unwind plan --all` there.")
}

// A session whose start was cut off has a runtime of which only the plan is
// known, and a worktree that git may have made without its mark.
func TestPlanOfAHalfStartedSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	making, absent := filepath.Join(b.root, "making"), filepath.Join(b.root, "absent")
	planned, err := process.Kind{}.Plan(teardown.Runtime{Kind: teardown.KindProcess, Role: teardown.RoleAgent})
	require.NoError(t, err)
	_, err = b.store().AddSession(t.Context(), store.NewSession{ID: "s1", Host: "h1", ManifestHash: "x", Starting: true,
		Runtimes: []store.NewRuntime{{ID: "r1", Handle: planned}},
		Worktrees: []store.NewWorktree{
			{ID: "w1", Repository: app, Path: making, Branch: "making", Nonce: "n1"},
			{ID: "w2", Repository: app, Path: absent, Branch: "absent", Nonce: "n2"}}})
	require.NoError(t, err)

	said := b.must("plan", "s1")
	require.Contains(t, said, "process agent without a pid: gone\n  Its start is not complete, and nothing of it was found.")
	for _, path := range []string{making, absent} {
		require.Contains(t, said, path+": already gone")
	}

	b.git(app, "worktree", "add", "-q", "--lock", "--reason", "unwind is making this worktree n1", "-b", "making", making)
	started, err := process.Kind{}.Start(t.Context(), planned, runtime.Launch{Command: []string{"sleep", "600"}, Directory: making})
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = process.Kind{}.Destroy(context.Background(), started, runtime.Options{}) })
	said = b.must("plan", "s1")
	require.Contains(t, said, ": alive, would be ended\n  Its start is not complete; it was found by its tag.")
	require.Contains(t, said, making+": would be removed")
	require.Contains(t, said, absent+": already gone")
	require.FileExists(t, filepath.Join(app, ".git", "worktrees", "making", "locked"), "a plan changes nothing")
}
