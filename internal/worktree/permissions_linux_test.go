package worktree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unwind/teardown"
)

// TestHalfDeletedGoesOn: a deletion that failed is retryable, and the next
// attempt deletes the rest.
func TestHalfDeletedGoesOn(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 && !canFreeze(t) {
		t.Skip("as root only an immutable file stops a deletion, and this file system has none")
	}
	w := newWorld(t)
	a := w.worktree("a")
	w.put(filepath.Join(a, "node_modules/x/y.js"), "y")
	var stop, goOn func(quarantine string)
	if os.Geteuid() == 0 {
		stop = func(q string) { w.do(freeze(filepath.Join(q, "node_modules/x"), true)) }
		goOn = func(q string) { w.do(freeze(filepath.Join(q, "node_modules/x"), false)) }
	} else {
		stop = func(string) { w.do(os.Chmod(w.path("wts"), 0o555)) }
		goOn = func(string) { w.do(os.Chmod(w.path("wts"), 0o755)) }
	}
	w.at("condemned", func() { stop(quarantinesAt(a)[0]) })
	report := w.engine.RemoveAll(t.Context(), w.targets, AllHooks{})[0]
	if verdict(report) != "failed:permission_denied" || !report.Retryable || report.Quarantine == "" {
		t.Errorf("got %s, quarantine %q: %s", verdict(report), report.Quarantine, report.Message)
	}
	goOn(report.Quarantine)
	expect(t, w.engine.RemoveAll(t.Context(), w.targets, AllHooks{}), "removed")
	w.checkLeftovers()
}

func canFreeze(t *testing.T) bool {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return freeze(path, true) == nil && freeze(path, false) == nil
}

func TestImmutableFile(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 || !canFreeze(t) {
		t.Skip("only root can make a file immutable, and not on every file system")
	}
	w := newWorld(t)
	a := w.worktree("a")
	w.do(freeze(filepath.Join(a, "README.md"), true))
	t.Cleanup(func() { _ = freeze(filepath.Join(a, "README.md"), false) })
	expect(t, w.removeAll(), "failed:permission_denied")
}

func TestReadOnlyParent(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 && !canFreeze(t) {
		t.Skip("root may write everywhere, and this file system has no immutable directories")
	}
	w := newWorld(t)
	w.worktree("a")
	if os.Geteuid() == 0 {
		w.do(freeze(w.path("wts"), true))
		t.Cleanup(func() { _ = freeze(w.path("wts"), false) })
	} else {
		w.do(os.Chmod(w.path("wts"), 0o555))
	}
	expect(t, w.removeAll(), "failed:permission_denied")
}

// freeze sets or clears the attribute "immutable".
func freeze(path string, on bool) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	flags, err := unix.IoctlGetInt(int(dir.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	const immutable = 0x10
	if on {
		flags |= immutable
	} else {
		flags &^= immutable
	}
	return unix.IoctlSetPointerInt(int(dir.Fd()), unix.FS_IOC_SETFLAGS, flags)
}

// TestDeletionIsGivenUp: a file system stops to answer in the midst of it. The next
// attempt deletes the rest, and the first one nothing more, even if it gets its answer.
func TestDeletionIsGivenUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := &world{t: t}
	for i := range 200 {
		w.put(filepath.Join(dir, "tree", strconv.Itoa(i%20), strconv.Itoa(i), "file.txt"), "x")
	}
	by := new(Engine).unobserved()
	by.patience = 300 * time.Millisecond
	var steps atomic.Int64
	answers := make(chan struct{})
	by.reached = func(string) {
		if steps.Add(1) == 50 {
			<-answers
		}
	}
	err := deleteDirectory(t.Context(), filepath.Join(dir, "tree"), by)
	if !errors.Is(err, errNoAnswer) || errnoCode(err) != teardown.CodeTimeout {
		t.Errorf("error %v", err)
	}
	w.do(deleteDirectory(t.Context(), filepath.Join(dir, "tree"), new(Engine).unobserved()))
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	w.put(filepath.Join(dir, "tree", "0", "0", "file.txt"), "somebody's")
	close(answers)
	time.Sleep(100 * time.Millisecond)
	if content, err := os.ReadFile(filepath.Join(dir, "tree", "0", "0", "file.txt")); err != nil || string(content) != "somebody's\n" {
		t.Errorf("%q, %v", content, err)
	}
}

// TestDeletionFailsInManyPlaces: no part of it goes on when it has failed.
func TestDeletionFailsInManyPlaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := &world{t: t}
	for i := range 200 {
		w.put(filepath.Join(dir, "tree", strconv.Itoa(i%20), strconv.Itoa(i), "file.txt"), "x")
	}
	ctx, cancel := context.WithCancel(t.Context())
	steps := 0
	by := new(Engine).unobserved()
	by.reached = func(string) {
		if steps++; steps == 50 {
			cancel()
		}
	}
	err := deleteDirectory(ctx, filepath.Join(dir, "tree"), by)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	after := steps
	w.do(deleteDirectory(t.Context(), filepath.Join(dir, "tree"), new(Engine).unobserved()))
	if steps != after {
		t.Errorf("%d steps after it had failed", steps-after)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
