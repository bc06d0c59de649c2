package worktree

import (
	"errors"
	"os"
	"testing"

	"unwind/teardown"
)

func (w *world) newTree(name string) NewTree {
	return NewTree{Repository: w.repo, Path: w.path("wts", name), Branch: "agent/" + name, Nonce: NewNonce()}
}

func (w *world) plan(n NewTree, among ...string) NewTree {
	w.t.Helper()
	planned, err := w.engine.Plan(w.t.Context(), n, among)
	if err != nil {
		w.t.Fatal(err)
	}
	return planned
}

func (w *world) create(n NewTree) Registered {
	w.t.Helper()
	made, err := w.engine.Create(w.t.Context(), n, Hooks{})
	if err != nil {
		w.t.Fatal(err)
	}
	return made
}

func TestCreate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.plan(w.newTree("a"))
	if _, err := os.Lstat(n.Path); err == nil {
		t.Fatal("a plan changes nothing")
	}
	made := w.create(n)
	if made.Nonce != n.Nonce || made.Branch != "agent/a" || made.Path != n.Path {
		t.Errorf("%+v", made)
	}
	if got := w.git(n.Path, "status", "--porcelain"); got != "" {
		t.Errorf("it is not clean: %s", got)
	}
	entries, err := w.engine.List(t.Context(), w.repo)
	if err != nil || len(entries) != 2 || entries[1].Locked {
		t.Errorf("%+v %v", entries, err)
	}
	again := w.create(n)
	if again != made {
		t.Errorf("again: %+v", again)
	}
	report, err := w.engine.Remove(t.Context(), Target{Repository: w.repo, Path: n.Path, Nonce: n.Nonce}, &fileJournal{path: w.path("journal")}, Hooks{})
	if err != nil || report.Disposition != teardown.DispositionRemoved {
		t.Errorf("%+v %v", report, err)
	}
}

func TestCreateInsideAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lib := w.newRepository("lib")
	outer := w.newTree("outer")
	inner := NewTree{Repository: lib, Path: outer.Path + "/vendor/lib", Nonce: NewNonce()}
	planned := w.plan(inner, outer.Path)
	w.create(w.plan(outer))
	if made := w.create(planned); made.Branch != "" {
		t.Errorf("%+v", made)
	}
	if got := w.git(outer.Path, "status", "--porcelain"); got != "?? vendor/" {
		t.Errorf("%q", got)
	}
}

func TestCreateOnABranchThatIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.git(w.repo, "rev-parse", "HEAD")
	w.git(w.repo, "branch", "agent/a")
	w.git(w.repo, "commit", "-q", "--allow-empty", "-m", "two")
	n := w.plan(w.newTree("a"))
	if n.Commit != first {
		t.Errorf("it goes on with the branch: %s", n.Commit)
	}
	if made := w.create(n); made.Branch != "agent/a" {
		t.Errorf("%+v", made)
	}
	// At its base it is as good as new: an attempt that was cut off has made it.
	b := w.newTree("b")
	b.Base = "HEAD"
	w.git(w.repo, "branch", "agent/b")
	w.create(w.plan(b))
}

func TestWhatCannotBeCreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.git(w.repo, "branch", "agent/old")
	w.git(w.repo, "commit", "-q", "--allow-empty", "-m", "two")
	w.git(w.repo, "branch", "agent/used")
	w.git(w.repo, "worktree", "add", "-q", w.path("wts", "used"), "agent/used")
	w.put(w.path("wts", "file"), "mine")
	if err := os.Mkdir(w.path("wts", "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	empty := w.path("none")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	unborn := w.path("unborn")
	w.git(w.root, "init", "-q", unborn)
	for name, c := range map[string]struct {
		change func(*NewTree)
		code   teardown.Code
	}{
		"a file is there":             {func(n *NewTree) { n.Path = w.path("wts", "file") }, teardown.CodeUnsafeTarget},
		"an empty directory is there": {func(n *NewTree) { n.Path = w.path("wts", "empty") }, teardown.CodePathOccupied},
		"a worktree is there":         {func(n *NewTree) { n.Path = w.path("wts", "used") }, teardown.CodePathOccupied},
		"outside of the roots":        {func(n *NewTree) { n.Path = "/wt" }, teardown.CodeOutsideRoots},
		"no directory to make it in":  {func(n *NewTree) { n.Path = w.path("wts", "x", "y") }, teardown.CodeWorktreeMissing},
		"no repository":               {func(n *NewTree) { n.Repository = empty }, teardown.CodeRepositoryMissing},
		"no commit":                   {func(n *NewTree) { n.Repository = unborn }, teardown.CodeInvalidManifest},
		"no such base":                {func(n *NewTree) { n.Base = "nosuch" }, teardown.CodeInvalidManifest},
		"a base like an option":       {func(n *NewTree) { n.Base = "--all" }, teardown.CodeInvalidManifest},
		"no name for a branch":        {func(n *NewTree) { n.Branch = "a..b" }, teardown.CodeInvalidManifest},
		"a branch like an option":     {func(n *NewTree) { n.Branch = "-d" }, teardown.CodeInvalidManifest},
		"the branch is elsewhere":     {func(n *NewTree) { n.Branch, n.Base = "agent/old", "HEAD" }, teardown.CodeConflict},
		"the branch is in use":        {func(n *NewTree) { n.Branch = "agent/used" }, teardown.CodeConflict},
		"the main tree has it":        {func(n *NewTree) { n.Branch = "main" }, teardown.CodeConflict},
		"not UTF-8":                   {func(n *NewTree) { n.Path = w.path("wts", "\xff") }, teardown.CodePathNotUTF8},
	} {
		n := w.newTree("new")
		c.change(&n)
		_, err := w.engine.Plan(t.Context(), n, nil)
		if teardown.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
		var own *teardown.Error
		if errors.As(err, &own) && own.Retryable {
			t.Errorf("%s is retryable", name)
		}
	}
	if _, err := os.Lstat(w.path("wts", "new")); err == nil {
		t.Error("something was made")
	}
}

// Between the plan and the making somebody else was faster.
func TestCreateTouchesNothingThatCameMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.plan(w.newTree("a"))
	if err := os.Mkdir(n.Path, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := w.engine.Create(t.Context(), n, Hooks{}); teardown.CodeOf(err) != teardown.CodePathOccupied {
		t.Errorf("%v", err)
	}
	if err := os.Remove(n.Path); err != nil {
		t.Errorf("the directory was touched: %v", err)
	}
	w.git(w.repo, "worktree", "add", "-q", "-b", "theirs", n.Path)
	if _, err := w.engine.Create(t.Context(), n, Hooks{}); teardown.CodeOf(err) != teardown.CodePathOccupied {
		t.Errorf("%v", err)
	}
	if nonce, _ := readNonce(w.repo + "/.git/worktrees/a"); nonce != "" {
		t.Error("another worktree was marked")
	}
	n = w.plan(w.newTree("b"))
	n.Base = "HEAD"
	w.git(w.repo, "commit", "-q", "--allow-empty", "-m", "theirs")
	w.git(w.repo, "branch", n.Branch)
	if _, err := w.engine.Create(t.Context(), n, Hooks{}); teardown.CodeOf(err) != teardown.CodeConflict {
		t.Errorf("%v", err)
	}
}

func TestCreateGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"made", "marked"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			n := w.plan(w.newTree("a"))
			w.crashing(point, func() { _, _ = w.engine.Create(t.Context(), n, Hooks{}) })
			made := w.create(n)
			if made.Nonce != n.Nonce {
				t.Errorf("%+v", made)
			}
			entries, err := w.engine.List(t.Context(), w.repo)
			if err != nil || entries[1].Locked {
				t.Errorf("%+v %v", entries, err)
			}
		})
	}
}

func TestAdoptLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.plan(w.newTree("a"))
	w.crashing("made", func() { _, _ = w.engine.Create(t.Context(), n, Hooks{}) })
	other := Target{Repository: w.repo, Path: n.Path, Nonce: NewNonce()}
	if mine, err := w.engine.Adopt(t.Context(), other); mine || err != nil {
		t.Errorf("%v %v", mine, err)
	}
	other.Nonce = n.Nonce
	if mine, err := w.engine.Adopt(t.Context(), other); !mine || err != nil {
		t.Errorf("%v %v", mine, err)
	}
	w.git(w.repo, "worktree", "lock", "--reason", "mine", n.Path)
	if mine, err := w.engine.Adopt(t.Context(), other); !mine || err != nil {
		t.Errorf("%v %v", mine, err)
	}
	if entries, _ := w.engine.List(t.Context(), w.repo); !entries[1].Locked {
		t.Error("a person's lock was taken away")
	}
}

// What git was stopped in the middle of is not handed to an agent.
func TestCreateRefusesHalfOfAWorktree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(w.repo+"/file", "content")
	w.git(w.repo, "add", ".")
	w.git(w.repo, "commit", "-q", "-m", "file")
	n := w.plan(w.newTree("a"))
	w.crashing("made", func() { _, _ = w.engine.Create(t.Context(), n, Hooks{}) })
	if err := os.Remove(n.Path + "/file"); err != nil {
		t.Fatal(err)
	}
	_, err := w.engine.Create(t.Context(), n, Hooks{})
	var own *teardown.Error
	if !errors.As(err, &own) || own.Code != teardown.CodeGitFailed || own.Retryable {
		t.Errorf("%v", err)
	}
}

// crashing runs do as far as a step.
func (w *world) crashing(point string, do func()) {
	w.t.Helper()
	engine := *w.engine
	defer func() {
		*w.engine = engine
		if recover() != point {
			w.t.Fatalf("%s was not reached", point)
		}
	}()
	w.engine.reached = func(step string) {
		if step == point {
			panic(point)
		}
	}
	do()
}
