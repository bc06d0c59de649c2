package proctable

import "errors"

// cgroup does not exist on this system.
type cgroup struct{}

// ErrNoCgroup: the path is no control group that could belong to one run.
var ErrNoCgroup = errors.New("this operating system has no control groups")

func openCgroup(path string) (*cgroup, error) {
	if path == "" {
		return nil, nil
	}
	return nil, ErrNoCgroup
}

func (c *cgroup) members() (map[int]bool, error) { return nil, nil }
func (c *cgroup) kill()                          {}
func (c *cgroup) remove()                        {}
