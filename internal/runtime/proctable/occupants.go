package proctable

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Occupants returns the processes of a scan, the calling one aside, whose
// working directory is dir or below it. Those that may not be looked into are
// left out. ErrUnsupported where the system does not tell.
func Occupants(table Table, dir string) ([]Process, error) {
	if canonical, err := filepath.EvalSymlinks(dir); err == nil {
		dir = canonical
	}
	var occupants []Process
	for pid, p := range table {
		if p.Dead || pid == os.Getpid() {
			continue
		}
		name, link, err := p.workingDirectory()
		if errors.Is(err, ErrGone) || errors.Is(err, ErrDenied) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if within(name, dir) && sameDirectory(name, link) {
			occupants = append(occupants, p)
		}
	}
	sortByPID(occupants)
	return occupants, nil
}

func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// sameDirectory tells a directory of ours from one that bears the same name in
// a container, and from one that was deleted under its occupant.
func sameDirectory(name, link string) bool {
	here, err := os.Stat(name)
	if err != nil {
		return false
	}
	there, err := os.Stat(link)
	return err != nil || os.SameFile(here, there)
}

func sortByPID(processes []Process) {
	slices.SortFunc(processes, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
}
