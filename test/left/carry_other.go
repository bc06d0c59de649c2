//go:build !linux

package main

import (
	"errors"
	"os"
	"os/exec"
	"time"

	"unwind/internal/runtime/proctable"
)

// carryOut runs the command to its end.
func carryOut(command, environ []string) (code int, err error) {
	c := exec.Command(command[0], command[1:]...)
	c.Env, c.Stdin, c.Stdout, c.Stderr = environ, os.Stdin, os.Stdout, os.Stderr
	err = c.Run()
	if exited := (*exec.ExitError)(nil); errors.As(err, &exited) {
		return max(1, exited.ExitCode()), nil
	}
	return 0, err
}

func reap() {}

// age of a process, whose start is in microseconds since the epoch.
func age(p proctable.Process) time.Duration { return time.Since(time.UnixMicro(p.Start)) }

func commandLine(p proctable.Process) string { return p.Command }
