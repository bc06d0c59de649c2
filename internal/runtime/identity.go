package runtime

import (
	"errors"
	"regexp"

	"unwind/internal/runtime/proctable"
	"unwind/teardown"
)

// RunVariable is the environment variable by which processes that unwind starts
// carry their run's tag.
const RunVariable = "UNWIND_RUN_ID"

var envTagPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=[^\x00]+$`)

// CheckEnvTag reports whether tag, if there is one, is a NAME=VALUE.
func CheckEnvTag(tag string) error {
	if tag == "" || envTagPattern.MatchString(tag) {
		return nil
	}
	return Unroutable("The identity's env_tag %q is not a NAME=VALUE; correct the record.", tag)
}

// ThisBoot returns the id of the running boot.
func ThisBoot() (string, error) {
	boot, err := proctable.BootID()
	if err != nil || boot == "" {
		return "", Unreachable(err, "The machine's boot id could not be read.")
	}
	return boot, nil
}

// EarlierBoot reports whether an identity was recorded before this machine
// started: then nothing of it can be alive, and its numbers mean nothing.
func EarlierBoot(identity *teardown.RuntimeIdentity) (bool, error) {
	if !hasBoot(identity) {
		return false, nil
	}
	boot, err := ThisBoot()
	return err == nil && boot != identity.BootID, err
}

// CheckBoot refuses an identity without a boot id: start times are counted from
// the boot, and a service of each boot gets much the same ones.
func CheckBoot(identity *teardown.RuntimeIdentity) error {
	if hasBoot(identity) {
		return nil
	}
	return Unroutable("The record has no boot_id, so its process numbers prove nothing; end the runtime by hand and confirm that it is gone.")
}

func hasBoot(identity *teardown.RuntimeIdentity) bool {
	return identity != nil && identity.BootID != "" && identity.BootID != "unknown"
}

// Evidence is the claim on processes that a record supports as far as it goes:
// roots, the environment tag and the control group, each only if it is whole.
func Evidence(identity *teardown.RuntimeIdentity, roots []proctable.Root) *proctable.Claim {
	claim := &proctable.Claim{}
	if identity == nil {
		return claim
	}
	if CheckEnvTag(identity.EnvTag) == nil {
		claim.Tag = identity.EnvTag
	}
	claim.Cgroup = identity.Cgroup
	if !hasBoot(identity) {
		return claim
	}
	for _, root := range roots {
		if root.Valid() {
			claim.Roots = append(claim.Roots, root)
		}
	}
	for _, d := range identity.Descendants {
		root := proctable.Root{Ref: proctable.Ref{PID: d.PID, Start: d.StartTime}, LeadsSession: d.LeadsSession}
		if root.Valid() {
			claim.Proved = append(claim.Proved, root)
		}
	}
	return claim
}

// Running reports whether exactly the process of ref runs. What may not be
// looked at is an error, never an answer.
func Running(ref proctable.Ref) (proctable.Process, bool, error) {
	p, err := proctable.Read(ref.PID)
	switch {
	case errors.Is(err, proctable.ErrGone):
		return proctable.Process{}, false, nil
	case err != nil:
		return proctable.Process{}, false, Unreachable(err, "Process %d could not be looked at.", ref.PID)
	}
	return p, p.Ref == ref && !p.Dead, nil
}
