package proctable

import (
	"errors"
	"os"
)

// Leaders returns the living processes that lead a kernel session and carry tag,
// a whole NAME=VALUE, in their environment, the oldest first: what was started
// with it. The caller and its ancestors are left out, what is below the caller
// is not.
func Leaders(table Table, tag string) ([]Process, error) {
	above := table.ancestors(os.Getpid())
	var leaders []Process
	for pid, p := range table {
		if p.Dead || pid <= 1 || p.Session != pid || above[pid] {
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
			leaders = append(leaders, p)
		}
	}
	sortByPID(leaders)
	return leaders, nil
}
