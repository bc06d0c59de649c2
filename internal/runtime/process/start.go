package process

import (
	"context"
	"errors"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"unwind/internal/runtime"
	"unwind/internal/runtime/proctable"
	"unwind/teardown"
)

var _ runtime.Starter = Kind{}

// Plan implements runtime.Starter.
func (Kind) Plan(rt teardown.Runtime) (teardown.Runtime, error) {
	identity, err := runtime.PlanIdentity(worktreeOf(rt))
	if err != nil {
		return rt, err
	}
	identity.Tag = ""
	rt.PID, rt.StartTime, rt.Identity = 0, 0, identity
	return rt, nil
}

func worktreeOf(rt teardown.Runtime) string {
	if rt.Identity == nil {
		return ""
	}
	return rt.Identity.Worktree
}

// Start implements runtime.Starter: the process leads a kernel session of its
// own, so that it outlives the worker and what it leaves behind is found.
func (Kind) Start(ctx context.Context, rt teardown.Runtime, launch runtime.Launch) (teardown.Runtime, error) {
	if err := launch.Check(); err != nil {
		return rt, err
	}
	output, err := openOutput(launch.Output)
	if err != nil {
		return rt, err
	}
	defer func() { _ = output.Close() }()
	identity := *rt.Identity
	if identity.Cgroup != "" && proctable.MakeCgroup(identity.Cgroup) != nil {
		identity.Cgroup = ""
	}
	wrapped := launch.Wrapped(identity.Cgroup)
	// It outlives this call, and the caller.
	command := exec.CommandContext(context.WithoutCancel(ctx), wrapped[0], wrapped[1:]...)
	command.Dir = "/"
	command.Env = append(runtime.CleanEnvironment(), identity.EnvTag)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return rt, runtime.Unreachable(err, "The process could not be started")
	}
	pid := command.Process.Pid
	go func() { _ = command.Wait() }() // so that it does not stay a zombie
	return pinStarted(rt, identity, pid, launch.Command[0])
}

func pinStarted(rt teardown.Runtime, identity teardown.RuntimeIdentity, pid int, program string) (teardown.Runtime, error) {
	started := rt
	started.PID, started.StartTime, started.Identity = pid, 0, &identity
	pinned, err := pin(started)
	if teardown.CodeOf(err) == teardown.CodeRuntimeUnroutable {
		return rt, runtime.Exited("The process %q ended as soon as it was started; run it by hand to see why.", program)
	}
	if err != nil {
		return rt, err
	}
	if group := pinned.Identity.Cgroup; group != "" && !runtime.Entered(pinned.PID, group) {
		pinned.Identity.Cgroup = ""
		proctable.RemoveCgroup(group)
		if _, running, err := runtime.Running(refOf(pinned)); err == nil && !running {
			return rt, runtime.Exited("The process %q ended as soon as it was started; run it by hand to see why.", program)
		}
	}
	return pinned, nil
}

// Find implements runtime.Starter.
func (Kind) Find(_ context.Context, rt teardown.Runtime) (teardown.Runtime, bool, error) {
	if earlier, err := runtime.EarlierBoot(rt.Identity); err != nil || earlier {
		return rt, false, err
	}
	table, err := proctable.Scan()
	if err != nil {
		return rt, false, runtime.TableError(err)
	}
	leaders, err := proctable.Leaders(table, rt.Identity.EnvTag)
	if err != nil || len(leaders) == 0 {
		return rt, false, runtime.TableError(err)
	}
	pinned, err := pinStarted(rt, *rt.Identity, leaders[0].PID, leaders[0].Command)
	if teardown.CodeOf(err) == teardown.CodeRuntimeExited {
		return rt, false, nil
	}
	return pinned, err == nil, err
}

func openOutput(path string) (*os.File, error) {
	if path == "" {
		return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err == nil {
		return file, nil
	}
	var reason *os.PathError
	if errors.As(err, &reason) {
		err = reason.Err
	}
	return nil, &teardown.Error{Code: teardown.CodeInvalidManifest, Cause: err,
		Message: "The output file " + path + " cannot be written; name another one, or make its directory"}
}
