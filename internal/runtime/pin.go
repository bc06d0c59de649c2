package runtime

import (
	"path/filepath"

	"unwind/internal/runtime/proctable"
	"unwind/teardown"
)

// PinBoot fills in or checks the boot id.
func PinBoot(identity *teardown.RuntimeIdentity) error {
	boot, err := ThisBoot()
	if err != nil {
		return err
	}
	if hasBoot(identity) && identity.BootID != boot {
		return Unroutable("The record is of an earlier boot (%s) of this machine; start the runtime anew before it is registered, or mark it gone.", identity.BootID)
	}
	identity.BootID = boot
	return nil
}

// PinEnvTag fills in the environment tag from a process of the runtime, or
// checks it: another value under the same name is a contradiction, no value is
// none.
func PinEnvTag(identity *teardown.RuntimeIdentity, environment proctable.Environment, of proctable.Ref) error {
	if identity.EnvTag == "" {
		if value, ok := environment.Lookup(RunVariable); ok && value != "" {
			identity.EnvTag = RunVariable + "=" + value
		}
		return nil
	}
	if environment.Contradicts(identity.EnvTag) {
		return Contradiction("Process %d carries another value than the record's env_tag %q.", of.PID, identity.EnvTag)
	}
	return nil
}

// CheckGiven refuses a control group that the runtime's first process is not in,
// and a tag or a control group that an older process has, too: by these others
// would be ended with the runtime. Each may be empty; except are no such others.
func CheckGiven(tag, cgroup string, first proctable.Ref, except ...proctable.Ref) error {
	if tag == "" && cgroup == "" {
		return nil
	}
	if cgroup != "" && !proctable.InCgroup(first.PID, cgroup) {
		return Contradiction("Process %d is not in the control group %s; leave cgroup out, or give the one that was made for it.", first.PID, cgroup)
	}
	table, err := proctable.Scan()
	if err != nil {
		return TableError(err)
	}
	others, err := proctable.Older(table, first, tag, cgroup, except...)
	if err != nil {
		return TableError(err)
	}
	if len(others) == 0 {
		return nil
	}
	refusal := Contradiction("The given env_tag or cgroup is also that of processes that are older than the runtime (process %d), so it proves nothing; leave it out, or start the runtime with one of its own.", first.PID)
	refusal.Details = Listed(names(others))
	return refusal
}

// Canonical is the path of a worktree as the kernel reports it, if it is there.
func Canonical(worktree string) string {
	if canonical, err := filepath.EvalSymlinks(worktree); err == nil && filepath.IsAbs(worktree) {
		return canonical
	}
	return worktree
}
