package proctable

import (
	"errors"
	"os"
)

// Occupants returns the processes of a scan, the calling one aside, whose
// working directory is dir or below it. Those that may not be looked into are
// left out.
func Occupants(table Table, dir string) ([]Process, error) {
	dir = canonical(dir)
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

// workingDirectory is WorkingDirectory for a process of a scan: not older than that.
func (p Process) workingDirectory() (name, link string, err error) {
	if p.seen == nil {
		return WorkingDirectory(p.PID)
	}
	s := &p.seen.stands
	s.once.Do(func() { s.name, s.link, s.err = WorkingDirectory(p.PID) })
	return s.name, s.link, s.err
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
