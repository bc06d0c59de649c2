//go:build !linux

package worktree

import (
	"context"
	"errors"
	"os"

	"unwind/internal/lsof"
)

// scanProcesses asks lsof.
func scanProcesses(on ground) (occupancy, error) {
	files, err := lsof.Files(context.Background())
	if errors.Is(err, lsof.ErrMissing) {
		return occupancy{unknown: true}, nil
	}
	if err != nil {
		return occupancy{}, err
	}
	var seen occupancy
	counted := map[int]bool{os.Getpid(): true}
	for _, file := range files {
		at, inside := occupiedPath(file.Name, on.dir)
		asked := on.callers && file.Descriptor == "cwd" && file.PID == os.Getppid()
		if !inside || asked || counted[file.PID] {
			continue
		}
		counted[file.PID] = true
		seen.occupants = append(seen.occupants, occupant{pid: file.PID, comm: file.Command, what: file.Descriptor + " " + printable(at)})
	}
	return seen, nil
}
