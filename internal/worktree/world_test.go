package worktree

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unwind/internal/lock"
	"unwind/teardown"
)

const childMode = "UNWIND_WORKTREE_TEST_CHILD"

var cleanConfig string

// TestMain gives the engine an environment and a user configuration that try to
// mislead it, in every test.
func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		os.Exit(runChild(mode))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	home, err := os.MkdirTemp("", "unwind-worktree-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(home)
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "GIT_") || name == "XDG_CONFIG_HOME" {
			os.Unsetenv(name)
		}
	}
	cleanConfig = filepath.Join(home, "clean")
	clean := "[user]\n\tname = T\n\temail = t@example.invalid\n[init]\n\tdefaultBranch = main\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[advice]\n\tdetachedHead = false\n[protocol \"file\"]\n\tallow = always\n"
	misleading := clean + "[status]\n\tshowUntrackedFiles = no\n[diff]\n\tignoreSubmodules = all\n[core]\n\tcheckStat = minimal\n\ttrustctime = false\n\tignoreCase = true\n"
	for name, text := range map[string]string{"clean": clean, ".gitconfig": misleading} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	for name, value := range map[string]string{
		"HOME": home, "GIT_DIR": "/nonexistent/.git", "GIT_WORK_TREE": "/nonexistent", "GIT_INDEX_FILE": "/nonexistent/index",
		"GIT_OBJECT_DIRECTORY": "/nonexistent/objects", "GIT_CONFIG_COUNT": "1",
		"GIT_CONFIG_KEY_0": "status.showUntrackedFiles", "GIT_CONFIG_VALUE_0": "no", "GIT_CEILING_DIRECTORIES": "/",
	} {
		os.Setenv(name, value)
	}
	return m.Run()
}

// world is a directory with a home, a place for worktrees and one repository.
type world struct {
	t       testing.TB
	root    string
	repo    string
	engine  *Engine
	targets []Target
	// precious are files that must be as they were, wherever the worktree went.
	precious map[string]string
	commits  []string
	canary   string
	pids     []int
}

func newWorld(t testing.TB) *world {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, root: root, precious: map[string]string{}}
	for _, dir := range []string{"home", "wts"} {
		if err := os.Mkdir(w.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.engine = &Engine{Roots: []string{root}, Home: w.path("home"), Locks: lock.Dir(w.path("locks")), LockWait: 10 * time.Second}
	w.repo = w.newRepository("repo")
	t.Cleanup(w.makeDeletable)
	return w
}

// makeDeletable lets t.TempDir's own cleanup into directories without
// permissions.
func (w *world) makeDeletable() {
	_ = filepath.WalkDir(w.root, func(path string, entry fs.DirEntry, _ error) error {
		if entry != nil && entry.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
}

func (w *world) path(elements ...string) string {
	return filepath.Join(append([]string{w.root}, elements...)...)
}

func (w *world) git(dir string, args ...string) string {
	w.t.Helper()
	out, err := w.tryGit(dir, args...)
	if err != nil {
		w.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

func (w *world) tryGit(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "GIT_") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, "GIT_CONFIG_GLOBAL="+cleanConfig, "GIT_CONFIG_NOSYSTEM=1", "GIT_EDITOR=true", "GIT_MERGE_AUTOEDIT=no",
		"GIT_AUTHOR_DATE=2024-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2024-01-01T00:00:00Z")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// tryShell runs a line of shell in git's clean environment.
func (w *world) tryShell(line string) (string, error) {
	cmd := exec.Command("sh", "-c", line)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_GLOBAL=" + cleanConfig, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (w *world) newRepository(name string) string {
	w.t.Helper()
	dir := w.path(name)
	w.git(w.root, "init", "-q", dir)
	w.put(filepath.Join(dir, "README.md"), name)
	w.put(filepath.Join(dir, "src/app.txt"), "app v1")
	w.put(filepath.Join(dir, "src/lib.txt"), "lib v1")
	w.put(filepath.Join(dir, ".gitignore"), "node_modules/\nbuild/\n.venv/\n__pycache__/\n.env\n*.log\n*.sqlite\nscratch/\n.worktrees/")
	w.save(dir, "base")
	return dir
}

func (w *world) put(path, text string) {
	w.t.Helper()
	w.do(os.MkdirAll(filepath.Dir(path), 0o755))
	w.do(os.WriteFile(path, []byte(text+"\n"), 0o644))
}

func (w *world) appendTo(path, text string) {
	w.t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	w.do(err)
	_, err = file.WriteString(text + "\n")
	w.do(errors.Join(err, file.Close()))
}

func (w *world) do(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) save(dir, message string) {
	w.t.Helper()
	w.git(dir, "add", "-A")
	w.git(dir, "commit", "-q", "--no-verify", "-m", message)
}

// commit adds one file and answers the commit.
func (w *world) commit(dir, name string) string {
	w.t.Helper()
	w.put(filepath.Join(dir, name), "content of "+name)
	w.git(dir, "add", "--", name)
	w.git(dir, "commit", "-q", "--no-verify", "-m", "add "+name)
	return w.git(dir, "rev-parse", "HEAD")
}

// worktree adds a worktree on a new branch and makes it a target.
func (w *world) worktree(name string) string {
	w.t.Helper()
	return w.worktreeAt(w.path("wts", name), name)
}

func (w *world) worktreeAt(path, branch string) string {
	w.t.Helper()
	w.git(w.repo, "worktree", "add", "-q", "-b", branch, path)
	w.target(path)
	return path
}

// sparse makes a worktree in which a file is not checked out, as git was told to,
// so that git has to be asked about more than the commit and the index.
func (w *world) sparse(name string) string {
	w.t.Helper()
	dir := w.worktree(name)
	w.git(dir, "update-index", "--skip-worktree", "src/lib.txt")
	w.do(os.Remove(filepath.Join(dir, "src/lib.txt")))
	return dir
}

func (w *world) detached(name string) string {
	w.t.Helper()
	path := w.path("wts", name)
	w.git(w.repo, "worktree", "add", "-q", "--detach", path)
	w.target(path)
	return path
}

// withGitlink adds a worktree whose commit has a submodule that was never
// checked out, at sub.
func (w *world) withGitlink(name string) string {
	w.t.Helper()
	a := w.worktree(name)
	w.git(a, "update-index", "--add", "--cacheinfo", "160000,"+w.git(a, "rev-parse", "HEAD")+",sub")
	w.git(a, "commit", "-q", "-m", "submodule")
	w.do(os.Mkdir(filepath.Join(a, "sub"), 0o755))
	return a
}

func (w *world) target(path string) {
	w.targets = append(w.targets, Target{Repository: w.repo, Path: path})
}

func (w *world) admin(dir string) string { return w.git(dir, "rev-parse", "--absolute-git-dir") }

// keep says that files must not change, whatever happens.
func (w *world) keep(paths ...string) {
	w.t.Helper()
	for _, path := range paths {
		w.precious[path] = w.sum(path)
	}
}

func (w *world) keepCommit(oid string) { w.commits = append(w.commits, oid) }

func (w *world) sum(path string) string {
	w.t.Helper()
	content, err := os.ReadFile(path)
	w.do(err)
	return fmt.Sprintf("%x", sha256.Sum256(content))
}

// program installs an executable file. Another process writes it: as long as we
// had it open, a child that another test forks meanwhile would have it open too,
// and nothing that is open for writing can be run.
func (w *world) program(path, source string) {
	w.t.Helper()
	w.do(exec.Command("install", "-m", "755", source, path).Run())
}

// trap answers a program that must never be run.
func (w *world) trap() string {
	w.t.Helper()
	w.canary = w.path("home", "canary")
	program := w.path("home", "trap.sh")
	w.put(program+".text", "#!/bin/sh\necho run >> '"+w.canary+"'\ncat")
	w.program(program, program+".text")
	return program
}

// hold starts a process that stands in dir.
func (w *world) hold(dir string) *exec.Cmd {
	w.t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.Dir = dir
	w.start(cmd)
	return cmd
}

func (w *world) start(cmd *exec.Cmd) {
	w.t.Helper()
	w.do(cmd.Start())
	w.pids = append(w.pids, cmd.Process.Pid)
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// snapshot describes every file below root, except lock files.
func (w *world) snapshot(roots ...string) map[string]string {
	w.t.Helper()
	state := map[string]string{}
	for _, root := range roots {
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if path == string(w.engine.Locks) {
				return fs.SkipDir
			}
			if err != nil {
				state[path] = "unreadable"
				return nil
			}
			info, err := entry.Info()
			if err != nil {
				state[path] = "gone"
				return nil
			}
			state[path] = info.Mode().String() + " " + w.describe(path, info)
			return nil
		})
	}
	return state
}

func (w *world) describe(path string, info fs.FileInfo) string {
	switch {
	case info.Mode().IsRegular():
		content, err := os.ReadFile(path)
		if err != nil {
			return "unreadable"
		}
		return fmt.Sprintf("%x", sha256.Sum256(content))
	case info.Mode()&fs.ModeSymlink != 0:
		target, _ := os.Readlink(path)
		return target
	}
	return ""
}

func differences(before, after map[string]string) []string {
	var all []string
	for path, was := range before {
		if is := after[path]; is != was {
			all = append(all, fmt.Sprintf("%q: was %q, is %q", path, was, is))
		}
	}
	for path := range after {
		if _, found := before[path]; !found {
			all = append(all, fmt.Sprintf("%q is new", path))
		}
	}
	return all
}

// verdict is disposition and code of a report in one word.
func verdict(r Report) string {
	if r.Code == "" {
		return string(r.Disposition)
	}
	return string(r.Disposition) + ":" + string(r.Code)
}

// removeAll inspects and removes all targets, and checks what holds in every
// case: an inspection changes nothing and says what the removal will say, what
// stays is untouched, and nothing precious is lost.
func (w *world) removeAll() []Report {
	w.t.Helper()
	ctx := context.Background()
	refs := w.refs()
	before := w.snapshot(w.root)
	foreseen := w.engine.InspectAll(ctx, w.targets, AllHooks{})
	if changed := differences(before, w.snapshot(w.root)); len(changed) > 0 {
		w.t.Errorf("the inspection changed something:\n%s", strings.Join(changed, "\n"))
	}
	reports := w.engine.RemoveAll(ctx, w.targets, AllHooks{})
	stayed := true
	for i, report := range reports {
		if verdict(report) != verdict(foreseen[i]) {
			w.t.Errorf("inspection of %q says %s, removal %s", report.Path, verdict(foreseen[i]), verdict(report))
		}
		w.checkReport(report)
		stayed = stayed && report.Disposition != teardown.DispositionRemoved && report.Disposition != teardown.DispositionAlreadyGone
	}
	if changed := differences(before, w.snapshot(w.root)); stayed && len(changed) > 0 {
		w.t.Errorf("nothing was removed, but something changed:\n%s", strings.Join(changed, "\n"))
	}
	w.checkNothingLost(refs)
	return reports
}

func (w *world) refs() map[string]string {
	refs := map[string]string{}
	out, _ := w.tryGit(w.repo, "for-each-ref", "--format=%(refname) %(objectname)")
	for line := range strings.Lines(out) {
		name, oid, _ := strings.Cut(strings.TrimSpace(line), " ")
		refs[name] = oid
	}
	return refs
}

func (w *world) checkReport(r Report) {
	w.t.Helper()
	if r.Message == "" || len(r.Details) > teardown.MaxDetails+1 {
		w.t.Errorf("report of %q: message %q, %d details", r.Path, r.Message, len(r.Details))
	}
	if r.Disposition != teardown.DispositionRemoved && r.Disposition != teardown.DispositionAlreadyGone && len(r.Details) == 0 {
		w.t.Errorf("report of %q names nothing: %s", r.Path, r.Message)
	}
	if r.Disposition == teardown.DispositionRemoved {
		if _, err := os.Lstat(r.Path); err == nil {
			w.t.Errorf("%q is reported as removed and still there", r.Path)
		}
	}
}

// linkedRefs are shared refs in a directory that is the worktree's own.
const linkedRefs = "refs/heads/linked/"

// linkRefs makes refs of a worktree's own shared ones, too, for as long as it is
// there.
func (w *world) linkRefs(worktree string) {
	w.do(os.Symlink(filepath.Join(w.admin(worktree), "refs/worktree"), filepath.Join(w.repo, ".git", linkedRefs[:len(linkedRefs)-1])))
}

func (w *world) checkNothingLost(refs map[string]string) {
	w.t.Helper()
	// Git does not like it when it leads nowhere.
	_ = os.Remove(filepath.Join(w.repo, ".git", linkedRefs[:len(linkedRefs)-1]))
	for path, sum := range w.precious {
		if content, err := os.ReadFile(path); err != nil || fmt.Sprintf("%x", sha256.Sum256(content)) != sum {
			w.t.Errorf("%q is lost or changed (%v)", path, err)
		}
	}
	for _, pid := range w.pids {
		if err := unix.Kill(pid, 0); err != nil {
			w.t.Errorf("process %d was killed", pid)
		}
	}
	if w.canary != "" {
		if _, err := os.Lstat(w.canary); err == nil {
			w.t.Error("a program that the repository names was run")
		}
	}
	now := w.refs()
	for name, oid := range refs {
		if now[name] != oid && !strings.HasPrefix(name, "refs/worktree/") && !strings.HasPrefix(name, linkedRefs) {
			w.t.Errorf("%s was %s and is %q", name, oid, now[name])
		}
	}
	if len(w.commits) > 0 {
		w.git(w.repo, "reflog", "expire", "--expire=now", "--all")
		w.git(w.repo, "gc", "--prune=now", "--quiet")
		for _, oid := range w.commits {
			w.git(w.repo, "cat-file", "-e", oid)
		}
	}
	w.checkLeftovers()
}

// checkLeftovers: no quarantine and no half-dropped registration stays behind.
func (w *world) checkLeftovers() {
	w.t.Helper()
	_ = filepath.WalkDir(w.root, func(path string, entry fs.DirEntry, _ error) error {
		if entry != nil && (strings.Contains(entry.Name(), quarantineMark) || strings.HasPrefix(entry.Name(), droppedMark) || entry.Name() == journalFile) {
			w.t.Errorf("%q was left behind", path)
		}
		return nil
	})
}
