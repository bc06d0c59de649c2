package worktree

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unwind/teardown"
)

// asked answers the commands that the engine gave git about the worktree, before
// it was moved aside and after.
func (w *world) asked() (first, second []string) {
	w.t.Helper()
	text, err := os.ReadFile(w.path("home/asked"))
	w.do(err)
	for line := range strings.Lines(string(text)) {
		command, tree, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case tree == "": // about the repository, when the registration goes
		case strings.Contains(tree, ".unwind-"):
			second = append(second, command)
		default:
			first = append(first, command)
		}
	}
	slices.Sort(first)
	slices.Sort(second)
	return first, second
}

func (w *world) listenToGit() {
	w.fakeGit(`tree=
for argument; do
	case $argument in
	--work-tree=*) tree=${argument#--work-tree=} ;;
	config|ls-files|ls-tree|rev-list|status|diff-index|for-each-ref) echo "$argument $tree" >>"` + w.path("home/asked") + `"; break ;;
	esac
done`)
}

// What is as committed, byte for byte, needs no other question, and what has not
// been changed for long needs none twice.
func TestWhatGitIsAsked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		build func(w *world, a string)
		first []string
		// changing is what the second look asks about files that may be changing;
		// resting, about those that rest.
		changing, resting []string
	}{
		{"as committed", func(*world, string) {}, []string{"ls-files", "ls-tree", "rev-list"}, []string{"ls-files"}, nil},
		{"with commits on its branch", func(w *world, a string) {
			w.put(filepath.Join(a, "b"), "b")
			w.git(a, "add", "b")
			w.git(a, "commit", "-qm", "b")
		}, []string{"ls-files", "ls-tree", "rev-list"}, []string{"ls-files"}, nil},
		{"with commits on no branch", func(w *world, a string) {
			w.git(a, "checkout", "-q", "--detach")
		}, []string{"ls-files", "ls-tree", "rev-list", "rev-list"}, []string{"ls-files", "rev-list"}, []string{"rev-list"}},
		{"with ignored files", func(w *world, a string) {
			w.put(filepath.Join(w.repo, ".git/info/exclude"), "node_modules/\n")
			w.put(filepath.Join(a, "node_modules/b.js"), "b")
		}, []string{"config", "diff-index", "ls-files", "ls-tree", "rev-list", "status"}, []string{"config", "diff-index", "ls-files", "status"}, nil},
		{"with a file that the main checkout has, too", func(w *world, a string) {
			w.put(filepath.Join(w.repo, ".git/info/exclude"), ".env\n")
			w.put(filepath.Join(w.repo, ".env"), "secret")
			w.put(filepath.Join(a, ".env"), "secret")
		}, []string{"config", "diff-index", "ls-files", "ls-tree", "rev-list", "status"}, []string{"config", "diff-index", "ls-files", "status"},
			[]string{"config", "diff-index", "ls-files", "status"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.engine.coarseAt = time.Nanosecond
			c.build(w, w.worktree("a"))
			w.listenToGit()
			expect(t, w.engine.RemoveAll(t.Context(), w.targets, AllHooks{}), "removed")
			first, second := w.asked()
			want := c.resting
			if !stampsChanges(w.root) {
				want = c.changing
			}
			if !slices.Equal(first, c.first) || !slices.Equal(second, want) {
				t.Errorf("first %q, then %q", first, second)
			}
		})
	}
}

// A file that was changed a moment ago may change again without a new stamp.
func TestRecentChangesAreLookedAtTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.worktree("a")
	w.listenToGit()
	expect(t, w.engine.RemoveAll(t.Context(), w.targets, AllHooks{}), "removed")
	if _, second := w.asked(); !slices.Contains(second, "ls-files") {
		t.Errorf("the second look asked %q", second)
	}
}

// TestChangesBetweenTheLooks: whatever is changed after a look that found
// nothing is seen by the next, however it is disguised.
func TestChangesBetweenTheLooks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(w *world, a string)
		want   string
	}{
		{"same size and time", func(w *world, a string) {
			path := filepath.Join(a, "src/app.txt")
			info, err := os.Stat(path)
			w.do(err)
			content, err := os.ReadFile(path)
			w.do(err)
			content[0] ^= 1
			w.do(os.WriteFile(path, content, 0o644))
			w.do(os.Chtimes(path, info.ModTime(), info.ModTime()))
			w.keep(path)
		}, "preserved:modified"},
		{"another file of the name", func(w *world, a string) {
			path := filepath.Join(a, "src/app.txt")
			w.put(path+"2", "other")
			w.do(os.Rename(path+"2", path))
			w.keep(path)
		}, "preserved:modified"},
		{"executable", func(w *world, a string) { w.do(os.Chmod(filepath.Join(a, "src/app.txt"), 0o755)) }, "preserved:modified"},
		{"file goes", func(w *world, a string) { w.do(os.Remove(filepath.Join(a, "src/app.txt"))) }, "preserved:modified"},
		{"new file", func(w *world, a string) {
			w.put(filepath.Join(a, "src/late.txt"), "late")
			w.keep(filepath.Join(a, "src/late.txt"))
		}, "preserved:untracked"},
		{"new file in a new directory", func(w *world, a string) {
			w.put(filepath.Join(a, "src/deep/late.txt"), "late")
			w.keep(filepath.Join(a, "src/deep/late.txt"))
		}, "preserved:untracked"},
		{"new file where git does not look", func(w *world, a string) {
			w.put(filepath.Join(a, "src/.git/late.txt"), "late")
			w.keep(filepath.Join(a, "src/.git/late.txt"))
		}, "preserved:hidden_data"},
		{"new repository", func(w *world, a string) { w.git(a, "init", "-q", "src/nested") }, "preserved:nested_repository"},
		{"staged", func(w *world, a string) {
			oid := w.git(w.repo, "rev-parse", "main:src/lib.txt")
			w.git(a, "update-index", "--cacheinfo", "100644,"+oid+",src/app.txt")
		}, "preserved:modified"},
		{"staged without a trace on disk", func(w *world, a string) {
			w.put(filepath.Join(w.root, "blob"), "staged")
			oid := w.git(a, "hash-object", "-w", w.path("blob"))
			w.git(a, "update-index", "--add", "--cacheinfo", "100644,"+oid+",only-staged.txt")
			w.git(a, "update-index", "--skip-worktree", "only-staged.txt")
		}, "preserved:staged"},
		{"to be added", func(w *world, a string) {
			path := filepath.Join(a, "empty.txt")
			w.do(os.WriteFile(path, nil, 0o644))
			w.git(a, "add", "-N", "empty.txt")
			w.keep(path)
		}, "preserved:staged"},
		{"other commit", func(w *world, _ string) {
			w.git(w.repo, "update-ref", "refs/heads/a", w.git(w.repo, "commit-tree", "-p", "main", "-m", "empty", w.git(w.repo, "hash-object", "-t", "tree", "-w", "/dev/null")))
		}, "preserved:staged"},
		{"operation begins", func(w *world, a string) {
			w.put(filepath.Join(w.admin(a), "MERGE_HEAD"), w.git(w.repo, "rev-parse", "main"))
		}, "preserved:operation_in_progress"},
		{"process enters", func(w *world, a string) { w.hold(a) }, "failed:in_use"},
		{"nothing but a look", func(w *world, a string) {
			_, err := os.ReadFile(filepath.Join(a, "src/app.txt"))
			w.do(err)
			w.git(a, "status")
		}, "removed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.engine.coarseAt = time.Nanosecond
			a := w.worktree("a")
			w.at("moving aside", func() { c.change(w, a) })
			reports := w.engine.RemoveAll(t.Context(), w.targets, AllHooks{})
			expect(t, reports, c.want)
			if reports[0].Disposition != teardown.DispositionRemoved && reports[0].Quarantine != "" {
				t.Errorf("left in %s", reports[0].Quarantine)
			}
			w.checkNothingLost(nil)
		})
	}
}

// In the first look, too, a worktree that is not its commit is no commit.
func TestNearlyAsCommitted(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *world, a string){
		"empty file to be added": func(w *world, a string) {
			w.do(os.WriteFile(filepath.Join(a, "empty.txt"), nil, 0o644))
			w.git(a, "add", "-N", "empty.txt")
		},
		"staged as it is": func(w *world, a string) {
			w.put(filepath.Join(a, "staged.txt"), "staged")
			w.git(a, "add", "staged.txt")
		},
		"another file for a committed one": func(w *world, a string) {
			w.git(a, "mv", "src/app.txt", "src/apq.txt")
		},
		"unborn branch": func(w *world, a string) { w.git(a, "checkout", "-q", "--orphan", "none") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.worktree("a")
			change(w, a)
			before := w.snapshot(a)
			if reports := w.engine.RemoveAll(t.Context(), w.targets, AllHooks{}); reports[0].Disposition != teardown.DispositionPreserved {
				t.Errorf("got %s", verdict(reports[0]))
			}
			if changed := differences(before, w.snapshot(a)); len(changed) > 0 {
				t.Errorf("changed: %q", changed)
			}
		})
	}
}

// TestStampsThatAreNotBelieved: what cannot be told is read twice.
func TestStampsThatAreNotBelieved(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]bool{t.TempDir(): stampsChanges(os.TempDir()), "/dev/fd/": false, filepath.Join(t.TempDir(), "gone"): false} {
		s := seen{contents: &contents{dir: dir, tree: &tree{}, resting: true}}
		if got := s.steady(time.Now(), coarse) != nil; got != want {
			t.Errorf("%s: steady is %v", dir, got)
		}
	}
}

// TestWritesThroughAMapping: they leave no stamp of their own after the first.
func TestWritesThroughAMapping(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.engine.coarseAt = time.Nanosecond
	path := filepath.Join(w.worktree("a"), "src/app.txt")
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	w.do(err)
	mapped, err := unix.Mmap(int(file.Fd()), 0, len("app v1"), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	w.do(errors.Join(err, file.Close()))
	defer func() { _ = unix.Munmap(mapped) }()
	mapped[0] = 'a'
	w.at("moving aside", func() { mapped[0] = 'X' })
	expect(t, w.engine.RemoveAll(t.Context(), w.targets, AllHooks{}), "preserved:modified")
	if content, err := os.ReadFile(path); err != nil || string(content) != "Xpp v1\n" {
		t.Errorf("%q %v", content, err)
	}
}
