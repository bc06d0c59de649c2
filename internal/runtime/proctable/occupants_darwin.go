package proctable

import (
	"context"
	"errors"
	"os"

	"unwind/internal/lsof"
)

// Occupants returns the processes, the calling one aside, whose working directory
// is dir or below it, as lsof tells. ErrUnsupported without lsof.
func Occupants(table Table, dir string) ([]Process, error) {
	dir = canonical(dir)
	files, err := lsof.Files(context.Background(), "cwd")
	if err != nil {
		if errors.Is(err, lsof.ErrMissing) {
			err = errors.Join(ErrUnsupported, err)
		}
		return nil, err
	}
	var occupants []Process
	for _, file := range files {
		if file.PID == os.Getpid() || !within(file.Name, dir) {
			continue
		}
		p, scanned := table[file.PID]
		if !scanned {
			p = Process{Ref: Ref{PID: file.PID}, Command: file.Command}
		}
		if _, err := os.Stat(file.Name); err == nil && !p.Dead {
			occupants = append(occupants, p)
		}
	}
	sortByPID(occupants)
	return occupants, nil
}
