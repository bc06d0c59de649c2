package lock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/lock"
	"unwind/teardown"
)

const roleVariable = "UNWIND_LOCK_TEST_ROLE"

// patience is for locks that a test expects to become free.
var patience = lock.Wait{Limit: time.Minute}

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "worker":
		runWorker(lock.Dir(os.Args[1]))
	case "child":
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test closes it
	default:
		os.Exit(m.Run())
	}
}

// runWorker takes a lock, starts a child that inherits it and the standard
// input, says so, and waits to be killed.
func runWorker(dir lock.Dir) {
	held, err := dir.Path(context.Background(), "/wt/s1", patience)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), roleVariable+"=child")
	child.Stdin = os.Stdin
	child.ExtraFiles = []*os.File{held.File()}
	if err := child.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("started")
	select {}
}

func setup(t *testing.T) (context.Context, lock.Dir) {
	t.Helper()
	t.Parallel()
	return t.Context(), lock.Dir(filepath.Join(t.TempDir(), "state", "locks"))
}

func requireBusy(t *testing.T, err error) {
	t.Helper()
	var e *teardown.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, teardown.CodeBusy, e.Code)
	require.True(t, e.Retryable)
}

func TestTwoAttemptsInOneProcessExcludeEachOther(t *testing.T) {
	ctx, dir := setup(t)
	for name, take := range map[string]func(lock.Wait) (*lock.Held, error){
		"session":    func(w lock.Wait) (*lock.Held, error) { return dir.Session(ctx, "s1", w) },
		"path":       func(w lock.Wait) (*lock.Held, error) { return dir.Path(ctx, "/wt/s1", w) },
		"repository": func(w lock.Wait) (*lock.Held, error) { return dir.Repository(ctx, "/wt/s1", w) },
		"host":       func(w lock.Wait) (*lock.Held, error) { return dir.Host(ctx, "s1", w) },
	} {
		first, err := take(lock.Wait{})
		require.NoError(t, err, name)
		_, err = take(lock.Wait{})
		requireBusy(t, err)
		first.Release()
		second, err := take(patience)
		require.NoError(t, err, name)
		t.Cleanup(second.Release) // held on: the kinds do not exclude each other
	}
}

func TestAtMostOneHolds(t *testing.T) {
	ctx, dir := setup(t)
	var holders, most atomic.Int32
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 5 {
				held, err := dir.Session(ctx, "s1", patience)
				if err != nil {
					t.Error(err)
					return
				}
				if n := holders.Add(1); n > 1 {
					most.Store(n)
				}
				holders.Add(-1)
				held.Release()
			}
		})
	}
	group.Wait()
	require.Zero(t, most.Load())
}

func TestKilledWorkersChildKeepsTheLock(t *testing.T) {
	ctx, dir := setup(t)
	input, release, err := os.Pipe()
	require.NoError(t, err)
	defer release.Close()
	worker := exec.Command(os.Args[0], string(dir))
	worker.Env = append(os.Environ(), roleVariable+"=worker")
	worker.Stdin = input
	output, err := worker.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, worker.Start())
	defer func() { _ = worker.Process.Kill() }()
	require.NoError(t, input.Close())
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "started", strings.TrimSpace(line))

	require.NoError(t, worker.Process.Kill())
	require.Error(t, worker.Wait())
	_, err = dir.Path(ctx, "/wt/s1", lock.Wait{Limit: 200 * time.Millisecond})
	requireBusy(t, err)

	freed := make(chan error, 1)
	waiting := make(chan struct{})
	var once sync.Once
	go func() {
		held, err := dir.Path(ctx, "/wt/s1", lock.Wait{Limit: time.Minute, Each: func() { once.Do(func() { close(waiting) }) }})
		held.Release()
		freed <- err
	}()
	<-waiting
	require.NoError(t, release.Close()) // the child ends
	require.NoError(t, <-freed)
}

func TestOrdinaryChildrenDoNotInheritTheLock(t *testing.T) {
	ctx, dir := setup(t)
	held, err := dir.Session(ctx, "s1", lock.Wait{})
	require.NoError(t, err)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), roleVariable+"=child")
	input, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	held.Release()

	again, err := dir.Session(ctx, "s1", patience)
	require.NoError(t, err)
	again.Release()
	require.NoError(t, input.Close())
	require.NoError(t, child.Wait())
}

func TestReleaseDoesNotFreeTheLockUnderASharedFile(t *testing.T) {
	ctx, dir := setup(t)
	held, err := dir.Session(ctx, "s1", lock.Wait{})
	require.NoError(t, err)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), roleVariable+"=child")
	child.ExtraFiles = []*os.File{held.File()}
	input, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	held.Release()
	held.Release() // again is harmless

	_, err = dir.Session(ctx, "s1", lock.Wait{Limit: 100 * time.Millisecond})
	requireBusy(t, err)
	require.NoError(t, input.Close())
	require.NoError(t, child.Wait())
	again, err := dir.Session(ctx, "s1", patience)
	require.NoError(t, err)
	again.Release()
}

func TestWaitingCallsEachAndEndsAtTheLimit(t *testing.T) {
	ctx, dir := setup(t)
	held, err := dir.Session(ctx, "s1", lock.Wait{})
	require.NoError(t, err)
	defer held.Release()
	calls := 0
	_, err = dir.Session(ctx, "s1", lock.Wait{Limit: 300 * time.Millisecond, Each: func() { calls++ }})
	requireBusy(t, err)
	require.Positive(t, calls)
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	ctx, dir := setup(t)
	held, err := dir.Session(ctx, "s1", lock.Wait{})
	require.NoError(t, err)
	defer held.Release()
	cancellable, cancel := context.WithCancelCause(ctx)
	reason := errors.New("the attempt was given up")
	_, err = dir.Session(cancellable, "s1", lock.Wait{Limit: time.Hour, Each: func() { cancel(reason) }})
	requireBusy(t, err)
	require.ErrorIs(t, err, reason)
}

func TestReleaseOfNothing(t *testing.T) {
	t.Parallel()
	var held *lock.Held
	held.Release()
}

func TestLockFilesAreForTheirOwnerOnly(t *testing.T) {
	ctx, dir := setup(t)
	held, err := dir.Path(ctx, "/wt/"+strings.Repeat("x", 4000), lock.Wait{})
	require.NoError(t, err)
	held.Release()
	info, err := os.Stat(string(dir))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	entries, err := os.ReadDir(string(dir))
	require.NoError(t, err)
	require.Len(t, entries, 1, "the file stays after the release")
}

func TestKeysThatAreNone(t *testing.T) {
	ctx, dir := setup(t)
	_, err := dir.Session(ctx, "../s1", lock.Wait{})
	require.Equal(t, teardown.CodeInvalidID, teardown.CodeOf(err))
	for _, path := range []string{"", "wt/s1", "/wt/../s1", "/wt/s1/"} {
		_, err := dir.Path(ctx, path, lock.Wait{})
		require.Equal(t, teardown.CodeInternal, teardown.CodeOf(err), path)
	}
}

func TestStateDirectoryThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := lock.Dir(file).Session(t.Context(), "s1", lock.Wait{})
	require.Equal(t, teardown.CodeIOError, teardown.CodeOf(err))
	require.ErrorContains(t, err, "session s1")
}

func TestDirectoryIsOneLockForAllNames(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir := filepath.Join(parent, "dir")
	require.NoError(t, os.Mkdir(dir, 0o755))
	held, err := lock.Directory(context.Background(), dir, lock.Wait{})
	require.NoError(t, err)
	require.NoError(t, os.Rename(dir, dir+"-moved"))
	_, err = lock.Directory(context.Background(), dir+"-moved", lock.Wait{})
	require.Equal(t, teardown.CodeBusy, teardown.CodeOf(err))
	held.Release()
	again, err := lock.Directory(context.Background(), dir+"-moved", patience)
	require.NoError(t, err)
	again.Release()
	_, err = lock.Directory(context.Background(), dir, lock.Wait{})
	require.ErrorIs(t, err, os.ErrNotExist)
}
