package proctable

import (
	"errors"
	"slices"
)

// Older returns the processes of a scan that are older than first, and carry tag
// or are in the control group cgroup, each of which may be empty: neither is
// first's alone then. Those of except are left out.
func Older(table Table, first Ref, tag, cgroup string, except ...Ref) ([]Process, error) {
	group, err := openCgroup(cgroup)
	if err != nil {
		return nil, err
	}
	grouped, err := group.members()
	if err != nil {
		return nil, err
	}
	var older []Process
	for pid, p := range table {
		if p.Dead || p.Start >= first.Start || slices.Contains(except, p.Ref) {
			continue
		}
		has := grouped[pid]
		if !has && tag != "" {
			environment, err := p.Environ()
			if err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, ErrDenied) {
				return nil, err
			}
			has = err == nil && environment.Has(tag)
		}
		if has {
			older = append(older, p)
		}
	}
	sortByPID(older)
	return older, nil
}
