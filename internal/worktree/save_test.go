package worktree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unwind/teardown"
)

// state is what a save and a recovery have to give back: every file that is not
// git's, with its permissions and bytes, and the index with its flags.
type state struct {
	files  map[string]string
	index  string
	staged string
}

// stateOf leaves out empty directories, what git ignores, and what holds no
// data: no commit can hold them.
func (w *world) stateOf(dir string) state {
	w.t.Helper()
	s := state{files: map[string]string{}, index: w.git(dir, "ls-files", "-s", "-v", "-z"),
		staged: w.git(dir, "diff", "--cached", "--raw", "--no-renames", "-z", "--no-abbrev")}
	ignored := map[string]bool{}
	for _, path := range strings.Split(w.git(dir, "ls-files", "-o", "-i", "--exclude-standard", "-z"), "\x00") {
		ignored[path] = true
	}
	for path, is := range w.snapshot(dir) {
		name := strings.TrimPrefix(strings.TrimPrefix(path, dir), "/")
		if kind := is[0]; name == "" || name == ".git" || ignored[name] || kind != '-' && kind != 'L' {
			continue
		}
		s.files[name] = is
	}
	return s
}

func (w *world) requireState(want, got state) {
	w.t.Helper()
	if unlike := want.unlike(got); unlike != "" {
		w.t.Error(unlike)
	}
}

// unlike says how two states differ, "" if they do not.
func (s state) unlike(got state) string {
	all := differences(s.files, got.files)
	if s.index != got.index {
		all = append(all, fmt.Sprintf("index was\n%q, is\n%q", s.index, got.index))
	}
	if s.staged != got.staged {
		all = append(all, fmt.Sprintf("staged was %q, is %q", s.staged, got.staged))
	}
	return strings.Join(all, "\n")
}

func (w *world) removeSaving() Report {
	w.t.Helper()
	return w.engine.RemoveAll(context.Background(), w.targets, AllHooks{SaveChanges: true})[0]
}

func (w *world) recover(options RecoverOptions) Recovered {
	w.t.Helper()
	options.Repository = w.repo
	recovered, err := w.engine.Recover(context.Background(), options)
	w.do(err)
	return recovered
}

// saveScenario is a state that a commit can hold.
type saveScenario struct {
	name  string
	build func(w *world, a string)
}

var saveScenarios = []saveScenario{
	{"edit", func(w *world, a string) { w.appendTo(filepath.Join(a, "src/app.txt"), "edit") }},
	{"edit that is staged", func(w *world, a string) {
		w.appendTo(filepath.Join(a, "src/app.txt"), "edit")
		w.git(a, "add", "-A")
	}},
	{"edit on top of a staged one", func(w *world, a string) {
		w.appendTo(filepath.Join(a, "src/app.txt"), "staged")
		w.git(a, "add", "-A")
		w.appendTo(filepath.Join(a, "src/app.txt"), "and not staged")
	}},
	{"staged and taken back on disk", func(w *world, a string) {
		w.appendTo(filepath.Join(a, "src/app.txt"), "staged")
		w.git(a, "add", "-A")
		w.put(filepath.Join(a, "src/app.txt"), "app v1")
	}},
	{"untracked", func(w *world, a string) { w.put(filepath.Join(a, "deep/er/new.txt"), "new") }},
	{"empty file", func(w *world, a string) { w.do(os.WriteFile(filepath.Join(a, "empty"), nil, 0o644)) }},
	{"two equal files", func(w *world, a string) {
		w.put(filepath.Join(a, "one"), "equal")
		w.put(filepath.Join(a, "two"), "equal")
	}},
	{"binary", func(w *world, a string) {
		w.do(os.WriteFile(filepath.Join(a, "binary"), []byte("\x00\x01\r\n\xff\x00"), 0o644))
	}},
	{"large", func(w *world, a string) {
		w.do(os.WriteFile(filepath.Join(a, "large"), []byte(strings.Repeat("0123456789abcdef", 1<<18)), 0o644))
	}},
	{"new file that is staged and gone from disk", func(w *world, a string) {
		w.put(filepath.Join(a, "new.txt"), "new")
		w.git(a, "add", "-A")
		w.do(os.Remove(filepath.Join(a, "new.txt")))
	}},
	{"deleted on disk", func(w *world, a string) { w.do(os.Remove(filepath.Join(a, "src/app.txt"))) }},
	{"deleted in the index", func(w *world, a string) { w.git(a, "rm", "-q", "--cached", "src/app.txt") }},
	{"deleted in both", func(w *world, a string) { w.git(a, "rm", "-q", "src/app.txt") }},
	{"everything deleted", func(w *world, a string) { w.git(a, "rm", "-rq", ".") }},
	{"renamed in the index", func(w *world, a string) { w.git(a, "mv", "src/app.txt", "src/renamed.txt") }},
	{"renamed on disk", func(w *world, a string) {
		w.do(os.Rename(filepath.Join(a, "src/app.txt"), filepath.Join(a, "renamed.txt")))
	}},
	{"mode", func(w *world, a string) { w.do(os.Chmod(filepath.Join(a, "src/app.txt"), 0o755)) }},
	{"mode that is staged and taken back", func(w *world, a string) {
		w.git(a, "update-index", "--chmod=+x", "src/app.txt")
	}},
	{"mode that git is told to ignore", func(w *world, a string) {
		w.git(w.repo, "config", "core.fileMode", "false")
		w.appendTo(filepath.Join(a, "src/app.txt"), "edit")
		w.do(os.Chmod(filepath.Join(a, "src/app.txt"), 0o755))
	}},
	{"private file", func(w *world, a string) {
		w.put(filepath.Join(a, "secret.txt"), "secret")
		w.do(os.Chmod(filepath.Join(a, "secret.txt"), 0o600))
	}},
	{"executable that only the owner may run", func(w *world, a string) {
		w.put(filepath.Join(a, "run.sh"), "run")
		w.do(os.Chmod(filepath.Join(a, "run.sh"), 0o700))
	}},
	{"links", func(w *world, a string) {
		w.do(os.Symlink("README.md", filepath.Join(a, "link")))
		w.do(os.Symlink("/nonexistent", filepath.Join(a, "src/broken")))
		w.do(os.Symlink("src", filepath.Join(a, "directory")))
		w.do(os.Symlink(strings.Repeat("x", 300), filepath.Join(a, "long")))
	}},
	{"file that became a link", func(w *world, a string) {
		w.do(os.Remove(filepath.Join(a, "src/app.txt")))
		w.do(os.Symlink("lib.txt", filepath.Join(a, "src/app.txt")))
	}},
	{"link that became a file", func(w *world, a string) {
		w.do(os.Symlink("lib.txt", filepath.Join(a, "src/link")))
		w.git(a, "add", "-A")
		w.do(os.Remove(filepath.Join(a, "src/link")))
		w.put(filepath.Join(a, "src/link"), "a file now")
	}},
	{"directory that became a file", func(w *world, a string) {
		w.do(os.RemoveAll(filepath.Join(a, "src")))
		w.put(filepath.Join(a, "src"), "a file now")
	}},
	{"directory that became a link", func(w *world, a string) {
		w.do(os.Rename(filepath.Join(a, "src"), filepath.Join(a, "moved")))
		w.do(os.Symlink("moved", filepath.Join(a, "src")))
	}},
	{"file that became a directory", func(w *world, a string) {
		w.do(os.Remove(filepath.Join(a, "README.md")))
		w.put(filepath.Join(a, "README.md/inside.txt"), "inside")
	}},
	{"announced with intent to add", func(w *world, a string) {
		w.put(filepath.Join(a, "announced.txt"), "not staged")
		w.put(filepath.Join(a, "run.sh"), "not staged")
		w.do(os.Chmod(filepath.Join(a, "run.sh"), 0o755))
		w.do(os.Symlink("x", filepath.Join(a, "link")))
		w.git(a, "add", "-N", "announced.txt", "run.sh", "link")
	}},
	{"announced and gone from disk", func(w *world, a string) {
		w.put(filepath.Join(a, "announced.txt"), "not staged")
		w.git(a, "add", "-N", "announced.txt")
		w.do(os.Remove(filepath.Join(a, "announced.txt")))
	}},
	{"empty file that is staged", func(w *world, a string) {
		w.do(os.WriteFile(filepath.Join(a, "empty"), nil, 0o644))
		w.git(a, "add", "-A")
	}},
	{"assume-unchanged", func(w *world, a string) {
		w.git(a, "update-index", "--assume-unchanged", "src/app.txt", "src/lib.txt")
		w.appendTo(filepath.Join(a, "src/app.txt"), "hidden")
	}},
	{"skip-worktree", func(w *world, a string) {
		w.git(a, "update-index", "--skip-worktree", "src/app.txt", "src/lib.txt")
		w.appendTo(filepath.Join(a, "src/app.txt"), "hidden")
		w.do(os.Remove(filepath.Join(a, "src/lib.txt")))
	}},
	{"both flags", func(w *world, a string) {
		w.git(a, "update-index", "--skip-worktree", "src/app.txt")
		w.git(a, "update-index", "--assume-unchanged", "src/app.txt")
		w.appendTo(filepath.Join(a, "src/app.txt"), "hidden")
	}},
	{"tracked although ignored", func(w *world, a string) {
		w.put(filepath.Join(a, "app.log"), "log")
		w.git(a, "add", "-f", "app.log")
		w.appendTo(filepath.Join(a, "app.log"), "more")
	}},
	{"beside what is regenerable", func(w *world, a string) {
		w.put(filepath.Join(a, "node_modules/x.js"), "x")
		w.put(filepath.Join(a, "new.txt"), "new")
	}},
	{"names", func(w *world, a string) {
		for i, name := range []string{"with space", "tab\tinside", "line\nbreak", "quote\"", "back\\slash", "\xff\xfe", "-dash", ":colon", "*", "git~1", "ünï", "a\rb", "#x", "trailing "} {
			w.put(filepath.Join(a, name), name)
			if i%2 == 0 {
				w.git(a, "-c", "core.protectNTFS=false", "--literal-pathspecs", "add", "--", name)
				w.appendTo(filepath.Join(a, name), "edit")
			}
		}
	}},
	{"line ends that git would convert", func(w *world, a string) {
		w.do(os.WriteFile(filepath.Join(a, ".gitattributes"), []byte("*.txt text=auto eol=crlf\n*.id ident\n*.u16 working-tree-encoding=UTF-16LE\n"), 0o644))
		w.do(os.WriteFile(filepath.Join(a, "mixed.txt"), []byte("one\r\ntwo\nthree\r\n"), 0o644))
		w.do(os.WriteFile(filepath.Join(a, "x.id"), []byte("$Id: something$\n"), 0o644))
		w.do(os.WriteFile(filepath.Join(a, "x.u16"), []byte("h\x00i\x00\n\x00"), 0o644))
		w.git(a, "add", "-A")
		w.do(os.WriteFile(filepath.Join(a, "crlf.txt"), []byte("one\r\ntwo\r\n"), 0o644))
	}},
	{"filters", func(w *world, a string) {
		trap := w.trap()
		w.do(os.WriteFile(filepath.Join(a, ".gitattributes"), []byte("*.txt filter=evil\n"), 0o644))
		w.git(w.repo, "config", "filter.evil.clean", trap)
		w.git(w.repo, "config", "filter.evil.smudge", trap)
		w.git(w.repo, "config", "filter.evil.required", "true")
		w.appendTo(filepath.Join(a, "src/app.txt"), "edit")
	}},
	{"hooks and signing", func(w *world, a string) {
		trap := w.trap()
		for _, hook := range []string{"post-checkout", "reference-transaction", "pre-commit", "post-commit", "post-index-change"} {
			w.program(filepath.Join(w.repo, ".git/hooks", hook), trap)
		}
		w.git(w.repo, "config", "commit.gpgSign", "true")
		w.git(w.repo, "config", "gpg.program", trap)
		w.put(filepath.Join(a, "new.txt"), "new")
	}},
	{"submodule that is not checked out", func(w *world, a string) {
		w.git(a, "update-index", "--add", "--cacheinfo", "160000,"+w.git(a, "rev-parse", "HEAD")+",sub")
		w.do(os.Mkdir(filepath.Join(a, "sub"), 0o755))
	}},
	{"file in the place of a submodule", func(w *world, a string) {
		w.git(a, "update-index", "--add", "--cacheinfo", "160000,"+w.git(a, "rev-parse", "HEAD")+",sub")
		w.put(filepath.Join(a, "sub"), "mine")
	}},
	{"sparse checkout", func(w *world, a string) {
		w.git(a, "sparse-checkout", "set", "--no-cone", "/src/app.txt")
		w.appendTo(filepath.Join(a, "src/app.txt"), "edit")
	}},
	{"split index", func(w *world, a string) {
		w.git(a, "update-index", "--split-index")
		w.appendTo(filepath.Join(a, "src/app.txt"), "edit")
		w.git(a, "add", "-A")
	}},
	{"no index", func(w *world, a string) {
		w.do(os.Remove(filepath.Join(w.admin(a), "index")))
	}},
	{"before the first commit", func(w *world, a string) {
		w.git(a, "checkout", "-q", "--orphan", "fresh")
		w.put(filepath.Join(a, "new.txt"), "new")
	}},
	{"detached", func(w *world, a string) {
		w.git(a, "checkout", "-q", "--detach")
		w.keepCommit(w.commit(a, "only-here.txt"))
		w.put(filepath.Join(a, "new.txt"), "new")
	}},
	{"beside data of no file", func(w *world, a string) {
		w.put(filepath.Join(a, "new.txt"), "new")
		w.do(os.MkdirAll(filepath.Join(a, "empty/inside"), 0o755))
	}},
}

func TestSaveAndRecover(t *testing.T) {
	t.Parallel()
	for _, s := range saveScenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			s.build(w, a)
			w.checkSaved(a)
		})
	}
}

// checkSaved removes a worktree after saving it, and recovers it twice: as it
// was, and after the branch has moved on.
func (w *world) checkSaved(a string) {
	w.t.Helper()
	before, branch, refs := w.stateOf(a), branchOf(w.admin(a)), w.refs()
	untouched := w.snapshot(a, filepath.Join(w.repo, ".git/worktrees"))
	saved, err := w.engine.Save(w.t.Context(), w.targets[0], SaveOptions{})
	w.do(err)
	if changed := differences(untouched, w.snapshot(a, filepath.Join(w.repo, ".git/worktrees"))); len(changed) > 0 {
		w.t.Errorf("saving changed the worktree: %q", changed)
	}
	if saved.Ref != savedRefs+"/by-hand/a" || saved.Reused {
		w.t.Errorf("saved %+v", saved)
	}
	foreseen := w.engine.InspectAll(w.t.Context(), w.targets, AllHooks{SaveChanges: true})[0]
	report := w.removeSaving()
	if verdict(report) != "removed" || report.SavedRef != saved.Ref || verdict(foreseen) != "removed" || len(foreseen.Notes) == 0 {
		w.t.Fatalf("got %s, saved in %q, foreseen %s: %s\n%q %q", verdict(report), report.SavedRef, verdict(foreseen), report.Message, report.Details, report.Notes)
	}
	w.checkNothingLost(refs)
	recovered := w.recover(RecoverOptions{Ref: saved.Ref})
	if recovered.Path != a || recovered.Branch != branch || len(recovered.Notes) > 0 {
		w.t.Errorf("recovered %+v, the branch was %q", recovered, branch)
	}
	w.requireState(before, w.stateOf(a))
	if got := w.git(w.repo, "rev-parse", saved.Ref); got != saved.Commit {
		w.t.Errorf("the saved ref was %s and is %s", saved.Commit, got)
	}
	// Saved again it is the same state, and needs no other ref.
	again := w.removeSaving()
	if verdict(again) != "removed" || again.SavedRef != saved.Ref {
		w.t.Errorf("saved again: %s in %q", verdict(again), again.SavedRef)
	}
	if head := recovered.Head; branch != "" && head != "" {
		w.git(w.repo, "-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/"+branch, w.git(w.repo, "commit-tree", "-p", head, "-m", "later", head+"^{tree}"))
		moved := w.recover(RecoverOptions{Ref: saved.Ref, Path: w.path("elsewhere/b")})
		if moved.Branch != recoveredBranches+branch || len(moved.Notes) != 1 || !strings.Contains(moved.Notes[0], "moved on") {
			w.t.Errorf("recovered %+v", moved)
		}
		w.requireState(before, w.stateOf(moved.Path))
	}
	w.checkNothingLost(refs1(refs, branch))
}

// refs1 leaves out a branch that the test itself has moved.
func refs1(refs map[string]string, branch string) map[string]string {
	delete(refs, "refs/heads/"+branch)
	return refs
}

// TestUnsavableIsKept: what a commit cannot hold keeps the worktree, with its
// own code in front, and nothing is saved.
func TestUnsavableIsKept(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		name, want string
		build      func(w *world, a string)
	}{
		{"ignored", "preserved:ignored_precious", func(w *world, a string) { w.put(filepath.Join(a, ".env"), "KEY=1") }},
		{"nested repository", "preserved:nested_repository", func(w *world, a string) {
			w.git(w.root, "init", "-q", filepath.Join(a, "vendor/other"))
			w.commit(filepath.Join(a, "vendor/other"), "x.txt")
		}},
		{"hidden data", "preserved:hidden_data", func(w *world, a string) { w.put(filepath.Join(a, "x/.git/notes.txt"), "x") }},
		{"locked", "preserved:locked", func(w *world, a string) { w.git(w.repo, "worktree", "lock", a) }},
		{"in use", "failed:in_use", func(w *world, a string) { w.hold(a) }},
		{"name that git does not take", "preserved:modified", func(w *world, a string) { w.put(filepath.Join(a, ".GIT/x.txt"), "x") }},
		{"operation in progress", "preserved:operation_in_progress", func(w *world, a string) {
			w.do(os.WriteFile(filepath.Join(w.admin(a), "MERGE_MSG"), []byte("message\n"), 0o600))
		}},
		{"conflict", "preserved:modified", func(w *world, a string) {
			blob := w.git(a, "hash-object", "-w", "README.md")
			w.index(a, "100644 "+blob+" 1\tREADME.md\n100644 "+blob+" 2\tREADME.md\n")
		}},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			w.appendTo(filepath.Join(a, "src/app.txt"), "edit")
			s.build(w, a)
			before, refs := w.snapshot(w.root), w.refs()
			foreseen := w.engine.InspectAll(t.Context(), w.targets, AllHooks{SaveChanges: true})
			report := w.removeSaving()
			if verdict(report) != s.want || verdict(foreseen[0]) != s.want || report.SavedRef != "" {
				t.Errorf("got %s, foreseen %s, want %s: %s %q", verdict(report), verdict(foreseen[0]), s.want, report.Message, report.Notes)
			}
			if changed := differences(before, w.snapshot(w.root)); len(changed) > 0 {
				t.Errorf("changed: %q", changed)
			}
			w.checkNothingLost(refs)
		})
	}
}

// index adds entries to a worktree's index.
func (w *world) index(dir, info string) {
	w.t.Helper()
	path := w.path("info")
	w.do(os.WriteFile(path, []byte(info), 0o600))
	w.git(dir, "rm", "-q", "--cached", "README.md")
	if out, err := w.tryShell("git -C '" + dir + "' update-index --index-info < '" + path + "'"); err != nil {
		w.t.Fatal(out)
	}
	w.do(os.Remove(path))
}

func TestSaveOfWhatIsClean(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.worktree("a")
	saved, err := w.engine.Save(t.Context(), w.targets[0], SaveOptions{})
	if err != nil || saved.Ref != "" {
		t.Errorf("saved %+v, error %v", saved, err)
	}
	w.hold(a)
	w.git(w.repo, "worktree", "lock", a)
	w.put(filepath.Join(a, "new.txt"), "new")
	if saved, err = w.engine.Save(t.Context(), w.targets[0], SaveOptions{Ref: SavedRef("s1", 2, "row1")}); err != nil || saved.Ref != "refs/unwind/saved/s1/2/row1" {
		t.Errorf("what keeps a worktree from being removed kept it from being saved: %+v, %v", saved, err)
	}
	w.put(filepath.Join(a, ".env"), "KEY=1")
	if _, err = w.engine.Save(t.Context(), w.targets[0], SaveOptions{}); teardown.CodeOf(err) != teardown.CodeIgnoredPrecious {
		t.Errorf("ignored: %v", err)
	}
	if _, err = w.engine.Save(t.Context(), Target{Path: w.path("wts/none")}, SaveOptions{}); err == nil {
		t.Error("saved what is not there")
	}
}

// TestOtherStateGetsOtherRef: what is saved is never overwritten.
func TestOtherStateGetsOtherRef(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.worktree("a")
	base := SavedRef("s1", 1, "row1")
	var refs []string
	for _, text := range []string{"one", "two", "one", "three", "two"} {
		w.put(filepath.Join(a, "new.txt"), text)
		saved, err := w.engine.Save(t.Context(), w.targets[0], SaveOptions{Ref: base})
		w.do(err)
		refs = append(refs, strings.TrimPrefix(saved.Ref, base))
	}
	if want := []string{"", "-2", "", "-3", "-2"}; !slices.Equal(refs, want) {
		t.Errorf("got %q, want %q", refs, want)
	}
	for i, text := range []string{"one", "two", "three"} {
		b := w.recover(RecoverOptions{Ref: savedName(base, i+1), Path: w.path("wts", text)})
		if content, err := os.ReadFile(filepath.Join(b.Path, "new.txt")); err != nil || string(content) != text+"\n" {
			t.Errorf("%d: %q, %v", i, content, err)
		}
	}
}

// Writes, and what else can happen between the save and the last look.
func TestFault15WriteBetweenSaveAndRename(t *testing.T) {
	t.Parallel()
	for _, race := range []struct {
		name, at, want string
		happen         func(w *world, dir string)
	}{
		{"write", "saved", "preserved:modified", func(w *world, dir string) { w.appendTo(filepath.Join(dir, "src/app.txt"), "late") }},
		{"new file", "saved", "preserved:modified", func(w *world, dir string) { w.put(filepath.Join(dir, "late.txt"), "late") }},
		{"new file before the rename", "moving aside", "preserved:modified", func(w *world, dir string) { w.put(filepath.Join(dir, "late.txt"), "late") }},
		{"deletion", "saved", "preserved:modified", func(w *world, dir string) { w.do(os.Remove(filepath.Join(dir, "src/lib.txt"))) }},
		{"mode", "saved", "preserved:modified", func(w *world, dir string) { w.do(os.Chmod(filepath.Join(dir, "src/lib.txt"), 0o755)) }},
		{"permissions", "saved", "preserved:modified", func(w *world, dir string) { w.do(os.Chmod(filepath.Join(dir, "src/app.txt"), 0o600)) }},
		{"stage", "saved", "preserved:staged", func(w *world, dir string) { w.git(dir, "add", "-A") }},
		{"flag", "saved", "preserved:modified", func(w *world, dir string) { w.git(dir, "update-index", "--assume-unchanged", "src/lib.txt") }},
		{"intent to add", "saved", "preserved:modified", func(w *world, dir string) {
			w.put(filepath.Join(dir, "late.txt"), "late")
			w.git(dir, "add", "-N", "late.txt")
		}},
		{"other branch", "saved", "preserved:modified", func(w *world, dir string) { w.git(dir, "checkout", "-q", "-b", "late") }},
		{"ignored file", "saved", "preserved:ignored_precious", func(w *world, dir string) { w.put(filepath.Join(dir, ".env"), "late") }},
		{"everything is committed", "saved", "removed", func(w *world, dir string) { w.save(dir, "done") }},
		{"everything is taken back", "saved", "removed", func(w *world, dir string) { w.git(dir, "checkout", "-q", "--", ".") }},
		{"write in the quarantine", "moved aside", "preserved:modified", func(w *world, dir string) {
			w.appendTo(filepath.Join(quarantinesAt(dir)[0], "src/app.txt"), "late")
		}},
		{"write while it is saved", "stored", "preserved:modified", func(w *world, dir string) { w.appendTo(filepath.Join(dir, "src/app.txt"), "late") }},
		{"write before it is captured", "saving", "removed", func(w *world, dir string) { w.appendTo(filepath.Join(dir, "src/app.txt"), "late") }},
		{"new file before it is captured", "saving", "preserved:modified", func(w *world, dir string) { w.put(filepath.Join(dir, "late.txt"), "late") }},
		{"file goes before it is captured", "saving", "preserved:modified", func(w *world, dir string) { w.do(os.Remove(filepath.Join(dir, "src/lib.txt"))) }},
		{"somebody else takes the ref", "stored", "removed", func(w *world, _ string) { w.git(w.repo, "update-ref", savedRefs+"/by-hand/a", "main") }},
		{"the saved ref is gone before the rename", "moving aside", "preserved:modified", func(w *world, _ string) {
			w.git(w.repo, "update-ref", "-d", savedRefs+"/by-hand/a")
		}},
	} {
		t.Run(race.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			w.appendTo(filepath.Join(a, "src/app.txt"), "edit")
			var late state
			w.at(race.at, func() {
				race.happen(w, a)
				if dir := append(quarantinesAt(a), a)[0]; isDirectory(dir) {
					late = w.stateOf(dir)
				}
			})
			report := w.removeSaving()
			if verdict(report) != race.want {
				t.Fatalf("got %s, want %s: %s %q", verdict(report), race.want, report.Message, report.Notes)
			}
			if race.want != "removed" {
				w.requireState(late, w.stateOf(a))
			}
			w.checkNothingLost(nil)
			if strings.HasSuffix(race.want, "ignored_precious") {
				return
			}
			// The next attempt saves what there is now, to a ref of its own.
			w.engine.reached = nil
			if race.want == "removed" {
				return
			}
			if report = w.removeSaving(); verdict(report) != "removed" {
				t.Fatalf("again: %s: %s %q", verdict(report), report.Message, report.Notes)
			}
			recovered := w.recover(RecoverOptions{Ref: report.SavedRef})
			w.requireState(late, w.stateOf(recovered.Path))
		})
	}
}

// saveSteps are the step boundaries of a removal that saves.
var saveSteps = append([]string{"saving", "stored", "referred", "saved"}, steps...)

func TestCrashWhileSaving(t *testing.T) {
	t.Parallel()
	for _, kind := range journals {
		for i, step := range saveSteps {
			t.Run(kind.name+"/"+step, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				a := w.worktree("a")
				w.appendTo(filepath.Join(a, "src/app.txt"), "staged")
				w.git(a, "add", "-A")
				w.appendTo(filepath.Join(a, "src/app.txt"), "not staged")
				w.put(filepath.Join(a, "new.txt"), "new")
				before := w.stateOf(a)
				journal, base := w.journal(kind.database), savedRefs+"/by-hand/a"
				if kind.database {
					base = SavedRef("s1", 1, "row1")
				}
				w.crashSaving(step, journal)
				report := w.removeOneSaving(journal)
				want := teardown.DispositionRemoved
				if !kind.database && (step == "entry moved" || step == "dropped") || step == "dropped" && kind.database {
					want = teardown.DispositionAlreadyGone
				}
				if kind.database && i >= slices.Index(saveSteps, "condemned") {
					want = teardown.DispositionRemoved
				}
				if report.Disposition != want {
					t.Fatalf("got %s, want %s: %s %q", verdict(report), want, report.Message, report.Details)
				}
				if report.SavedRef != base && want == teardown.DispositionRemoved {
					t.Errorf("saved in %q, want %q", report.SavedRef, base)
				}
				if tips, err := savedUnder(t.Context(), w.engine.gitFor(w.repo+"/.git", Hooks{}), base); err != nil || len(tips) != 1 {
					t.Errorf("the state is saved at %v, error %v", tips, err)
				}
				w.recover(RecoverOptions{Ref: base})
				w.requireState(before, w.stateOf(a))
			})
		}
	}
}

// crashSaving is crash for a removal that saves.
func (w *world) crashSaving(step, journal string) {
	w.t.Helper()
	err := childJob{Root: w.root, Targets: w.targets, KillAt: step, Journal: journal, Save: true}.command(w.t).Run()
	if err == nil || err.Error() != "signal: killed" {
		w.t.Fatalf("the child was not killed at %q: %v", step, err)
	}
}

func (w *world) removeOneSaving(journal string) Report {
	w.t.Helper()
	if journal == "" {
		return w.removeSaving()
	}
	report, err := w.engine.Remove(context.Background(), w.targets[0], &fileJournal{path: journal}, rowHooks(true))
	w.do(err)
	return report
}

// TestCrashThenWrite: what is written into the quarantine after a crash is not
// what was saved.
func TestCrashThenWrite(t *testing.T) {
	t.Parallel()
	for _, kind := range journals {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			w.put(filepath.Join(a, "new.txt"), "new")
			journal := w.journal(kind.database)
			w.crashSaving("moved aside", journal)
			w.put(filepath.Join(quarantinesAt(a)[0], "late.txt"), "late")
			report := w.removeOneSaving(journal)
			if verdict(report) != "preserved:untracked" || report.SavedRef == "" {
				t.Errorf("got %s, saved in %q", verdict(report), report.SavedRef)
			}
			w.keep(filepath.Join(a, "late.txt"), filepath.Join(a, "new.txt"))
			w.checkNothingLost(nil)
		})
	}
}

func TestJournalOfASaveFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.worktree("a")
	w.put(filepath.Join(a, "new.txt"), "new")
	w.journal(true)
	before := w.snapshot(a)
	journal := &fileJournal{path: w.path("journal"), fail: func(at string) error {
		if at == "saved" {
			return errDatabase
		}
		return nil
	}}
	report, err := w.engine.Remove(t.Context(), w.targets[0], journal, rowHooks(true))
	if err == nil || verdict(report) != "failed:database_unavailable" {
		t.Errorf("got %s, error %v", verdict(report), err)
	}
	if changed := differences(before, w.snapshot(a)); len(changed) > 0 {
		t.Errorf("changed: %q", changed)
	}
	journal.fail = nil
	report, err = w.engine.Remove(t.Context(), w.targets[0], journal, rowHooks(true))
	if w.do(err); verdict(report) != "removed" || report.SavedRef != SavedRef("s1", 1, "row1") {
		t.Errorf("got %s, saved in %q", verdict(report), report.SavedRef)
	}
}

// TestSaveFails: whichever of git's steps fails, nothing is removed or changed,
// and the next attempt goes on.
func TestSaveFails(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"write-tree", "index-pack", "hash-object", "mktree", "commit-tree", "update-ref"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			w.put(filepath.Join(a, "new.txt"), "new")
			before := w.snapshot(a)
			w.put(w.path("failing.text"), "#!/bin/sh\nfor arg; do if [ \"$arg\" = "+command+" ]; then echo no room >&2; exit 128; fi; done\nexec git \"$@\"")
			w.program(w.path("failing"), w.path("failing.text"))
			w.engine.Git = w.path("failing")
			report := w.removeSaving()
			if verdict(report) != "failed:git_failed" || !report.Retryable || !strings.Contains(strings.Join(report.Details, " ")+report.Message, "saved") {
				t.Errorf("got %s: %s", verdict(report), report.Message)
			}
			if changed := differences(before, w.snapshot(a)); len(changed) > 0 {
				t.Errorf("changed: %q", changed)
			}
			w.engine.Git = ""
			if report = w.removeSaving(); verdict(report) != "removed" {
				t.Errorf("got %s: %s", verdict(report), report.Message)
			}
		})
	}
}

// TestSavedWithGitAlone: git's own stash understands what was saved.
func TestSavedWithGitAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.worktree("a")
	w.appendTo(filepath.Join(a, "src/app.txt"), "staged")
	w.git(a, "add", "-A")
	w.appendTo(filepath.Join(a, "src/lib.txt"), "not staged")
	w.put(filepath.Join(a, "new.txt"), "new")
	report := w.removeSaving()
	w.git(w.repo, "worktree", "add", "-q", a, "a")
	w.git(a, "stash", "apply", "-q", "--index", report.SavedRef)
	if got := w.git(a, "status", "--porcelain"); got != "M  src/app.txt\n M src/lib.txt\n?? new.txt" {
		t.Errorf("status is %q", got)
	}
}

func TestSavedByHandNames(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/wt/s1": "s1", "/wt/a b.c": "a-b-c", "/wt/--": "worktree-", "/wt/12": "worktree-12", "/wt/ü": "worktree-", "/wt/.x.lock": "x-lock",
		"/wt/" + strings.Repeat("n", 200): strings.Repeat("n", 64),
	} {
		if got := savedByHand(path); got != savedRefs+"/by-hand/"+want {
			t.Errorf("%q: got %q, want %q", path, got, want)
		}
	}
}

func TestAboutIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	about := savedAbout{path: "/w t\n/\xff", branch: "a/b", intents: []intent{{plainMode, "tab\there"}, {linkMode, "l"}},
		flags: []flagged{{"as", "x\ny"}}, perms: []permission{{0o600, "p q"}, {0, "none"}}}
	again, err := parseAbout(string(about.format()))
	if err != nil || fmt.Sprint(again) != fmt.Sprint(about) {
		t.Errorf("got %+v, %v", again, err)
	}
	for _, bad := range []string{"", "version 1\x00", "version 2\x00", "version 1", "version 1\x00path /a\x00what x\x00", "version 1\x00path /a\x00perm 9\tp\x00", "version 1\x00path /a\x00perm 7777\tp\x00",
		"version 1\x00path /a\x00flags z\tp\x00", "version 1\x00path /a\x00intent 160000\tp\x00", "version 1\x00path relative\x00"} {
		if _, err := parseAbout(bad); err == nil {
			t.Errorf("%q is not refused", bad)
		}
	}
}
