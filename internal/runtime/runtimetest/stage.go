//go:build linux

// Package runtimetest holds every kind of runtime to the sentences of
// runtime.Kind, with real processes and real tmux servers of its own.
package runtimetest

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unwind/internal/runtime"
	"unwind/internal/runtime/proctable"
)

// stageVariable marks every process that a stage starts; runVariable every
// process of this run of the test binary, also what a kind starts itself, whose
// environment is ours without what begins with UNWIND_.
const (
	stageVariable = "TESTS_OF_UNWIND_STAGE"
	runVariable   = "TESTS_OF_UNWIND_RUN"
)

// patience bounds every wait for something that has to happen.
const patience = 30 * time.Second

// Stage is the private place of one test. What is started on it is ended with
// the test.
type Stage struct {
	Dir      string // short, for the sake of socket paths; $STAGE for scripts
	Worktree string
	RunID    string // what the runtime's processes carry in UNWIND_RUN_ID
	mark     string
	started  []proctable.Ref
}

// NewStage makes a stage.
func NewStage(t *testing.T) *Stage {
	t.Helper()
	dir, err := os.MkdirTemp("", "u")
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	s := &Stage{Dir: dir, Worktree: filepath.Join(dir, "wt"), RunID: random(), mark: stageVariable + "=" + random()}
	if err := os.Mkdir(s.Worktree, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.clear(t) })
	return s
}

// EnvTag is the entry that the runtime's processes carry.
func (s *Stage) EnvTag() string { return runtime.RunVariable + "=" + s.RunID }

// Environ is the environment of what is started on the stage, without the
// runtime's tag.
func (s *Stage) Environ() []string {
	var environ []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "TMUX") && !strings.HasPrefix(entry, runtime.RunVariable+"=") {
			environ = append(environ, entry)
		}
	}
	return append(environ, s.mark, "STAGE="+s.Dir, "HOME="+s.Dir, "SHELL=/bin/sh", "TERM=xterm", "LC_ALL=C.UTF-8")
}

// Start runs a shell script as a session leader in dir and returns its process.
// It is a child of the test, reaped when it ends.
func (s *Stage) Start(t *testing.T, dir, script string, environ ...string) int {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(s.Environ(), environ...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	s.Launch(t, cmd)
	return cmd.Process.Pid
}

// Launch starts cmd, reaps it when it ends, and ends it with the test.
func (s *Stage) Launch(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.Keep(t, cmd.Process.Pid)
	reaped := make(chan struct{})
	go func() { _ = cmd.Wait(); close(reaped) }()
	t.Cleanup(func() {
		s.clear(t)
		<-reaped
	})
}

// Keep has a process ended with the test that does not carry the stage's mark.
func (s *Stage) Keep(t *testing.T, pid int) {
	t.Helper()
	s.started = append(s.started, Ref(t, pid))
}

// PID waits until a script has written a process number to a file of the stage.
func (s *Stage) PID(t *testing.T, name string) int {
	t.Helper()
	var pid int
	Eventually(t, "a process number in "+name, func() bool {
		content, _ := os.ReadFile(filepath.Join(s.Dir, name))
		text, whole := strings.CutSuffix(string(content), "\n")
		var err error
		pid, err = strconv.Atoi(text)
		return whole && err == nil
	})
	s.Keep(t, pid)
	return pid
}

// Has reports whether a script has made a file of the stage.
func (s *Stage) Has(name string) bool {
	_, err := os.Stat(filepath.Join(s.Dir, name))
	return err == nil
}

// clear ends everything that was started here, by proof. Two looks have to find
// nothing: what hands itself on may be missed by one.
func (s *Stage) clear(t *testing.T) {
	none := 0
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		left, err := Carrying(s.mark)
		if err != nil {
			t.Errorf("cannot clean up: %v", err)
			return
		}
		for _, ref := range s.started {
			if alive, _ := proctable.Alive(ref); alive {
				left = append(left, ref)
			}
		}
		if len(left) > 0 {
			none = 0
		} else if none++; none == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("processes are left: %v", left)
			return
		}
		for _, ref := range left {
			Signal(ref, unix.SIGKILL)
		}
	}
	if err := os.RemoveAll(s.Dir); err != nil {
		t.Error(err)
	}
}

// Carrying returns the living processes, the caller aside, that carry entry.
func Carrying(entry string) ([]proctable.Ref, error) {
	table, err := proctable.Scan()
	if err != nil {
		return nil, err
	}
	var refs []proctable.Ref
	for pid, p := range table {
		if p.Dead || pid == os.Getpid() {
			continue
		}
		if environment, err := proctable.Environ(pid); err == nil && environment.Has(entry) {
			refs = append(refs, p.Ref)
		}
	}
	return refs, nil
}

// Signal signals exactly the process of ref, if it is still there.
func Signal(ref proctable.Ref, signal unix.Signal) {
	if handle, err := proctable.Open(ref); err == nil {
		_ = handle.Signal(signal)
		handle.Close()
	}
}

// Ref names the process that has this number now.
func Ref(t *testing.T, pid int) proctable.Ref {
	t.Helper()
	p, err := proctable.Read(pid)
	if err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
	return p.Ref
}

// Alive reports whether the process that has this number now runs.
func Alive(pid int) bool {
	p, err := proctable.Read(pid)
	return err == nil && !p.Dead
}

// Kill kills one process and waits until it is dead.
func Kill(t *testing.T, pid int) {
	t.Helper()
	Signal(Ref(t, pid), unix.SIGKILL)
	Eventually(t, fmt.Sprintf("death of process %d", pid), func() bool { return !Alive(pid) })
}

// Eventually waits for a condition.
func Eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func random() string {
	b := make([]byte, 16)
	rand.Read(b)
	return hex.EncodeToString(b)
}
