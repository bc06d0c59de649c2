package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/lock"
	"unwind/internal/store"
	"unwind/teardown"
)

func TestSessionAddPinsEverything(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app, lib := b.repository("app"), b.repository("lib")
	wt := b.worktree(app, "wt")
	child := b.worktree(lib, "wt/lib")
	socket := b.tmux("s1", wt)
	pid, end := b.process("/")
	secret := b.write("env", "TOKEN=x")
	content := b.add(teardown.Manifest{
		ID: "s1",
		Runtimes: []teardown.Runtime{
			{Kind: "tmux", Role: "agent", Socket: socket, Session: "s1"},
			{Kind: "process", Role: "auxiliary", PID: pid},
		},
		Worktrees: []teardown.WorktreeSpec{{Repository: lib, Path: child, Parent: wt}, {Repository: app, Path: wt + "/"}},
		Resources: []teardown.ResourceSpec{{Kind: "secret", Path: secret}},
	})

	detail, err := b.store().SessionDetail(t.Context(), "s1")
	require.NoError(t, err)
	require.Equal(t, "h1", detail.Session.Host)
	require.Nil(t, detail.Session.TerminatedAt)
	require.Len(t, detail.Worktrees, 2)
	parent, nested := detail.Worktrees[0].Worktree, detail.Worktrees[1].Worktree
	require.Equal(t, []string{wt, child}, []string{parent.Path, nested.Path})
	require.Equal(t, parent.ID, nested.ParentID)
	require.Equal(t, "wt", parent.Branch)
	require.NotEmpty(t, parent.Nonce)
	require.Len(t, detail.Runtimes, 2)
	tmux, other := detail.Runtimes[0].Handle.V, detail.Runtimes[1].Handle.V
	require.NotEmpty(t, tmux.Identity.SessionID)
	require.NotEmpty(t, tmux.Identity.Tag)
	require.Equal(t, child, tmux.Identity.Worktree, "the first worktree of the manifest")
	require.Positive(t, other.StartTime)

	t.Run("again is a no-op, also when the runtime is gone", func(t *testing.T) {
		t.Parallel()
		b := b.in(t)
		end()
		r := b.feed(content, "session", "add", "-f", "-", "--json")
		require.Equal(t, exitDone, r.code, r.stderr)
		require.False(t, object[addedSession](t, r.stdout).Added)
	})
	t.Run("other content is a conflict", func(t *testing.T) {
		t.Parallel()
		b := b.in(t)
		r := b.feed(`{"id":"s1"}`, "session", "add", "-f", "-", "--json")
		require.Equal(t, exitRefused, r.code)
		require.Equal(t, teardown.CodeConflict, object[printedError](t, r.stdout).Error.Code)
		require.Contains(t, r.stderr, "already registered with another manifest")
	})
	t.Run("a path that is held is a conflict", func(t *testing.T) {
		t.Parallel()
		b := b.in(t)
		r := b.feed(b.manifest(teardown.Manifest{ID: "s2", Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: wt}}}),
			"session", "add", "-f", "-")
		require.Equal(t, exitRefused, r.code)
		require.Contains(t, r.stderr, "held by session s1")
	})
	t.Run("a worktree inside another session's", func(t *testing.T) {
		t.Parallel()
		b := b.in(t)
		inner := b.worktree(app, "wt/inner")
		b.add(teardown.Manifest{ID: "s3", Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: inner, Parent: wt}}})
		detail, err := b.store().SessionDetail(t.Context(), "s3")
		require.NoError(t, err)
		require.Equal(t, parent.ID, detail.Worktrees[0].Worktree.ParentID)
	})
}

// Two that add the same at once: one registers it, to the others it is known.
func TestSessionAddOfTheSameAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	wt := b.worktree(app, "wt")
	b.store()
	b.environment = b.environment.with("UNWIND_LOCK_WAIT=2m")
	content := b.manifest(teardown.Manifest{ID: "s1", Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: wt}}})
	const callers = 8
	answers := make(chan ran, callers)
	for range callers {
		go func() { answers <- b.feed(content, "session", "add", "-f", "-", "--json") }()
	}
	added := 0
	for range callers {
		r := <-answers
		require.Equal(t, exitDone, r.code, r.stderr)
		if object[addedSession](t, r.stdout).Added {
			added++
		}
	}
	require.Equal(t, 1, added)
}

func TestSessionAddOfASessionThatIsOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	finish(t, b, b.store(), "s1")
	content := b.manifest(teardown.Manifest{ID: "s1"})
	r := b.feed(content, "session", "add", "-f", "-")
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Equal(t, "Session s1 is finished, so nothing is registered; a new run needs another id.\n", r.stdout)
	again := object[addedSession](t, b.feed(content, "session", "add", "-f", "-", "--json").stdout)
	require.False(t, again.Added)
	require.Equal(t, store.StateFinished, again.State)

	content = b.add(teardown.Manifest{ID: "s2"})
	b.must("terminate", "s2")
	require.Contains(t, b.feed(content, "session", "add", "-f", "-").stdout, "was terminated; a new run needs another id")
}

func TestSessionAddWithoutAnything(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.feed(`{"id":"s1"}`, "session", "add", "-f", "-")
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Equal(t, "Registered session s1 on host h1: 0 runtimes, 0 worktrees, 0 resources.\n", r.stdout)
}

// A directory that was made anew at the path of a row that nobody holds is
// another worktree: the row is retired, the new one registered.
func TestSessionAddRetiresWhatIsNotThereAnyMore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	wt := b.worktree(app, "wt")
	m := teardown.Manifest{ID: "s1", Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: wt}}}
	b.add(m)
	s := b.store()
	preserve(t, s, "s1")

	m.ID = "s2"
	r := b.feed(b.manifest(m), "session", "add", "-f", "-")
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.stderr, "still registered, in state preserved; see `unwind status s1`")

	b.git(app, "worktree", "remove", "--force", wt)
	b.git(app, "worktree", "add", "-q", "-b", "again", wt)
	b.add(m)
	before, err := s.SessionDetail(t.Context(), "s1")
	require.NoError(t, err)
	after, err := s.SessionDetail(t.Context(), "s2")
	require.NoError(t, err)
	require.Equal(t, store.WorktreeRemoved, before.Worktrees[0].Worktree.State)
	require.Equal(t, store.WorktreeActive, after.Worktrees[0].Worktree.State)
	require.NotEqual(t, before.Worktrees[0].Worktree.Nonce, after.Worktrees[0].Worktree.Nonce)
}

// preserve takes a session without runtimes through a finalization that keeps
// its one worktree.
func preserve(t *testing.T, s *store.Store, id string) {
	t.Helper()
	_, _, err := s.Terminate(t.Context(), id, "test")
	require.NoError(t, err)
	begun, err := s.Begin(t.Context(), teardown.BeginInput{SessionID: id, WorkflowID: teardown.FinalizeSessionID(id)})
	require.NoError(t, err)
	plan, err := s.ReleaseLeases(t.Context(), begun.Step)
	require.NoError(t, err)
	require.Len(t, plan.Removals, 1)
	worktree := plan.Removals[0].WorktreeID
	claim, err := s.Claim(t.Context(), begun.Step, worktree)
	require.NoError(t, err)
	require.True(t, claim.Go)
	_, err = s.Preserved(t.Context(), begun.Step, worktree, teardown.WorktreeResult{
		Disposition: teardown.DispositionPreserved, Code: teardown.CodeUntracked, Details: []string{"a.txt"}, Bytes: 2048}, false)
	require.NoError(t, err)
	_, err = s.Park(t.Context(), teardown.ParkInput{Step: begun.Step, Reason: teardown.ReasonPreserved,
		Failure: teardown.Failure{Code: teardown.CodeUntracked, Message: "Worktree was kept: untracked (a.txt)"}})
	require.NoError(t, err)
}

func TestSessionAddWaitsForThePathLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	wt := b.worktree(app, "wt")
	held, err := lock.Dir(filepath.Join(b.state, "locks")).Path(t.Context(), wt, lock.Wait{})
	require.NoError(t, err)
	defer held.Release()
	r := b.feed(b.manifest(teardown.Manifest{ID: "s1", Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: wt}}}),
		"session", "add", "-f", "-")
	require.Equal(t, exitRetryable, r.code)
	require.Contains(t, r.stderr, "somebody else is working on")
}

// badManifest is one input, the sentence that it is answered with, and the code.
type badManifest struct {
	name string
	// @WT is a worktree of repository @APP, @LIB one inside it, @ROOT the root.
	manifest string
	sentence string
	code     teardown.Code
	exit     exitCode
}

var badManifests = []badManifest{
	{"empty", ``, `the manifest is empty; docs/manifest.md shows`, teardown.CodeInvalidManifest, exitUsage},
	{"not JSON", "{\n\"id\": s1}", `line 2 of the manifest is not JSON`, teardown.CodeInvalidManifest, exitUsage},
	{"cut off", `{"id":"s1"`, `it is cut off`, teardown.CodeInvalidManifest, exitUsage},
	{"a list", `[{"id":"s1"}]`, `it must be an object, not a list`, teardown.CodeInvalidManifest, exitUsage},
	{"trailing garbage", `{"id":"s1"} {}`, `more after the end`, teardown.CodeInvalidManifest, exitUsage},
	{"unknown field", `{"id":"s1","worktree":[]}`, `"worktree" is not a known field; use id, host, task_id, runtimes, worktrees, resources`, teardown.CodeInvalidManifest, exitUsage},
	{"unknown nested field", `{"id":"s1","runtimes":[{"kind":"tmux","identity":{"pid":1}}]}`, `"runtimes[0].identity.pid" is not a known field`, teardown.CodeInvalidManifest, exitUsage},
	{"field in another case", `{"ID":"s1"}`, `"ID" is not a known field`, teardown.CodeInvalidManifest, exitUsage},
	{"field twice", `{"id":"s1","id":"s2"}`, `"id" is given twice`, teardown.CodeInvalidManifest, exitUsage},
	{"wrong type", `{"id":"s1","runtimes":[{"kind":"process","pid":"12"}]}`, `"runtimes.pid" must be a whole number, not a string`, teardown.CodeInvalidManifest, exitUsage},
	{"list for an object", `{"id":"s1","runtimes":{"kind":"tmux"}}`, `"runtimes" must be a list, not an object`, teardown.CodeInvalidManifest, exitUsage},
	{"no id", `{}`, `the manifest has no "id"`, teardown.CodeInvalidManifest, exitUsage},
	{"ill-formed id", `{"id":"a/b"}`, `"a/b" is not a valid id`, teardown.CodeInvalidID, exitUsage},
	{"ill-formed task", `{"id":"s1","task_id":"a b"}`, `task_id: "a b" is not a valid id`, teardown.CodeInvalidID, exitUsage},
	{"another host", `{"id":"s1","host":"h2"}`, `the manifest of session s1 is for host h2 and this is h1; run`, teardown.CodeForeignHost, exitRefused},
	{"too many", `{"id":"s1","resources":[` + strings.Repeat(`{},`, maxThings) + `{}]}`, `a session holds at most 1000`, teardown.CodeInvalidManifest, exitUsage},

	{"no kind", `{"id":"s1","runtimes":[{}]}`, `runtimes[0] has no "kind"`, teardown.CodeInvalidManifest, exitUsage},
	{"unknown kind", `{"id":"s1","runtimes":[{"kind":"vm"}]}`, `kind "vm" is not known; use "tmux" or "process"`, teardown.CodeInvalidManifest, exitUsage},
	{"unknown role", `{"id":"s1","runtimes":[{"kind":"process","pid":12,"role":"boss"}]}`, `role "boss" is not known`, teardown.CodeInvalidManifest, exitUsage},
	{"tmux with a pid", `{"id":"s1","runtimes":[{"kind":"tmux","pid":12}]}`, `belong to a runtime of kind "process"`, teardown.CodeInvalidManifest, exitUsage},
	{"tmux without a socket", `{"id":"s1","runtimes":[{"kind":"tmux","session":"s"}]}`, `needs "socket"`, teardown.CodeInvalidManifest, exitUsage},
	{"relative socket", `{"id":"s1","runtimes":[{"kind":"tmux","session":"s","socket":"x"}]}`, `runtimes[0].socket is relative (x)`, teardown.CodeInvalidManifest, exitUsage},
	{"process 1", `{"id":"s1","runtimes":[{"kind":"process","pid":1}]}`, `needs "pid", a number above 1`, teardown.CodeInvalidManifest, exitUsage},
	{"runtime twice", `{"id":"s1","runtimes":[{"kind":"process","pid":12},{"kind":"process","pid":12,"role":"auxiliary"}]}`, `runtimes[1] is the same runtime as runtimes[0]`, teardown.CodeInvalidManifest, exitUsage},
	{"runtime that is not there", `{"id":"s1","runtimes":[{"kind":"tmux","socket":"@ROOT/none","session":"s"}]}`, `runtimes[0]: `, teardown.CodeRuntimeUnroutable, exitRefused},

	{"no path", `{"id":"s1","worktrees":[{"repository":"@APP"}]}`, `worktrees[0].path is missing`, teardown.CodeInvalidManifest, exitUsage},
	{"no repository", `{"id":"s1","worktrees":[{"path":"@WT"}]}`, `worktrees[0].repository is missing`, teardown.CodeInvalidManifest, exitUsage},
	{"relative path", `{"id":"s1","worktrees":[{"repository":"@APP","path":"wt"}]}`, `worktrees[0].path is relative (wt); give an absolute path`, teardown.CodeInvalidManifest, exitUsage},
	{"dots", `{"id":"s1","worktrees":[{"repository":"@APP","path":"@WT/../wt"}]}`, `holds ".."`, teardown.CodeInvalidManifest, exitUsage},
	{"NUL", `{"id":"s1","worktrees":[{"repository":"@APP","path":"@WT\u0000"}]}`, `is not UTF-8 or holds a NUL character`, teardown.CodePathNotUTF8, exitUsage},
	{"not UTF-8", "{\"id\":\"s1\",\n\"worktrees\":[{\"repository\":\"@APP\",\"path\":\"@WT\xff\"}]}", `line 2 of the manifest holds a name that is not UTF-8`, teardown.CodePathNotUTF8, exitUsage},
	{"half a character", `{"id":"s1","worktrees":[{"repository":"@APP","path":"@WT\udcff"}]}`, `a name that is not UTF-8`, teardown.CodePathNotUTF8, exitUsage},
	{"path twice", `{"id":"s1","worktrees":[{"repository":"@APP","path":"@WT"},{"repository":"@APP","path":"@WT/"}]}`, `worktrees[1] has the same path as worktrees[0]`, teardown.CodeInvalidManifest, exitUsage},
	{"directory twice", `{"id":"s1","worktrees":[{"repository":"@APP","path":"@WT"},{"repository":"@APP","path":"@ROOT/link/wt"}]}`, `worktrees[1] is the same directory as worktrees[0]`, teardown.CodeInvalidManifest, exitUsage},
	{"parent cycle", `{"id":"s1","worktrees":[{"repository":"@APP","path":"@WT","parent":"@LIB"},{"repository":"@APP","path":"@LIB","parent":"@WT"}]}`, `the parents go in a circle`, teardown.CodeInvalidManifest, exitUsage},
	{"its own parent", `{"id":"s1","worktrees":[{"repository":"@APP","path":"@WT","parent":"@WT"}]}`, `the parents go in a circle`, teardown.CodeInvalidManifest, exitUsage},
	{"parent elsewhere", `{"id":"s1","worktrees":[{"repository":"@APP","path":"@WT","parent":"@ROOT/other"}]}`, `does not contain`, teardown.CodeInvalidManifest, exitUsage},
	{"parent that is none", `{"id":"s1","worktrees":[{"repository":"@APP","path":"@WT","parent":"@ROOT"}]}`, `is no registered worktree and none of this manifest`, teardown.CodeInvalidManifest, exitUsage},
	{"no repository there", `{"id":"s1","worktrees":[{"repository":"@ROOT/plain","path":"@WT"}]}`, `@ROOT/plain`, "", exitRefused},
	{"no worktree there", `{"id":"s1","worktrees":[{"repository":"@APP","path":"@ROOT/none"}]}`, `there is no worktree at @ROOT/none; make one with ` + "`git worktree add`", teardown.CodeWorktreeMissing, exitRefused},
	{"plain directory", `{"id":"s1","worktrees":[{"repository":"@APP","path":"@ROOT/plain"}]}`, `@ROOT/plain`, "", exitRefused},
	{"main working tree", `{"id":"s1","worktrees":[{"repository":"@APP","path":"@APP"}]}`, `register the session without this worktree`, teardown.CodeMainWorktree, exitRefused},
	{"outside of the roots", `{"id":"s1","worktrees":[{"repository":"@APP","path":"/usr/lib"}]}`, `UNWIND_ROOTS`, teardown.CodeOutsideRoots, exitRefused},
	{"the root itself", `{"id":"s1","worktrees":[{"repository":"@APP","path":"@ROOT"}]}`, `@ROOT`, teardown.CodeOutsideRoots, exitRefused},

	{"resource without a kind", `{"id":"s1","resources":[{"path":"@ROOT/r"}]}`, `resources[0] has no "kind"`, teardown.CodeInvalidManifest, exitUsage},
	{"unknown resource", `{"id":"s1","resources":[{"kind":"socket","path":"@ROOT/r"}]}`, `kind "socket" is not known`, teardown.CodeInvalidManifest, exitUsage},
	{"resource twice", `{"id":"s1","resources":[{"kind":"file","path":"@ROOT/r"},{"kind":"secret","path":"@ROOT/r"}]}`, `resources[1] has the same path as resources[0]`, teardown.CodeInvalidManifest, exitUsage},
	{"resource outside of the roots", `{"id":"s1","resources":[{"kind":"file","path":"/etc/hostname"}]}`, `resources[0]: `, teardown.CodeOutsideRoots, exitRefused},
	{"resource around a worktree", `{"id":"s1","worktrees":[{"repository":"@APP","path":"@WT"}],"resources":[{"kind":"dir","path":"@WT"}]}`, `a resource may not hold a worktree`, teardown.CodeInvalidManifest, exitUsage},
}

// Nothing is registered, and nothing that exists is touched, by a manifest that
// cannot be carried out.
func TestSessionAddRefusesBadManifests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// All of them add the same session at the same time.
	b.environment = b.environment.with("UNWIND_LOCK_WAIT=1m")
	app := b.repository("app")
	wt := b.worktree(app, "wt")
	lib := b.worktree(app, "wt/lib")
	require.NoError(t, os.Mkdir(filepath.Join(b.root, "plain"), 0o700))
	require.NoError(t, os.Symlink(b.root, filepath.Join(b.root, "link")))
	s := b.store()
	fill := strings.NewReplacer("@APP", app, "@WT", wt, "@LIB", lib, "@ROOT", b.root)
	for _, bad := range badManifests {
		t.Run(bad.name, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			r := b.feed(fill.Replace(bad.manifest), "session", "add", "-f", "-", "--json")
			require.Equal(t, bad.exit, r.code, r.stderr)
			require.True(t, strings.HasPrefix(r.stderr, "unwind: "), r.stderr)
			require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
			require.Contains(t, r.stderr, fill.Replace(bad.sentence))
			if code := object[printedError](t, r.stdout).Error.Code; bad.code != "" {
				require.Equal(t, bad.code, code, r.stderr)
			}
			sessions, err := s.Sessions(t.Context(), store.SessionFilter{})
			require.NoError(t, err)
			require.Empty(t, sessions)
			require.DirExists(t, lib)
		})
	}
}

func TestSessionAddReadsOnlyWhatItCan(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, bad := range map[string]struct {
		args     []string
		stdin    string
		sentence string
	}{
		"no file":   {nil, "", "name a file with -f"},
		"missing":   {[]string{"-f", "none.json"}, "", "none.json cannot be read"},
		"directory": {[]string{"-f", "."}, "", "is a directory"},
		"too long":  {[]string{"-f", "-"}, strings.Repeat(" ", maxInput+1), "is longer than 4.0 MiB"},
		"argument":  {[]string{"x.json"}, "", "takes no arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			r := b.feed(bad.stdin, append([]string{"session", "add"}, bad.args...)...)
			require.Equal(t, exitUsage, r.code)
			require.Contains(t, r.stderr, bad.sentence)
		})
	}
	b.write("s1.json", `{"id":"s1"}`)
	b.must("session", "add", "-f", "s1.json")
}
