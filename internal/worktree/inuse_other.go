//go:build !linux

package worktree

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const lsofLimit = time.Minute

// scanProcesses asks lsof. Without it nobody can tell, and the caller says so
// in its report.
func scanProcesses(on ground) (occupancy, error) {
	program, err := exec.LookPath("lsof")
	if err != nil {
		return occupancy{unknown: true}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lsofLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-w", "-n", "-P", "-F", "pcfn0")
	cmd.Dir = "/"
	out, err := cmd.Output()
	// lsof exits with 1 when there was anything it could not list.
	if err != nil && (ctx.Err() != nil || len(bytes.TrimSpace(out)) == 0) {
		return occupancy{}, errors.Join(errors.New("lsof failed"), err)
	}
	return parseLsof(string(out), on.dir, on.callers), nil
}

// parseLsof reads `lsof -F pcfn0`: fields that begin with a letter and end in
// NUL; p begins a process, f a file.
func parseLsof(out, dir string, callers bool) occupancy {
	var seen occupancy
	var current occupant
	var descriptor string
	for field := range strings.SplitSeq(strings.ReplaceAll(out, "\x00\n", "\x00"), "\x00") {
		if field == "" {
			continue
		}
		switch value := field[1:]; field[0] {
		case 'p':
			pid, _ := strconv.Atoi(value)
			current = occupant{pid: pid}
		case 'c':
			current.comm = value
		case 'f':
			descriptor = value
		case 'n':
			at, inside := occupiedPath(value, dir)
			asked := callers && descriptor == "cwd" && current.pid == os.Getppid()
			if !inside || asked || current.pid == os.Getpid() || current.what != "" {
				continue
			}
			current.what = descriptor + " " + printable(at)
			seen.occupants = append(seen.occupants, current)
		}
	}
	return seen
}
