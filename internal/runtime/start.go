package runtime

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"unwind/internal/runtime/proctable"
	"unwind/teardown"
)

// Starter is a Kind whose runtimes unwind can start itself. What it starts is
// planned first, and the plan recorded, so that a start that was cut off is
// found by its tag.
type Starter interface {
	// Plan completes the record of a runtime that is about to be started: a fresh
	// tag, the boot, and the control group that its processes are to be in, where
	// one can be had. It starts nothing.
	Plan(rt teardown.Runtime) (teardown.Runtime, error)

	// Start starts a planned runtime and pins it. Nothing of the caller's settings
	// or descriptors is handed on. The error has CodeConflict if the name is
	// taken, CodeInvalidManifest if the command cannot be run,
	// CodeRuntimeExited if it ended at once, and CodeRuntimeUnreachable,
	// retryable, if it could not be told whether it was started: Find tells.
	Start(ctx context.Context, rt teardown.Runtime, launch Launch) (teardown.Runtime, error)

	// Find looks, by the tag of its plan, for a runtime that Start may have begun
	// and answers it pinned. Found is false if there is none; what could not be
	// told is an error with CodeRuntimeUnreachable, retryable.
	Find(ctx context.Context, rt teardown.Runtime) (_ teardown.Runtime, found bool, err error)
}

// Launch is what a runtime is to run.
type Launch struct {
	Command   []string // the program and its arguments, as they are; no shell reads them
	Directory string   // absolute; "" means "/"
	// Output is a file to which a process's output is added; "" drops it. Kind
	// process only.
	Output string
}

// Check refuses what cannot be run, before anything is started.
func (l Launch) Check() error {
	if err := l.CheckCommand(); err != nil {
		return err
	}
	if info, err := os.Stat(l.directory()); err != nil || !info.IsDir() {
		return unfit("The directory %s, in which a runtime is to begin, is not there; make it first, or name another one.", l.directory())
	}
	if program := l.Command[0]; strings.Contains(program, "/") && !filepath.IsAbs(program) {
		return l.runnable(filepath.Join(l.directory(), program))
	}
	return nil
}

// CheckCommand is the part of Check that needs no directory.
func (l Launch) CheckCommand() error {
	if len(l.Command) == 0 || l.Command[0] == "" {
		return unfit("A runtime has no command; give the program to run and its arguments.")
	}
	for _, argument := range l.Command {
		if strings.ContainsRune(argument, 0) {
			return unfit("The command of a runtime holds a NUL character.")
		}
	}
	if !filepath.IsAbs(l.directory()) || strings.ContainsRune(l.Directory, 0) {
		return unfit("The directory %q, in which a runtime is to begin, is not an absolute path.", l.Directory)
	}
	if program := l.Command[0]; !strings.Contains(program, "/") || filepath.IsAbs(program) {
		return l.runnable(program)
	}
	return nil
}

func (l Launch) runnable(program string) error {
	if _, err := exec.LookPath(program); err != nil {
		return unfit("The program %q cannot be run (%v); install it where the worker's PATH leads, or give its whole path.", l.Command[0], errors.Unwrap(err))
	}
	return nil
}

func (l Launch) directory() string {
	if l.Directory == "" {
		return "/"
	}
	return l.Directory
}

func unfit(format string, args ...any) *teardown.Error {
	return &teardown.Error{Code: teardown.CodeInvalidManifest, Message: fmt.Sprintf(format, args...)}
}

// Exited is the error for a runtime that ended as soon as it was started.
func Exited(format string, args ...any) *teardown.Error {
	return &teardown.Error{Code: teardown.CodeRuntimeExited, Message: fmt.Sprintf(format, args...)}
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// CheckName refuses a name for a tmux session that could mean something to tmux.
func CheckName(name string) error {
	if namePattern.MatchString(name) {
		return nil
	}
	return unfit("%q cannot be the name of a session that unwind starts; use 1 to 64 letters, digits, '-' or '_'.", name)
}

// PlanIdentity is the identity that a runtime is started with.
func PlanIdentity(worktree string) (*teardown.RuntimeIdentity, error) {
	boot, err := ThisBoot()
	if err != nil {
		return nil, err
	}
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	tag := hex.EncodeToString(random[:])
	return &teardown.RuntimeIdentity{Tag: tag, EnvTag: RunVariable + "=" + tag, BootID: boot,
		Worktree: Canonical(worktree), Cgroup: proctable.PlanCgroup("unwind-" + tag)}, nil
}

// enterLimit bounds the wait for a process to enter its control group.
const enterLimit = time.Second

// Entered reports whether a process that was started with Wrapped has come to be
// in its control group.
func Entered(pid int, cgroup string) bool {
	for end := time.Now().Add(enterLimit); ; time.Sleep(5 * time.Millisecond) {
		if proctable.InCgroup(pid, cgroup) {
			return true
		}
		if p, err := proctable.Read(pid); err != nil || p.Dead || time.Now().After(end) {
			return false
		}
	}
}

// ours are the prefixes of variables that a program which unwind starts does
// not get: they lead to unwind's own database and server, with their passwords,
// or to another tmux server.
var ours = []string{"UNWIND_", "TEMPORAL_", "TMUX"}

// CleanEnvironment is the environment of the programs that unwind starts: its
// own, without its settings.
func CleanEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return slices.ContainsFunc(ours, func(prefix string) bool { return strings.HasPrefix(entry, prefix) })
	})
}

// Wrapped is a command that first enters a control group, if it may, and its
// directory, and then becomes the launch's own: the process number stays. It
// is given to programs that would read a directory or a command as more than
// that. A group that it may not enter is left out.
func (l Launch) Wrapped(cgroup string) []string {
	const script = `if [ -n "$1" ]; then echo $$ >"$1/cgroup.procs"; fi 2>/dev/null
cd -- "$2" || exit 126
shift 2
exec "$@"`
	return append([]string{"/bin/sh", "-c", script, "unwind", cgroup, l.directory()}, l.Command...)
}
