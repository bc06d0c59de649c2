package proctable

import (
	"errors"
	"os"
)

// Tagged returns the living processes that carry tag, a whole NAME=VALUE, in
// their environment, but for the caller, its ancestors and what is below it.
func Tagged(table Table, tag string) ([]Process, error) {
	self := os.Getpid()
	above := table.ancestors(self)
	var tagged []Process
	for pid, p := range table {
		if p.Dead || pid <= 1 || above[pid] || table.Descends(pid, self) {
			continue
		}
		environment, err := p.Environ()
		if errors.Is(err, ErrGone) || errors.Is(err, ErrDenied) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if environment.Has(tag) {
			tagged = append(tagged, p)
		}
	}
	sortByPID(tagged)
	return tagged, nil
}
