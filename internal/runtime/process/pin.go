package process

import (
	"context"
	"errors"

	"unwind/internal/runtime"
	"unwind/internal/runtime/proctable"
	"unwind/teardown"
)

// Pin implements runtime.Kind.
func (Kind) Pin(_ context.Context, rt teardown.Runtime) (teardown.Runtime, error) {
	pinned, err := pin(rt)
	if given := rt.Identity; err == nil && !rt.Gone && given != nil {
		err = runtime.CheckGiven(given.EnvTag, given.Cgroup, refOf(pinned))
	}
	return pinned, err
}

// pin believes the control group and the tag that are given.
func pin(rt teardown.Runtime) (teardown.Runtime, error) {
	if rt.Gone {
		if _, err := there(rt); err == nil && rt.PID > 1 {
			return rt, runtime.Contradiction("Process %d is marked gone but lives; register it without gone, or give the start_time of the one that is gone.", rt.PID)
		}
		return rt, nil
	}
	if rt.PID <= 1 {
		return rt, runtime.Unroutable("The record names no process (pid %d); give the number of the one that was started.", rt.PID)
	}
	identity := teardown.RuntimeIdentity{}
	if rt.Identity != nil {
		identity = *rt.Identity
	}
	rt.Identity = &identity
	if err := runtime.CheckEnvTag(identity.EnvTag); err != nil {
		return rt, err
	}
	if err := runtime.PinBoot(&identity); err != nil {
		return rt, err
	}
	process, err := there(rt)
	if err != nil {
		return rt, err
	}
	rt.StartTime = process.Start
	if identity.PGID != 0 && identity.PGID != process.Group {
		return rt, runtime.Contradiction("Process %d is in process group %d, not %d as the record says.", rt.PID, process.Group, identity.PGID)
	}
	identity.PGID = process.Group
	if err := pinEnvTag(&identity, process); err != nil {
		return rt, err
	}
	identity.Worktree = runtime.Canonical(identity.Worktree)
	return rt, check(rt)
}

// there reads the process that is to be registered.
func there(rt teardown.Runtime) (proctable.Process, error) {
	process, err := proctable.Read(rt.PID)
	switch {
	case errors.Is(err, proctable.ErrGone) || err == nil && process.Dead:
		return process, runtime.Unroutable("There is no process %d; start it before it is registered, or mark it gone.", rt.PID)
	case err != nil:
		return process, runtime.Unreachable(err, "Process %d could not be looked at.", rt.PID)
	case rt.StartTime != 0 && rt.StartTime != process.Start:
		return process, runtime.Contradiction("Process %d started at %d, not at %d as the record says: the number was used again.", rt.PID, process.Start, rt.StartTime)
	}
	return process, nil
}

// pinEnvTag does not take over a tag that the process inherited from a parent
// that has it too: others may have it then.
func pinEnvTag(identity *teardown.RuntimeIdentity, process proctable.Process) error {
	environment, err := proctable.SettledEnviron(process.PID, proctable.NotEmpty)
	if err != nil {
		return nil
	}
	given := identity.EnvTag
	if err := runtime.PinEnvTag(identity, environment, process.Ref); err != nil || given != "" || identity.EnvTag == "" {
		return err
	}
	if above, err := proctable.Environ(process.Parent); err == nil && above.Has(identity.EnvTag) {
		identity.EnvTag = ""
	}
	return nil
}
