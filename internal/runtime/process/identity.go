package process

import (
	"errors"

	"unwind/internal/runtime"
	"unwind/internal/runtime/proctable"
	"unwind/teardown"
)

// check refuses a record that does not name one process exactly.
func check(rt teardown.Runtime) error {
	ref := refOf(rt)
	switch {
	case ref.PID <= 1:
		return runtime.Unroutable("The record names no process (pid %d); correct it, or confirm that the runtime is gone.", ref.PID)
	case rt.Identity == nil:
		return runtime.Unroutable("The record of process %d has no identity, and a number alone is none; end it by hand and confirm that it is gone.", ref.PID)
	case !ref.Valid():
		return runtime.Unroutable("The record of process %d has no start_time, and a number is used again; end it by hand and confirm that it is gone.", ref.PID)
	}
	if err := runtime.CheckEnvTag(rt.Identity.EnvTag); err != nil {
		return err
	}
	return runtime.CheckBoot(rt.Identity)
}

func refOf(rt teardown.Runtime) proctable.Ref {
	return proctable.Ref{PID: rt.PID, Start: rt.StartTime}
}

// root is the recorded process. A leader of a kernel session leads its process
// group too, for good: one that was recorded in another group never led any.
func root(rt teardown.Runtime) proctable.Root {
	return proctable.Root{Ref: refOf(rt), LeadsSession: rt.Identity != nil && rt.Identity.PGID == rt.PID}
}

// look reports whether the recorded process runs. One that carries another run's
// tag is not touched, whatever its number says.
func look(rt teardown.Runtime) (runtime.State, error) {
	_, running, err := runtime.Running(refOf(rt))
	if err != nil {
		return 0, err
	}
	if !running {
		return runtime.Gone, nil
	}
	if rt.Identity.EnvTag == "" {
		return runtime.Alive, nil
	}
	environment, err := proctable.SettledEnviron(rt.PID, proctable.NotEmpty)
	switch {
	case errors.Is(err, proctable.ErrGone):
		return runtime.Gone, nil
	case err == nil && environment.Contradicts(rt.Identity.EnvTag):
		return 0, runtime.Contradiction("Process %d has the recorded start time but carries another run's tag than %q. Find out whose it is; if the runtime is gone, confirm that.", rt.PID, rt.Identity.EnvTag)
	}
	return runtime.Alive, nil
}

// anothers reports whether the recorded number is that of another run's process:
// then that is no root, whoever confirmed that the runtime is gone.
func anothers(rt teardown.Runtime) bool {
	if check(rt) != nil {
		return false
	}
	_, err := look(rt)
	return teardown.CodeOf(err) == teardown.CodeRuntimeIdentity
}
