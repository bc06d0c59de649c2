package runtime

import (
	"context"
	"path/filepath"
	"time"

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

// settleLimit bounds the wait for a process that is about to begin its program.
const settleLimit = 500 * time.Millisecond

// SettledEnviron reads the environment of a process that may have been started
// this moment: it waits a little until settled says that the program has begun,
// and returns what there is then.
func SettledEnviron(ctx context.Context, of proctable.Ref, settled func(proctable.Environment) bool) (proctable.Environment, error) {
	for end := time.Now().Add(settleLimit); ; time.Sleep(5 * time.Millisecond) {
		environment, err := proctable.Environ(of.PID)
		if err != nil || settled(environment) || ctx.Err() != nil || time.Now().After(end) {
			return environment, err
		}
	}
}

// Canonical is the path of a worktree as the kernel reports it, if it is there.
func Canonical(worktree string) string {
	if canonical, err := filepath.EvalSymlinks(worktree); err == nil && filepath.IsAbs(worktree) {
		return canonical
	}
	return worktree
}
