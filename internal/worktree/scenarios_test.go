package worktree

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// scenario is one state of a worktree and what has to become of it. Verdicts are
// disposition and code, one for each target in order, separated by "|".
type scenario struct {
	name  string
	build func(w *world)
	want  string
	// discard and preserve are the verdicts under the other two policies for
	// ignored files, where they differ.
	discard, preserve string
}

func TestScenarios(t *testing.T) {
	t.Parallel()
	var all []scenario
	for _, class := range [][]scenario{cleanScenarios, dirtScenarios, ignoredScenarios, nestedScenarios, commitScenarios,
		identityScenarios, targetScenarios, fileScenarios, hostileScenarios, useScenarios, familyScenarios} {
		all = append(all, class...)
	}
	for _, s := range all {
		for _, policy := range []IgnoredPolicy{IgnoredKeepPrecious, IgnoredDiscard, IgnoredPreserve} {
			want := s.want
			switch {
			case policy == IgnoredDiscard && s.discard != "":
				want = s.discard
			case policy == IgnoredPreserve && s.preserve != "":
				want = s.preserve
			case policy != IgnoredKeepPrecious:
				continue
			}
			t.Run(s.name+"/"+string(policy), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.engine.Ignored = policy
				s.build(w)
				var got []string
				reports := w.removeAll()
				for _, report := range reports {
					got = append(got, verdict(report))
				}
				if strings.Join(got, "|") != want {
					t.Errorf("got %q, want %q", strings.Join(got, "|"), want)
					for _, report := range reports {
						t.Logf("%s\n  details %q\n  notes %q", report.Message, report.Details, report.Notes)
					}
				}
			})
		}
	}
}

var cleanScenarios = []scenario{
	{name: "everything committed", want: "removed", build: func(w *world) {
		w.keepCommit(w.commit(w.worktree("a"), "done.txt"))
	}},
	{name: "assume-unchanged and not changed", want: "removed", build: func(w *world) {
		w.git(w.worktree("a"), "update-index", "--assume-unchanged", "src/app.txt")
	}},
	{name: "skip-worktree and not changed", want: "removed", build: func(w *world) {
		w.git(w.worktree("a"), "update-index", "--skip-worktree", "src/app.txt")
	}},
	{name: "skip-worktree and absent", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		w.git(a, "update-index", "--skip-worktree", "src/app.txt")
		w.do(os.Remove(filepath.Join(a, "src/app.txt")))
	}},
	{name: "sparse checkout", want: "removed", build: func(w *world) {
		w.commit(w.repo, "docs/a.txt")
		w.git(w.worktree("a"), "sparse-checkout", "set", "docs")
	}},
	{name: "sparse index", want: "removed", build: func(w *world) {
		w.commit(w.repo, "docs/a.txt")
		a := w.worktree("a")
		w.git(a, "sparse-checkout", "set", "--cone", "--sparse-index", "docs")
	}},
	{name: "split index", want: "removed", build: func(w *world) {
		w.git(w.worktree("a"), "update-index", "--split-index")
	}},
	{name: "touched but equal", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		content, err := os.ReadFile(filepath.Join(a, "src/app.txt"))
		w.do(err)
		w.do(os.WriteFile(filepath.Join(a, "src/app.txt"), content, 0o644))
	}},
	{name: "mode bit that git is told to ignore", want: "removed", build: func(w *world) {
		w.git(w.repo, "config", "core.fileMode", "false")
		w.do(os.Chmod(filepath.Join(w.worktree("a"), "src/app.txt"), 0o755))
	}},
	{name: "empty directories", want: "removed", build: func(w *world) {
		w.do(os.MkdirAll(filepath.Join(w.worktree("a"), "empty/inside"), 0o755))
	}},
	{name: "tracked link to the outside", want: "removed", build: func(w *world) {
		w.put(w.path("outside.txt"), "outside")
		w.keep(w.path("outside.txt"))
		a := w.worktree("a")
		w.do(os.Symlink(w.path("outside.txt"), filepath.Join(a, "link")))
		w.save(a, "link")
	}},
	{name: "branch with unpushed commits", want: "removed", build: func(w *world) {
		w.git(w.root, "init", "-q", "--bare", w.path("origin.git"))
		w.git(w.repo, "remote", "add", "origin", w.path("origin.git"))
		a := w.worktree("a")
		w.git(a, "push", "-q", "-u", "origin", "a")
		w.keepCommit(w.commit(a, "one.txt"))
	}},
	{name: "branch whose upstream is gone", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		w.keepCommit(w.commit(a, "one.txt"))
		w.git(a, "config", "branch.a.remote", "origin")
		w.git(a, "config", "branch.a.merge", "refs/heads/a")
	}},
	{name: "detached at a commit of a branch", want: "removed", build: func(w *world) { w.detached("a") }},
	{name: "stash, which is shared", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		w.appendTo(filepath.Join(a, "src/app.txt"), "stashed")
		w.git(a, "stash", "-q")
		w.keepCommit(w.git(w.repo, "rev-parse", "refs/stash"))
	}},
	{name: "unborn branch with nothing in it", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		w.git(a, "checkout", "-q", "--orphan", "fresh")
		w.git(a, "rm", "-rfq", ".")
	}},
	{name: "after a finished rebase, merge, cherry-pick, revert and amend", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		w.commit(a, "a.txt")
		w.commit(w.repo, "main.txt")
		w.git(a, "rebase", "-q", "main")
		w.git(w.repo, "checkout", "-q", "-b", "other")
		picked := w.commit(w.repo, "other.txt")
		w.commit(w.repo, "other2.txt")
		w.git(a, "cherry-pick", picked)
		w.git(a, "revert", "--no-edit", "HEAD")
		w.git(a, "merge", "-q", "--no-edit", "other")
		w.commit(w.repo, "other3.txt")
		w.git(a, "merge", "-q", "--squash", "other")
		w.git(a, "commit", "-q", "-m", "squashed")
		w.git(a, "commit", "-q", "--amend", "-m", "amended")
	}},
	{name: "directory is gone and registered", want: "already_gone", build: func(w *world) {
		a := w.worktree("a")
		w.keepCommit(w.commit(a, "done.txt"))
		w.do(os.RemoveAll(a))
	}},
	{name: "directory is gone and was never there", want: "already_gone", build: func(w *world) { w.target(w.path("wts", "never")) }},
	{name: "submodule that was not initialised", want: "removed", build: func(w *world) {
		w.addSubmodule()
		w.worktree("a")
	}},
	{name: "registration through a link to the parent", want: "removed", build: func(w *world) {
		w.do(os.Symlink(w.path("wts"), w.path("work")))
		w.git(w.repo, "worktree", "add", "-q", "-b", "a", w.path("wts", "a"))
		w.target(w.path("work", "a"))
	}},
	{name: "inside the main checkout", want: "removed", build: func(w *world) {
		w.worktreeAt(filepath.Join(w.repo, ".worktrees", "a"), "a")
	}},
	{name: "repository is bare", want: "removed", build: func(w *world) {
		w.git(w.root, "clone", "-q", "--bare", w.repo, w.path("bare.git"))
		w.repo = w.path("bare.git")
		w.keepCommit(w.commit(w.worktree("a"), "done.txt"))
	}},
	{name: "repository with a worktree config", want: "removed", build: func(w *world) {
		w.git(w.repo, "config", "extensions.worktreeConfig", "true")
		w.git(w.worktree("a"), "config", "--worktree", "core.longpaths", "true")
	}},
	{name: "repository named by another worktree", want: "removed", build: func(w *world) {
		w.git(w.repo, "worktree", "add", "-q", "-b", "b", w.path("wts", "b"))
		w.worktree("a")
		w.targets[0].Repository = w.path("wts", "b", "src")
	}},
	{name: "repository is found from the .git file", want: "removed", build: func(w *world) {
		w.worktree("a")
		w.targets[0].Repository = ""
	}},
	{name: "repository with SHA-256", want: "removed", build: func(w *world) {
		w.repo = w.path("sha256")
		w.git(w.root, "init", "-q", "--object-format=sha256", w.repo)
		w.commit(w.repo, "a.txt")
		w.keepCommit(w.commit(w.detached("a"), "only.txt"))
	}},
	{name: "trailing slashes", want: "removed", build: func(w *world) {
		w.worktree("a")
		w.targets[0].Path = w.path("wts") + "//a/"
	}},
	{name: "names with spaces, quotes and line ends", want: "removed|removed|removed|removed", build: func(w *world) {
		for i, name := range []string{"with space", "new\nline", "quo\"te's", "-rf"} {
			w.worktreeAt(w.path("wts", name), "b"+string(rune('0'+i)))
		}
	}},
	{name: "long name", want: "removed", build: func(w *world) { w.worktreeAt(w.path("wts", strings.Repeat("n", 240)), "a") }},
	{name: "name that is not UTF-8", want: "removed", build: func(w *world) { w.worktreeAt(w.path("wts", "bad\xff\xfe"), "a") }},
	{name: "tracked files with odd names", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		for _, name := range []string{"new\nline", "quo\"te", "ta\tb", "漢字.md", "bad\xff", "-rf", " lead"} {
			w.put(filepath.Join(a, name), name)
		}
		w.save(a, "odd")
	}},
	{name: "other registrations are left alone", want: "removed", build: func(w *world) {
		w.git(w.repo, "worktree", "add", "-q", "-b", "b", w.path("wts", "b"))
		w.keep(filepath.Join(w.repo, ".git/worktrees/b/HEAD"), filepath.Join(w.repo, ".git/worktrees/b/gitdir"))
		w.do(os.RemoveAll(w.path("wts", "b")))
		w.worktree("a")
	}},
}

// addSubmodule adds a submodule "lib" to the repository.
func (w *world) addSubmodule() {
	sub := w.newRepository("sub")
	w.git(w.repo, "submodule", "--quiet", "add", sub, "lib")
	w.save(w.repo, "submodule")
}

func (w *world) withSubmodule() string {
	w.addSubmodule()
	a := w.worktree("a")
	w.git(a, "submodule", "--quiet", "update", "--init")
	return a
}

var dirtScenarios = []scenario{
	{name: "file in the place of a submodule", want: "preserved:modified", build: func(w *world) {
		a := w.withGitlink("a")
		w.do(os.Remove(filepath.Join(a, "sub")))
		w.put(filepath.Join(a, "sub"), "mine")
		w.keep(filepath.Join(a, "sub"))
	}},
	{name: "link in the place of a submodule", want: "preserved:modified", build: func(w *world) {
		a := w.withGitlink("a")
		w.do(os.Remove(filepath.Join(a, "sub")))
		w.do(os.Symlink("elsewhere", filepath.Join(a, "sub")))
	}},
	{name: "file below a submodule that is not there", want: "preserved:hidden_data", build: func(w *world) {
		a := w.withGitlink("a")
		w.put(filepath.Join(a, "sub/mine.txt"), "mine")
		w.keep(filepath.Join(a, "sub/mine.txt"))
	}},
	{name: "edited", want: "preserved:modified", build: func(w *world) {
		a := w.worktree("a")
		w.appendTo(filepath.Join(a, "src/app.txt"), "edit")
		w.keep(filepath.Join(a, "src/app.txt"))
	}},
	{name: "edited to the same size and time", want: "preserved:modified", build: func(w *world) {
		a := w.worktree("a")
		path := filepath.Join(a, "src/app.txt")
		info, err := os.Stat(path)
		w.do(err)
		w.do(os.WriteFile(path, []byte("app v2\n"), 0o644))
		w.do(os.Chtimes(path, info.ModTime(), info.ModTime()))
		w.keep(path)
	}},
	{name: "staged", want: "preserved:staged", build: func(w *world) {
		a := w.worktree("a")
		w.appendTo(filepath.Join(a, "src/app.txt"), "edit")
		w.git(a, "add", "-A")
	}},
	{name: "staged and taken back in the file", want: "preserved:modified", build: func(w *world) {
		a := w.worktree("a")
		w.appendTo(filepath.Join(a, "src/app.txt"), "edit")
		w.git(a, "add", "-A")
		w.put(filepath.Join(a, "src/app.txt"), "app v1")
	}},
	{name: "deleted", want: "preserved:modified", build: func(w *world) {
		w.do(os.Remove(filepath.Join(w.worktree("a"), "src/app.txt")))
	}},
	{name: "deletion staged", want: "preserved:staged", build: func(w *world) { w.git(w.worktree("a"), "rm", "-q", "src/app.txt") }},
	{name: "mode changed", want: "preserved:modified", build: func(w *world) {
		w.do(os.Chmod(filepath.Join(w.worktree("a"), "src/app.txt"), 0o755))
	}},
	{name: "file replaced by a link", want: "preserved:modified", build: func(w *world) {
		path := filepath.Join(w.worktree("a"), "src/app.txt")
		w.do(os.Remove(path))
		w.do(os.Symlink("lib.txt", path))
	}},
	{name: "file replaced by a directory", want: "preserved:modified", build: func(w *world) {
		path := filepath.Join(w.worktree("a"), "src/app.txt")
		w.do(os.Remove(path))
		w.put(filepath.Join(path, "inside"), "x")
		w.keep(filepath.Join(path, "inside"))
	}},
	{name: "conflict", want: "preserved:operation_in_progress", build: func(w *world) {
		a := w.worktree("a")
		w.put(filepath.Join(w.repo, "src/app.txt"), "theirs")
		w.save(w.repo, "theirs")
		w.put(filepath.Join(a, "src/app.txt"), "ours")
		w.save(a, "ours")
		_, _ = w.tryGit(a, "merge", "main")
	}},
	{name: "conflict without an operation", want: "preserved:modified", build: func(w *world) {
		a := w.worktree("a")
		oid := w.git(a, "rev-parse", "HEAD:src/app.txt")
		cmd := "printf '0 0000000000000000000000000000000000000000\\tsrc/app.txt\\n100644 " + oid + " 1\\tsrc/app.txt\\n100644 " + oid + " 2\\tsrc/app.txt\\n' | git update-index --index-info"
		sh := exec.Command("sh", "-c", cmd)
		sh.Dir, sh.Env = a, []string{"PATH=" + os.Getenv("PATH")}
		w.do(sh.Run())
	}},
	{name: "intent to add", want: "preserved:modified", build: func(w *world) {
		a := w.worktree("a")
		w.put(filepath.Join(a, "new.txt"), "new")
		w.git(a, "add", "-N", "new.txt")
		w.keep(filepath.Join(a, "new.txt"))
	}},
	{name: "intent to add an empty file", want: "preserved:staged", build: func(w *world) {
		a := w.worktree("a")
		w.do(os.WriteFile(filepath.Join(a, "empty"), nil, 0o644))
		w.git(a, "add", "-N", "empty")
	}},
	{name: "untracked", want: "preserved:untracked", build: func(w *world) {
		a := w.worktree("a")
		w.put(filepath.Join(a, "notes.md"), "notes")
		w.keep(filepath.Join(a, "notes.md"))
	}},
	{name: "untracked and empty", want: "preserved:untracked", build: func(w *world) {
		w.do(os.WriteFile(filepath.Join(w.worktree("a"), "empty"), nil, 0o644))
	}},
	{name: "untracked link", want: "preserved:untracked", build: func(w *world) {
		w.do(os.Symlink("README.md", filepath.Join(w.worktree("a"), "link")))
	}},
	{name: "untracked with odd names", want: "preserved:untracked", build: func(w *world) {
		a := w.worktree("a")
		for _, name := range []string{"new\nline", "quo\"te", "ta\tb", "漢字.md", "bad\xff\xfe", "-rf", "--", " lead"} {
			w.put(filepath.Join(a, name), name)
			w.keep(filepath.Join(a, name))
		}
	}},
	{name: "untracked and hidden by the repository's config", want: "preserved:untracked", build: func(w *world) {
		w.put(filepath.Join(w.worktree("a"), "notes.md"), "notes")
		w.git(w.repo, "config", "status.showUntrackedFiles", "no")
	}},
	{name: "untracked and hidden by the worktree's config", want: "preserved:untracked", build: func(w *world) {
		a := w.worktree("a")
		w.put(filepath.Join(a, "notes.md"), "notes")
		w.git(w.repo, "config", "extensions.worktreeConfig", "true")
		w.git(a, "config", "--worktree", "status.showUntrackedFiles", "no")
	}},
	{name: "untracked and hidden by ignoreCase", want: "preserved:untracked", build: func(w *world) {
		w.git(w.repo, "config", "core.ignoreCase", "true")
		a := w.worktree("a")
		w.put(filepath.Join(a, "readme.MD"), "another file")
		w.keep(filepath.Join(a, "readme.MD"))
	}},
	{name: "edit hidden by assume-unchanged", want: "preserved:hidden_changes", build: func(w *world) {
		a := w.worktree("a")
		w.git(a, "update-index", "--assume-unchanged", "src/app.txt")
		w.appendTo(filepath.Join(a, "src/app.txt"), "edit")
		w.keep(filepath.Join(a, "src/app.txt"))
	}},
	{name: "edit hidden by skip-worktree", want: "preserved:hidden_changes", build: func(w *world) {
		a := w.worktree("a")
		w.git(a, "update-index", "--skip-worktree", "src/app.txt")
		w.appendTo(filepath.Join(a, "src/app.txt"), "edit")
		w.keep(filepath.Join(a, "src/app.txt"))
	}},
	{name: "edit hidden by checkStat and trustctime", want: "preserved:modified", build: func(w *world) {
		w.git(w.repo, "config", "core.checkStat", "minimal")
		w.git(w.repo, "config", "core.trustctime", "false")
		path := filepath.Join(w.worktree("a"), "src/app.txt")
		info, err := os.Stat(path)
		w.do(err)
		w.do(os.WriteFile(path, []byte("app v2\n"), 0o644))
		w.do(os.Chtimes(path, info.ModTime(), info.ModTime()))
	}},
	{name: "edit hidden by ignoreStat", want: "preserved:modified", build: func(w *world) {
		path := filepath.Join(w.worktree("a"), "src/app.txt")
		w.git(w.repo, "config", "core.ignoreStat", "true")
		w.appendTo(path, "edit")
		w.keep(path)
	}},
	{name: "edit hidden by core.worktree", want: "preserved:modified", build: func(w *world) {
		a := w.worktree("a")
		w.git(w.repo, "config", "extensions.worktreeConfig", "true")
		w.git(a, "config", "--worktree", "core.worktree", w.repo)
		w.appendTo(filepath.Join(a, "src/app.txt"), "edit")
	}},
	{name: "edit hidden by a file system monitor", want: "preserved:modified", build: func(w *world) {
		a := w.worktree("a")
		w.git(a, "status")
		w.git(w.repo, "config", "core.fsmonitor", w.trap())
		w.appendTo(filepath.Join(a, "src/app.txt"), "edit")
	}},
	{name: "lines hidden by a clean filter", want: "preserved:modified", build: func(w *world) {
		a := w.worktree("a")
		w.put(filepath.Join(a, ".gitattributes"), "src/app.txt filter=local")
		w.save(a, "attributes")
		w.git(w.repo, "config", "filter.local.clean", "sed /LOCAL/d")
		w.appendTo(filepath.Join(a, "src/app.txt"), "LOCAL secret")
		w.keep(filepath.Join(a, "src/app.txt"))
	}},
	{name: "carriage returns", want: "preserved:modified", build: func(w *world) {
		a := w.worktree("a")
		w.do(os.WriteFile(filepath.Join(a, "src/app.txt"), []byte("app v1\r\n"), 0o644))
	}},
	{name: "carriage returns that git converts", want: "removed", build: func(w *world) {
		w.put(filepath.Join(w.repo, ".gitattributes"), "*.txt text eol=crlf")
		w.save(w.repo, "attributes")
		w.worktree("a")
	}},
	{name: "encoding and keywords that git converts", want: "removed", build: func(w *world) {
		w.put(filepath.Join(w.repo, ".gitattributes"), "*.utf16 text working-tree-encoding=UTF-16LE\n*.id ident")
		w.do(os.WriteFile(filepath.Join(w.repo, "x.utf16"), []byte("a\x00b\x00"), 0o644))
		w.put(filepath.Join(w.repo, "x.id"), "$Id$")
		w.save(w.repo, "attributes")
		w.worktree("a")
	}},
	{name: "hidden below a directory named .git", want: "preserved:hidden_data", build: func(w *world) {
		a := w.worktree("a")
		w.put(filepath.Join(a, "sub/.git/notes.md"), "notes")
		w.keep(filepath.Join(a, "sub/.git/notes.md"))
	}},
	{name: "hidden in a submodule that is no repository any more", want: "preserved:hidden_data", build: func(w *world) {
		w.addSubmodule()
		a := w.worktree("a")
		w.put(filepath.Join(a, "lib/notes.md"), "notes")
		w.keep(filepath.Join(a, "lib/notes.md"))
	}},
	{name: "missing directory with staged changes", want: "preserved:staged", build: func(w *world) {
		a := w.worktree("a")
		w.put(filepath.Join(a, "new.txt"), "new")
		w.git(a, "add", "-A")
		w.do(os.RemoveAll(a))
	}},
}

var ignoredScenarios = []scenario{
	{name: "ignored build output", want: "removed", preserve: "preserved:ignored_precious", build: func(w *world) {
		a := w.worktree("a")
		for _, name := range []string{"node_modules/x/index.js", "build/out.o", "src/__pycache__/m.pyc", ".venv/pyvenv.cfg"} {
			w.put(filepath.Join(a, name), name)
		}
	}},
	{name: "ignored settings", want: "preserved:ignored_precious", discard: "removed", preserve: "preserved:ignored_precious", build: func(w *world) {
		w.put(filepath.Join(w.worktree("a"), ".env"), "KEY=1")
	}},
	{name: "ignored settings equal to the main checkout's", want: "removed", discard: "removed", preserve: "preserved:ignored_precious", build: func(w *world) {
		w.put(filepath.Join(w.repo, ".env"), "KEY=1")
		w.keep(filepath.Join(w.repo, ".env"))
		w.put(filepath.Join(w.worktree("a"), ".env"), "KEY=1")
	}},
	{name: "ignored settings of the size of the main checkout's", want: "preserved:ignored_precious", build: func(w *world) {
		w.put(filepath.Join(w.repo, ".env"), "KEY=1")
		w.put(filepath.Join(w.worktree("a"), ".env"), "KEY=2")
	}},
	{name: "main checkout's file is a link to this one", want: "preserved:ignored_precious", build: func(w *world) {
		a := w.worktree("a")
		w.put(filepath.Join(a, ".env"), "KEY=1")
		w.do(os.Symlink(filepath.Join(a, ".env"), filepath.Join(w.repo, ".env")))
	}},
	{name: "main checkout's directory is a link to this one", want: "preserved:ignored_precious", build: func(w *world) {
		a := w.worktree("a")
		w.put(filepath.Join(a, "scratch/x"), "x")
		w.do(os.Symlink(filepath.Join(a, "scratch"), filepath.Join(w.repo, "scratch")))
	}},
	{name: "same path in the main checkout is this very file", want: "preserved:ignored_precious", build: func(w *world) {
		a := w.worktreeAt(filepath.Join(w.repo, ".worktrees/a"), "a")
		w.do(os.Mkdir(filepath.Join(a, ".worktrees"), 0o755))
		w.put(filepath.Join(a, ".worktrees/a/x"), "x")
	}},
	{name: "ignored database and log", want: "preserved:ignored_precious", discard: "removed", build: func(w *world) {
		a := w.worktree("a")
		w.put(filepath.Join(a, "data.sqlite"), "rows")
		w.put(filepath.Join(a, "run.log"), "lines")
	}},
	{name: "ignored directory without a known name", want: "preserved:ignored_precious", discard: "removed", build: func(w *world) {
		w.put(filepath.Join(w.worktree("a"), "scratch/plan/notes.md"), "notes")
	}},
	{name: "ignored directory with build output in it", want: "removed", preserve: "preserved:ignored_precious", build: func(w *world) {
		w.put(filepath.Join(w.worktree("a"), "scratch/node_modules/x.js"), "x")
	}},
	{name: "ignored directory that is empty", want: "removed", preserve: "removed", build: func(w *world) {
		w.do(os.MkdirAll(filepath.Join(w.worktree("a"), "scratch/empty"), 0o755))
	}},
	{name: "ignored link into the main checkout", want: "removed", preserve: "preserved:ignored_precious", build: func(w *world) {
		w.put(filepath.Join(w.repo, ".gitignore"), "node_modules")
		w.save(w.repo, "ignore")
		w.put(filepath.Join(w.repo, "node_modules/pkg/index.js"), "x")
		w.keep(filepath.Join(w.repo, "node_modules/pkg/index.js"))
		w.do(os.Symlink(filepath.Join(w.repo, "node_modules"), filepath.Join(w.worktree("a"), "node_modules")))
	}},
	{name: "ignored by the shared exclude file", want: "preserved:ignored_precious", discard: "removed", build: func(w *world) {
		w.put(filepath.Join(w.repo, ".git/info/exclude"), "*.md.local")
		w.put(filepath.Join(w.worktree("a"), "x.md.local"), "x")
	}},
	{name: "known name, but not ignored", want: "preserved:untracked", build: func(w *world) {
		w.put(filepath.Join(w.worktree("a"), "dist/x"), "x")
	}},
}

var nestedScenarios = []scenario{
	{name: "nested clone", want: "preserved:nested_repository", discard: "preserved:nested_repository", build: func(w *world) { w.nest("lib") }},
	{name: "nested clone that is ignored", want: "preserved:nested_repository", discard: "preserved:nested_repository", build: func(w *world) { w.nest("scratch/lib") }},
	{name: "nested clone in node_modules", want: "preserved:nested_repository", discard: "preserved:nested_repository", build: func(w *world) { w.nest("node_modules/lib") }},
	{name: "nested clone over tracked files", want: "preserved:nested_repository", build: func(w *world) {
		a := w.worktree("a")
		w.git(filepath.Join(a, "src"), "init", "-q")
		w.commit(filepath.Join(a, "src"), "mine.txt")
	}},
	{name: "nested bare repository", want: "preserved:nested_repository", discard: "preserved:nested_repository", build: func(w *world) {
		a := w.worktree("a")
		w.git(w.root, "clone", "-q", "--bare", w.repo, filepath.Join(a, "scratch/bare.git"))
	}},
	{name: "bare repository that is committed as files", want: "removed", build: func(w *world) { w.bareAsFiles() }},
	{name: "bare repository that is committed as files, with ignored files elsewhere", want: "removed", preserve: "preserved:ignored_precious", build: func(w *world) {
		w.put(filepath.Join(w.bareAsFiles(), "../node_modules/file"), "file")
	}},
	{name: "bare repository of which a file was changed", want: "preserved:modified", build: func(w *world) {
		w.appendTo(filepath.Join(w.bareAsFiles(), "HEAD"), "edit")
	}},
	{name: "bare repository of which some files are committed", want: "preserved:nested_repository", build: func(w *world) {
		w.git(w.bareAsFiles(), "branch", "late", "main")
	}},
	{name: "bare repository of which an ignored file is not committed", want: "preserved:nested_repository", discard: "preserved:nested_repository", build: func(w *world) {
		w.put(filepath.Join(w.bareAsFiles(), "objects/build/late"), "late")
	}},
	{name: "nested repository with a stash only", want: "preserved:nested_repository", discard: "preserved:nested_repository", build: func(w *world) {
		lib := w.nest("scratch/lib")
		w.appendTo(filepath.Join(lib, "mine.txt"), "x")
		w.git(lib, "stash", "-q")
	}},
	{name: "nested repository whose .git is a link", want: "preserved:nested_repository", build: func(w *world) {
		other := w.newRepository("other")
		a := w.worktree("a")
		w.do(os.Mkdir(filepath.Join(a, "scratch"), 0o755))
		w.do(os.Symlink(filepath.Join(other, ".git"), filepath.Join(a, "scratch/.git")))
	}},
	{name: "nested worktree of another repository", want: "preserved:nested_repository", build: func(w *world) {
		other := w.newRepository("other")
		a := w.worktree("a")
		w.git(other, "worktree", "add", "-q", "-b", "x", filepath.Join(a, "scratch/x"))
	}},
	{name: "submodule", want: "preserved:submodule", build: func(w *world) { w.withSubmodule() }},
	{name: "submodule that is dirty", want: "preserved:submodule", build: func(w *world) {
		a := w.withSubmodule()
		w.appendTo(filepath.Join(a, "lib/src/app.txt"), "edit")
		w.put(filepath.Join(a, "lib/new.txt"), "new")
		w.keep(filepath.Join(a, "lib/src/app.txt"), filepath.Join(a, "lib/new.txt"))
	}},
	{name: "submodule hidden by ignoreSubmodules", want: "preserved:submodule", build: func(w *world) {
		a := w.withSubmodule()
		w.git(w.repo, "config", "diff.ignoreSubmodules", "all")
		w.appendTo(filepath.Join(a, "lib/src/app.txt"), "edit")
	}},
	{name: "submodule with a hostile config", want: "preserved:submodule", build: func(w *world) {
		a := w.withSubmodule()
		w.git(filepath.Join(a, "lib"), "config", "core.fsmonitor", w.trap())
	}},
	{name: "submodule's repository without its directory", want: "preserved:submodule", build: func(w *world) {
		a := w.withSubmodule()
		w.do(os.RemoveAll(filepath.Join(a, "lib")))
		w.do(os.Mkdir(filepath.Join(a, "lib"), 0o755))
	}},
	{name: "submodule commit staged", want: "preserved:staged", build: func(w *world) {
		w.addSubmodule()
		a := w.worktree("a")
		w.git(a, "update-index", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",lib")
	}},
}

// bareAsFiles makes a worktree with a bare repository that is committed file by
// file.
func (w *world) bareAsFiles() string {
	bare := filepath.Join(w.repo, "testdata/bare.git")
	w.git(w.root, "clone", "-q", "--bare", w.repo, bare)
	w.put(filepath.Join(bare, "refs/keep"), "keep")
	w.save(w.repo, "testdata")
	return filepath.Join(w.worktree("a"), "testdata/bare.git")
}

// nest makes a clone with a commit of its own inside a new worktree.
func (w *world) nest(at string) string {
	a := w.worktree("a")
	nested := filepath.Join(a, at)
	w.git(w.root, "clone", "-q", w.repo, nested)
	w.commit(nested, "mine.txt")
	w.keep(filepath.Join(nested, "mine.txt"), filepath.Join(nested, ".git/HEAD"))
	return nested
}

var commitScenarios = []scenario{
	{name: "detached commit that nothing reaches", want: "removed", build: func(w *world) {
		w.keepCommit(w.commit(w.detached("a"), "only.txt"))
	}},
	{name: "two worktrees that anchor each other", want: "removed|removed", build: func(w *world) {
		oid := w.commit(w.detached("a"), "only.txt")
		w.git(w.detached("b"), "checkout", "-q", oid)
		w.keepCommit(oid)
	}},
	{name: "main checkout's detached HEAD is the only other anchor", want: "removed", build: func(w *world) {
		oid := w.commit(w.detached("a"), "only.txt")
		w.git(w.repo, "checkout", "-q", oid)
		w.keepCommit(oid)
	}},
	{name: "shared symbolic ref that leads to the worktree's own HEAD", want: "removed", build: func(w *world) {
		a := w.detached("a")
		w.git(a, "symbolic-ref", "refs/heads/current", "HEAD")
		w.keepCommit(w.commit(a, "only.txt"))
	}},
	{name: "shared symbolic ref that leads to a ref of the worktree's own", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		oid := w.commit(a, "only.txt")
		w.git(a, "update-ref", "refs/worktree/mine", oid)
		w.git(a, "symbolic-ref", "refs/heads/current", "refs/worktree/mine")
		w.git(a, "reset", "-q", "--hard", "HEAD~1")
		w.keepCommit(oid)
	}},
	{name: "directory of shared refs that is a link to the worktree's own", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		oid := w.commit(a, "only.txt")
		w.git(a, "update-ref", "refs/worktree/mine", oid)
		w.linkRefs(a)
		w.git(a, "reset", "-q", "--hard", "HEAD~1")
		w.git(a, "reflog", "expire", "--expire=now", "--all")
		w.keepCommit(oid)
	}},
	{name: "branch in a directory of refs that is a link to the worktree's own", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		w.linkRefs(a)
		w.git(a, "update-ref", "refs/worktree/mine", "HEAD")
		w.git(a, "symbolic-ref", "HEAD", "refs/heads/linked/mine")
		w.keepCommit(w.commit(a, "only.txt"))
	}},
	{name: "commits on a branch that was deleted", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		w.keepCommit(w.commit(a, "one.txt"))
		w.git(a, "branch", "kept", "HEAD~1")
		w.git(a, "symbolic-ref", "HEAD", "refs/heads/kept")
		w.git(a, "reset", "-q", "--hard")
		w.git(w.repo, "branch", "-q", "-D", "a")
	}},
	{name: "ref of the worktree's own", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		oid := w.commit(a, "only.txt")
		w.git(a, "update-ref", "refs/worktree/mine", oid)
		w.git(a, "reset", "-q", "--hard", "HEAD~1")
		w.git(a, "reflog", "expire", "--expire=now", "--all")
		w.keepCommit(oid)
	}},
	{name: "blob that only a ref of the worktree's own names", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		w.put(w.path("note"), "note")
		oid := w.git(a, "hash-object", "-w", w.path("note"))
		w.git(a, "update-ref", "refs/worktree/note", oid)
		w.keepCommit(oid)
	}},
	{name: "commits in the reflog of a detached HEAD only", want: "removed", build: func(w *world) {
		a := w.detached("a")
		w.keepCommit(w.commit(a, "one.txt"))
		w.keepCommit(w.commit(a, "two.txt"))
		w.git(a, "checkout", "-q", "main~0")
	}},
	{name: "amended on a branch, whose reflog is shared", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		w.commit(a, "one.txt")
		w.git(a, "commit", "-q", "--amend", "-m", "amended")
	}},
	{name: "branch was deleted underneath", want: "preserved:staged", build: func(w *world) {
		a := w.worktree("a")
		w.commit(a, "only.txt")
		w.git(w.repo, "update-ref", "-d", "refs/heads/a")
	}},
	{name: "missing directory whose HEAD is the last anchor", want: "preserved:hidden_data", build: func(w *world) {
		a := w.detached("a")
		w.keepCommit(w.commit(a, "only.txt"))
		w.do(os.RemoveAll(a))
	}},
	{name: "missing directory with commits in its reflog only", want: "already_gone", build: func(w *world) {
		a := w.detached("a")
		w.keepCommit(w.commit(a, "only.txt"))
		w.git(a, "checkout", "-q", "main~0")
		w.do(os.RemoveAll(a))
	}},
	{name: "replaced objects do not count as reached", want: "removed", build: func(w *world) {
		a := w.detached("a")
		oid := w.commit(a, "only.txt")
		w.git(w.repo, "replace", "--graft", "main", oid)
		w.keepCommit(oid)
	}},
	{name: "broken ref elsewhere", want: "removed", build: func(w *world) {
		w.put(filepath.Join(w.repo, ".git/refs/heads/broken"), strings.Repeat("1", 40))
		a := w.detached("a")
		w.commit(a, "only.txt")
	}},
	{name: "merge in progress with a clean status", want: "preserved:operation_in_progress", build: func(w *world) {
		w.git(w.repo, "checkout", "-q", "-b", "other")
		w.commit(w.repo, "other.txt")
		w.git(w.repo, "checkout", "-q", "main")
		a := w.worktree("a")
		w.commit(a, "a.txt")
		w.git(a, "merge", "-q", "--no-commit", "-s", "ours", "other")
	}},
	{name: "rebase stopped to edit", want: "preserved:operation_in_progress", build: func(w *world) {
		a := w.worktree("a")
		w.commit(a, "a.txt")
		w.git(a, "-c", "sequence.editor=sed -i s/^pick/edit/", "rebase", "-q", "-i", "HEAD~1")
	}},
	{name: "bisect", want: "preserved:operation_in_progress", build: func(w *world) {
		a := w.worktree("a")
		first := w.git(a, "rev-parse", "HEAD")
		w.commit(a, "a.txt")
		w.commit(a, "b.txt")
		w.git(a, "bisect", "start", "HEAD", first)
	}},
	{name: "cherry-pick, revert and am, each stopped", want: "preserved:operation_in_progress|preserved:operation_in_progress|preserved:operation_in_progress", build: func(w *world) {
		w.put(filepath.Join(w.repo, "src/app.txt"), "theirs")
		w.save(w.repo, "theirs")
		patch := w.git(w.repo, "format-patch", "-1", "-o", w.path("home"))
		for _, name := range []string{"a", "b", "c"} {
			dir := w.worktree(name)
			w.put(filepath.Join(dir, "src/app.txt"), "ours "+name)
			w.save(dir, "ours")
		}
		_, _ = w.tryGit(w.path("wts/a"), "cherry-pick", "main~1")
		_, _ = w.tryGit(w.path("wts/b"), "revert", "--no-edit", "main")
		_, _ = w.tryGit(w.path("wts/c"), "am", patch)
		for _, name := range []string{"a", "b", "c"} {
			_, _ = w.tryGit(w.path("wts", name), "checkout", "-q", "HEAD", "--", ".")
		}
	}},
	{name: "locked", want: "preserved:locked", build: func(w *world) {
		w.git(w.repo, "worktree", "lock", "--reason", "demo on Friday", w.worktree("a"))
	}},
	{name: "locked and the directory is missing", want: "preserved:locked", build: func(w *world) {
		a := w.worktree("a")
		w.git(w.repo, "worktree", "lock", a)
		w.do(os.RemoveAll(a))
	}},
	{name: "index is locked", want: "failed:index_locked", build: func(w *world) {
		a := w.worktree("a")
		w.do(os.WriteFile(filepath.Join(w.admin(a), "index.lock"), nil, 0o644))
	}},
	{name: "HEAD is locked", want: "failed:index_locked", build: func(w *world) {
		a := w.worktree("a")
		w.do(os.WriteFile(filepath.Join(w.admin(a), "HEAD.lock"), nil, 0o644))
	}},
}

var identityScenarios = []scenario{
	{name: "not registered any more", want: "preserved:not_registered", build: func(w *world) {
		a := w.worktree("a")
		w.put(filepath.Join(a, "notes.md"), "x")
		w.do(os.RemoveAll(filepath.Join(w.repo, ".git/worktrees/a")))
	}},
	{name: "replaced by a clone", want: "preserved:identity_mismatch", build: func(w *world) {
		a := w.worktree("a")
		w.do(os.RemoveAll(a))
		w.git(w.root, "clone", "-q", w.repo, a)
		w.commit(a, "mine.txt")
	}},
	{name: "replaced by a plain directory", want: "preserved:identity_mismatch", build: func(w *world) {
		a := w.worktree("a")
		w.do(os.RemoveAll(a))
		w.put(filepath.Join(a, "notes.md"), "x")
	}},
	{name: "moved by hand", want: "preserved:identity_mismatch", build: func(w *world) {
		a := w.worktree("a")
		w.do(os.Rename(a, w.path("wts/b")))
		w.targets[0].Path = w.path("wts/b")
	}},
	{name: "copied", want: "preserved:identity_mismatch", build: func(w *world) {
		a := w.worktree("a")
		w.do(exec.Command("cp", "-a", a, w.path("wts/copy")).Run())
		w.targets[0].Path = w.path("wts/copy")
	}},
	{name: "worktree of another repository", want: "preserved:identity_mismatch", build: func(w *world) {
		w.worktree("a")
		w.targets[0].Repository = w.newRepository("other")
	}},
	{name: ".git file names another worktree", want: "preserved:identity_mismatch", build: func(w *world) {
		a := w.worktree("a")
		w.git(w.repo, "worktree", "add", "-q", "-b", "b", w.path("wts/b"))
		w.put(filepath.Join(a, ".git"), "gitdir: "+w.admin(w.path("wts/b")))
	}},
	{name: ".git file names a repository of its own", want: "preserved:identity_mismatch", build: func(w *world) {
		a := w.worktree("a")
		other := w.newRepository("other")
		w.git(other, "config", "core.fsmonitor", w.trap())
		w.put(filepath.Join(a, ".git"), "gitdir: "+filepath.Join(other, ".git"))
	}},
	{name: ".git file is garbage", want: "preserved:identity_mismatch", build: func(w *world) {
		w.put(filepath.Join(w.worktree("a"), ".git"), "garbage")
	}},
	{name: "two entries name the path", want: "preserved:identity_mismatch", build: func(w *world) {
		a := w.worktree("a")
		w.do(exec.Command("cp", "-a", w.admin(a), w.admin(a)+"2").Run())
	}},
	{name: "registry's entry names another path", want: "preserved:identity_mismatch", build: func(w *world) {
		w.put(filepath.Join(w.admin(w.worktree("a")), "gitdir"), w.path("elsewhere/.git"))
	}},
	{name: "repository was moved", want: "preserved:repository_missing", build: func(w *world) {
		a := w.worktree("a")
		w.appendTo(filepath.Join(a, "src/app.txt"), "edit")
		w.do(os.Rename(w.repo, w.path("moved")))
	}},
	{name: "repository was deleted", want: "preserved:repository_missing", build: func(w *world) {
		a := w.worktree("a")
		w.keep(filepath.Join(a, "src/app.txt"))
		w.do(os.RemoveAll(w.repo))
	}},
	{name: "corrupt index", want: "preserved:cannot_inspect", build: func(w *world) {
		w.do(os.WriteFile(filepath.Join(w.admin(w.worktree("a")), "index"), []byte("garbage"), 0o644))
	}},
	{name: "missing index", want: "preserved:staged", build: func(w *world) {
		w.do(os.Remove(filepath.Join(w.admin(w.worktree("a")), "index")))
	}},
	{name: "corrupt HEAD", want: "preserved:cannot_inspect", build: func(w *world) {
		w.put(filepath.Join(w.admin(w.worktree("a")), "HEAD"), "garbage")
	}},
	{name: "HEAD names a commit that is not there", want: "preserved:cannot_inspect", build: func(w *world) {
		w.put(filepath.Join(w.admin(w.worktree("a")), "HEAD"), strings.Repeat("1", 40))
	}},
	{name: "corrupt config", want: "preserved:cannot_inspect", build: func(w *world) {
		w.worktree("a")
		w.put(filepath.Join(w.repo, ".git/config"), "[broken")
	}},
}

var targetScenarios = []scenario{
	{name: "main working tree", want: "refused:main_worktree", build: func(w *world) {
		w.keep(filepath.Join(w.repo, ".git/HEAD"))
		w.target(w.repo)
	}},
	{name: "main working tree of a separate git directory", want: "refused:main_worktree", build: func(w *world) {
		w.git(w.root, "clone", "-q", "--separate-git-dir", w.path("elsewhere"), w.repo, w.path("separate"))
		w.targets = []Target{{Path: w.path("separate")}}
	}},
	{name: "bare repository", want: "refused:unsafe_target", build: func(w *world) {
		w.git(w.root, "clone", "-q", "--bare", w.repo, w.path("bare.git"))
		w.target(w.path("bare.git"))
	}},
	{name: "git directory", want: "refused:unsafe_target", build: func(w *world) { w.target(filepath.Join(w.repo, ".git")) }},
	{name: "home", want: "refused:unsafe_target", build: func(w *world) { w.target(w.path("home")) }},
	{name: "above home", want: "refused:unsafe_target", build: func(w *world) { w.target(w.root) }},
	{name: "home by another name", want: "refused:unsafe_target", build: func(w *world) {
		w.do(os.Symlink(w.path("home"), w.path("house")))
		w.engine.Home = w.path("house")
		w.target(w.path("home"))
	}},
	{name: "root directory", want: "refused:unsafe_target", build: func(w *world) { w.target("/") }},
	{name: "nothing", want: "refused:unsafe_target", build: func(w *world) { w.target("") }},
	{name: "relative", want: "refused:unsafe_target", build: func(w *world) { w.target("wts/a") }},
	{name: "with dots", want: "refused:unsafe_target|refused:unsafe_target", build: func(w *world) {
		w.worktree("a")
		w.targets = nil
		w.target(w.path("wts") + "/../wts/a")
		w.target(w.path("wts") + "/a/.")
	}},
	{name: "file", want: "refused:unsafe_target", build: func(w *world) {
		w.put(w.path("wts/file"), "x")
		w.target(w.path("wts/file"))
	}},
	{name: "link to a worktree", want: "refused:unsafe_target", build: func(w *world) {
		w.do(os.Symlink(w.worktree("a"), w.path("wts/link")))
		w.targets[0].Path = w.path("wts/link")
	}},
	{name: "directory inside a worktree", want: "refused:unsafe_target", build: func(w *world) {
		w.targets = []Target{{Repository: w.repo, Path: filepath.Join(w.worktree("a"), "src")}}
	}},
	{name: "directory of worktrees", want: "refused:unsafe_target", build: func(w *world) {
		w.worktree("a")
		w.targets = []Target{{Repository: w.repo, Path: w.path("wts")}}
	}},
	{name: "outside the roots", want: "refused:outside_roots", build: func(w *world) {
		w.worktree("a")
		w.engine.Roots = []string{w.path("home")}
	}},
	{name: "a root itself", want: "refused:outside_roots", build: func(w *world) {
		w.engine.Roots = append(w.engine.Roots, w.worktree("a"))
	}},
	{name: "above a root", want: "refused:outside_roots", build: func(w *world) {
		w.engine.Roots = append(w.engine.Roots, filepath.Join(w.worktree("a"), "src"))
	}},
	{name: "no roots at all", want: "refused:outside_roots", build: func(w *world) {
		w.worktree("a")
		w.engine.Roots = nil
	}},
	{name: "contains the main working tree", want: "refused:unsafe_target", build: func(w *world) {
		a := w.worktree("a")
		w.do(os.Rename(w.repo, filepath.Join(a, "repo")))
		w.repo = filepath.Join(a, "repo")
		w.git(w.repo, "worktree", "repair", a)
		w.targets[0].Repository = w.repo
	}},
}

var fileScenarios = []scenario{
	{name: "FIFO and socket", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		w.do(unix.Mkfifo(filepath.Join(a, "fifo"), 0o644))
		// A socket's path is short: it is made by a name relative to nothing.
		dir, err := os.MkdirTemp("", "s")
		w.do(err)
		defer os.RemoveAll(dir)
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
		w.do(err)
		listener.SetUnlinkOnClose(false)
		w.do(listener.Close())
		w.do(os.Rename(filepath.Join(dir, "s"), filepath.Join(a, "socket")))
	}},
	{name: "FIFO in the place of a tracked file", want: "preserved:modified", build: func(w *world) {
		path := filepath.Join(w.worktree("a"), "src/app.txt")
		w.do(os.Remove(path))
		w.do(unix.Mkfifo(path, 0o644))
	}},
	{name: "FIFO that git would read", want: "preserved:cannot_inspect", build: func(w *world) {
		w.do(unix.Mkfifo(filepath.Join(w.worktree("a"), "src/.gitignore"), 0o644))
	}},
	{name: "deeper than a path may be long", want: "preserved:cannot_inspect", build: func(w *world) {
		deepFile(w, w.worktree("a"), 25, strings.Repeat("d", 200))
	}},
	{name: "deeper than there are descriptors", want: "preserved:untracked", build: func(w *world) {
		deepFile(w, w.worktree("a"), 300, "d")
	}},
	{name: "deep and regenerable", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		w.do(os.Mkdir(filepath.Join(a, "node_modules"), 0o755))
		deepFile(w, filepath.Join(a, "node_modules"), 300, "d")
	}},
	{name: "links to files and directories outside", want: "removed", build: func(w *world) {
		w.put(w.path("outside/x"), "x")
		w.keep(w.path("outside/x"))
		a := w.worktree("a")
		w.do(os.MkdirAll(filepath.Join(a, "scratch"), 0o755))
		w.do(os.Symlink(w.path("outside"), filepath.Join(a, "scratch/dir")))
		w.do(os.Symlink(w.path("outside/x"), filepath.Join(a, "scratch/file")))
		w.do(os.Symlink("/", filepath.Join(a, "scratch/root")))
	}},
	{name: "hard link to a file outside", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		w.put(w.path("outside"), "x")
		w.keep(w.path("outside"))
		w.do(os.MkdirAll(filepath.Join(a, "build"), 0o755))
		w.do(os.Link(w.path("outside"), filepath.Join(a, "build/linked")))
	}},
	{name: "read-only directories of our own", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		w.put(filepath.Join(a, "node_modules/x/y/z.js"), "z")
		w.do(os.Chmod(filepath.Join(a, "node_modules/x/y"), 0o555))
		w.do(os.Chmod(filepath.Join(a, "node_modules/x"), 0o555))
		w.do(os.Chmod(filepath.Join(a, "src"), 0o555))
	}},
	{name: "LFS pointer without the filter", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		w.put(filepath.Join(a, ".gitattributes"), "*.bin filter=lfs diff=lfs merge=lfs -text")
		w.do(os.WriteFile(filepath.Join(a, "x.bin"), []byte(lfsPointerText("content\n")), 0o644))
		w.save(a, "lfs")
	}},
	{name: "LFS content that the pointer names", want: "removed", build: func(w *world) {
		w.smudge("content\n", "content\n")
	}},
	{name: "LFS content that the pointer does not name", want: "preserved:modified", build: func(w *world) {
		w.smudge("content\n", "CONTENT\n")
	}},
}

func lfsPointerText(content string) string {
	return fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%x\nsize %d\n", sha256.Sum256([]byte(content)), len(content))
}

// smudge commits an LFS pointer and puts content in its place, with a filter
// that must not be run.
func (w *world) smudge(committed, content string) {
	a := w.worktree("a")
	w.put(filepath.Join(a, ".gitattributes"), "*.bin filter=lfs -text")
	w.do(os.WriteFile(filepath.Join(a, "x.bin"), []byte(lfsPointerText(committed)), 0o644))
	w.save(a, "lfs")
	w.do(os.WriteFile(filepath.Join(a, "x.bin"), []byte(content), 0o644))
	program := w.trap()
	for _, key := range []string{"clean", "smudge", "process"} {
		w.git(w.repo, "config", "filter.lfs."+key, program)
	}
	w.git(w.repo, "config", "filter.lfs.required", "true")
}

// deepFile makes a file below depth directories of one name, by descriptors.
func deepFile(w *world, dir string, depth int, name string) {
	w.t.Helper()
	fd, err := openRetry(unix.AT_FDCWD, dir)
	w.do(err)
	for range depth {
		w.do(unix.Mkdirat(fd, name, 0o755))
		next, err := openRetry(fd, name)
		w.do(err)
		w.do(unix.Close(fd))
		fd = next
	}
	file, err := unix.Openat(fd, "notes.md", unix.O_CREAT|unix.O_WRONLY, 0o644)
	w.do(err)
	_, err = unix.Write(file, []byte("notes\n"))
	w.do(err)
	w.do(unix.Close(file))
	w.do(unix.Close(fd))
	w.t.Cleanup(func() {
		_ = deleteDirectory(w.t.Context(), filepath.Join(dir, name), new(Engine).unobserved())
	})
}

var hostileScenarios = []scenario{
	{name: "file system monitor", want: "removed", build: func(w *world) {
		w.worktree("a")
		w.git(w.repo, "config", "core.fsmonitor", w.trap())
	}},
	{name: "hooks", want: "removed", build: func(w *world) {
		a := w.detached("a")
		w.keepCommit(w.commit(a, "only.txt"))
		program := w.trap()
		for _, hook := range []string{"post-index-change", "reference-transaction", "post-checkout", "pre-auto-gc"} {
			w.do(os.MkdirAll(filepath.Join(w.repo, ".git/hooks"), 0o755))
			w.do(os.Symlink(program, filepath.Join(w.repo, ".git/hooks", hook)))
		}
	}},
	{name: "hooks path", want: "removed", build: func(w *world) {
		w.keepCommit(w.commit(w.detached("a"), "only.txt"))
		program := w.trap()
		w.do(os.Mkdir(w.path("home/hooks"), 0o755))
		w.do(os.Symlink(program, w.path("home/hooks/reference-transaction")))
		w.git(w.repo, "config", "core.hooksPath", w.path("home/hooks"))
	}},
	{name: "filters, by configured and by odd names", want: "preserved:modified", build: func(w *world) {
		a := w.worktree("a")
		w.put(filepath.Join(a, ".gitattributes"), "src/app.txt filter=evil\nsrc/lib.txt filter=a=b.c")
		w.save(a, "attributes")
		program := w.trap()
		for _, name := range []string{"evil", "a=b.c"} {
			for _, key := range []string{"clean", "smudge", "process"} {
				w.git(w.repo, "config", "filter."+name+"."+key, program)
			}
		}
		w.appendTo(filepath.Join(a, "src/app.txt"), "x")
		w.appendTo(filepath.Join(a, "src/lib.txt"), "x")
	}},
	{name: "external diff, pager, ssh, editor and text conversion", want: "preserved:modified", build: func(w *world) {
		a := w.worktree("a")
		w.put(filepath.Join(a, ".gitattributes"), "* diff=evil")
		w.save(a, "attributes")
		program := w.trap()
		for _, key := range []string{"diff.external", "core.pager", "core.sshCommand", "core.editor", "diff.evil.textconv", "diff.evil.command", "core.askPass", "gpg.program"} {
			w.git(w.repo, "config", key, program)
		}
		w.appendTo(filepath.Join(a, "src/app.txt"), "x")
	}},
	{name: "missing objects that a remote would be asked for", want: "preserved:cannot_inspect", build: func(w *world) {
		a := w.worktree("a")
		program := w.trap()
		w.git(w.repo, "config", "extensions.partialClone", "origin")
		w.git(w.repo, "config", "remote.origin.url", "ext::"+program)
		w.git(w.repo, "config", "remote.origin.promisor", "true")
		w.git(w.repo, "config", "protocol.ext.allow", "always")
		tree := w.git(a, "rev-parse", "HEAD^{tree}")
		w.do(os.Remove(filepath.Join(w.repo, ".git/objects", tree[:2], tree[2:])))
	}},
}

var useScenarios = []scenario{
	{name: "process stands in it", want: "failed:in_use", build: func(w *world) { w.hold(filepath.Join(w.worktree("a"), "src")) }},
	{name: "process has a file open", want: "failed:in_use", build: func(w *world) {
		a := w.worktree("a")
		file, err := os.Open(filepath.Join(a, "README.md"))
		w.do(err)
		defer file.Close()
		cmd := exec.Command("sleep", "600")
		cmd.ExtraFiles = []*os.File{file}
		cmd.Dir = "/"
		w.start(cmd)
	}},
	{name: "process has a deleted file open", want: "removed", build: func(w *world) {
		a := w.worktree("a")
		w.put(filepath.Join(a, "gone.txt"), "x")
		file, err := os.Open(filepath.Join(a, "gone.txt"))
		w.do(err)
		defer file.Close()
		w.do(os.Remove(filepath.Join(a, "gone.txt")))
		cmd := exec.Command("sleep", "600")
		cmd.ExtraFiles = []*os.File{file}
		cmd.Dir = "/"
		w.start(cmd)
	}},
	{name: "process stands in a sibling with a longer name", want: "removed", build: func(w *world) {
		w.worktree("a")
		w.do(os.Mkdir(w.path("wts/ab"), 0o755))
		w.hold(w.path("wts/ab"))
	}},
}

var familyScenarios = []scenario{
	{name: "child and parent, both clean", want: "removed|removed", build: func(w *world) { w.family("child") }},
	{name: "child below an ignored directory", want: "removed|removed", build: func(w *world) { w.family(".worktrees/child") }},
	{name: "three levels", want: "removed|removed|removed", build: func(w *world) {
		child := w.family("child")
		w.worktreeAt(filepath.Join(child, "grandchild"), "grandchild")
	}},
	{name: "dirty child", want: "preserved:child_preserved|preserved:untracked", build: func(w *world) {
		child := w.family(".worktrees/child")
		w.put(filepath.Join(child, "notes.md"), "x")
		w.keep(filepath.Join(child, "notes.md"))
	}},
	{name: "dirty grandchild keeps both, but not the sibling", want: "preserved:child_preserved|preserved:child_preserved|preserved:untracked|removed", build: func(w *world) {
		child := w.family(".worktrees/child")
		grandchild := w.worktreeAt(filepath.Join(child, ".worktrees/g"), "g")
		w.put(filepath.Join(grandchild, "notes.md"), "x")
		w.worktree("sibling")
	}},
	{name: "child in use", want: "failed:child_preserved|failed:in_use", build: func(w *world) { w.hold(w.family(".worktrees/child")) }},
	{name: "locked child", want: "preserved:child_preserved|preserved:locked", build: func(w *world) {
		w.git(w.repo, "worktree", "lock", w.family(".worktrees/child"))
	}},
	{name: "dirty parent, clean child", want: "preserved:untracked|removed", build: func(w *world) {
		w.family(".worktrees/child")
		w.put(w.path("wts/parent/notes.md"), "x")
		w.keep(w.path("wts/parent/notes.md"))
	}},
	{name: "child that is no target", want: "preserved:child_preserved", build: func(w *world) {
		w.family(".worktrees/child")
		w.targets = w.targets[:1]
	}},
	{name: "dirty sibling", want: "removed|preserved:untracked", build: func(w *world) {
		w.keepCommit(w.commit(w.worktree("a"), "done.txt"))
		b := w.worktree("b")
		w.put(filepath.Join(b, "notes.md"), "x")
		w.keep(filepath.Join(b, "notes.md"))
	}},
	{name: "child of another repository", want: "removed|removed", build: func(w *world) {
		a := w.worktree("a")
		w.repo = w.newRepository("other")
		w.worktreeAt(filepath.Join(a, "scratch/b"), "b")
	}},
	{name: "dirty child of another repository", want: "preserved:child_preserved|preserved:untracked", build: func(w *world) {
		a := w.worktree("a")
		w.repo = w.newRepository("other")
		w.put(filepath.Join(w.worktreeAt(filepath.Join(a, "scratch/b"), "b"), "notes.md"), "x")
	}},
	{name: "main working tree among the targets", want: "removed|refused:main_worktree", build: func(w *world) {
		w.worktree("a")
		w.target(w.repo)
	}},
	{name: "parent by its caller's word only", want: "preserved:child_preserved|preserved:untracked", build: func(w *world) {
		a := w.worktree("a")
		b := w.worktree("b")
		w.put(filepath.Join(b, "notes.md"), "x")
		w.targets[1].Parent = a
	}},
	{name: "the same target twice", want: "removed|removed", build: func(w *world) {
		a := w.worktree("a")
		w.target(a + "/")
	}},
}

// family makes a worktree and one inside it.
func (w *world) family(child string) string {
	parent := w.worktree("parent")
	w.commit(parent, "p.txt")
	return w.worktreeAt(filepath.Join(parent, child), "child")
}
