package worktree

import (
	"fmt"
	"strings"

	"unwind/teardown"
)

// occupant is a process that works in a directory.
type occupant struct {
	pid  int
	comm string
	// what it has there: cwd, root, or a path that it has open.
	what string
}

func (o occupant) String() string {
	return fmt.Sprintf("pid %d (%s): %s", o.pid, printable(o.comm), o.what)
}

// occupancy is what a scan of the process table found.
type occupancy struct {
	occupants []occupant
	// hidden counts processes of other users that could not be looked at. They
	// are no evidence either way.
	hidden int
	// unknown: there is no way to look on this system.
	unknown bool
}

// ground is what a scan of the process table looks for.
type ground struct {
	dir string
	// tree, if known, tells a directory that a process in another mount namespace
	// (a container) knows by another name.
	tree *tree
	// callers: the working directories of the processes that called this one, or
	// that read its output, do not count, for they asked for it.
	callers bool
}

// users are the processes that keep a worktree.
type users struct {
	findings []Finding
	notes    []string
}

// inUse is step 5 of the policy.
func inUse(on ground) (users, error) {
	seen, err := scanProcesses(on)
	if err != nil {
		return users{}, err
	}
	var by users
	if seen.hidden > 0 {
		by.notes = append(by.notes, fmt.Sprintf("%d process(es) of other users could not be looked at", seen.hidden))
	}
	if seen.unknown {
		by.findings = []Finding{finding(teardown.CodeInUse, "whether a process works in the worktree can be told with lsof only, which is not installed; install it, then try again")}
	}
	if len(seen.occupants) == 0 {
		return by, nil
	}
	var names []string
	for _, occupant := range seen.occupants {
		names = append(names, occupant.String())
	}
	by.findings = []Finding{finding(teardown.CodeInUse, "a process works in the worktree; end it or let it finish", names...)}
	return by, nil
}

// occupiedPath answers the path below dir that a link of /proc or a line of
// lsof names, relative to dir.
func occupiedPath(target, dir string) (string, bool) {
	if !within(target, dir) {
		return "", false
	}
	return display(strings.TrimPrefix(strings.TrimPrefix(target, dir), "/")), true
}
