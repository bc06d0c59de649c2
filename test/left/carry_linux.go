package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"unwind/internal/runtime/proctable"
)

// carryOut runs the command to its end. Every process below it whose parent ends
// becomes a child of this one: that finds also what hides from its environment.
func carryOut(command, environ []string) (code int, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1, err
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return 1, err
	}
	// An interrupt from the keyboard is for the command, which ends by it.
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGTERM)
	process, err := os.StartProcess(path, command, &os.ProcAttr{Env: environ, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 1, err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1, err
		case pid == process.Pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case pid == process.Pid:
			return status.ExitStatus(), nil
		}
	}
}

// reap takes note of the children that have ended.
func reap() {
	for {
		if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != nil && !errors.Is(err, unix.EINTR) || pid == 0 {
			return
		}
	}
}

// ticks are what start times are counted in: on every machine a hundredth of a
// second, to programs.
const ticks = 10 * time.Millisecond

func age(p proctable.Process) time.Duration {
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &since); err != nil {
		return 0
	}
	return time.Duration(since.Nano()) - time.Duration(p.Start)*ticks
}

func commandLine(p proctable.Process) string {
	content, _ := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/cmdline")
	if line := strings.TrimSpace(strings.ReplaceAll(string(content), "\x00", " ")); line != "" {
		return line
	}
	return p.Command
}
