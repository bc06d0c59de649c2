package proctable

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// Root is a process that was recorded as the run's own.
type Root struct {
	Ref
	// LeadsSession: it was started as the leader of a kernel session, as every
	// pane of tmux is. What stays in that session is the run's.
	LeadsSession bool
}

// Claim is what proves that a process belongs to one run: that it
//
//   - was recorded (Roots), or was proved to be the run's before (Proved);
//   - carries Tag, a whole NAME=VALUE, in its environment;
//   - is in the kernel session that a process of the run leads or led;
//   - is in Cgroup;
//   - is the child of such a process.
//
// A process that was not recorded and whose environment gives the tag's name
// another value belongs to another run, whatever else speaks for it. The calling process, its ancestors
// and Exempt are never the run's; nor is a process below the calling one only
// because it inherited the tag from it.
type Claim struct {
	Roots  []Root
	Proved []Root
	Tag    string
	Cgroup string
	Exempt []Ref

	known map[Ref]bool
	// bare processes have no environment at all, and are not about to get one.
	bare map[Ref]bool
}

// Belongings is what a scan found of a run. Untold are processes in a group that
// the run leads, which may not be looked into: that proves nothing either way.
type Belongings struct {
	Owned  []Process
	Untold []Process
	// Adopted are those of Owned that nothing proves but who started them, or leads
	// their kernel session.
	Adopted []Process
	// sole: the control group holds nothing but the run's processes.
	sole *cgroup
}

// Find picks the run's living processes out of a scan. The error means that
// something could not be read that has to be known.
func (c *Claim) Find(table Table) (Belongings, error) {
	if c.known == nil {
		c.known, c.bare = map[Ref]bool{}, map[Ref]bool{}
	}
	s := &search{Claim: c, table: table, self: os.Getpid(),
		owned: map[int]bool{}, adopted: map[int]bool{}, foreign: map[int]bool{}, denied: map[int]bool{}, blank: map[int]bool{}}
	s.protected = table.ancestors(s.self)
	for _, exempt := range c.Exempt {
		if table[exempt.PID].Ref == exempt {
			s.protected[exempt.PID] = true
		}
	}
	group, err := openCgroup(c.Cgroup)
	if err != nil {
		return Belongings{}, err
	}
	if s.grouped, err = group.members(); err != nil {
		return Belongings{}, err
	}
	for pid := range s.grouped {
		if s.protected[pid] {
			return Belongings{}, fmt.Errorf("%w: %s holds process %s", ErrNoCgroup, c.Cgroup, table[pid])
		}
	}
	s.inherited = c.Tag != "" && slices.Contains(os.Environ(), c.Tag)
	for _, p := range table {
		if err := s.judge(p); err != nil {
			return Belongings{}, err
		}
	}
	s.adopt()
	return s.result(group), nil
}

// InvolvesCaller reports whether the calling process runs below one of the
// roots: ending them would end the caller.
func (c *Claim) InvolvesCaller(table Table) bool {
	above := table.ancestors(os.Getpid())
	for _, root := range c.Roots {
		if above[root.PID] && table[root.PID].Ref == root.Ref {
			return true
		}
	}
	return false
}

// search is the work of one Find.
type search struct {
	*Claim
	table     Table
	self      int
	inherited bool // the calling process itself carries the tag
	protected map[int]bool
	grouped   map[int]bool // members of the control group
	owned     map[int]bool
	foreign   map[int]bool // belong to another run by its tag
	adopted   map[int]bool // by who started them
	denied    map[int]bool // environment unreadable
	blank     map[int]bool // environment empty
	// settled is when all that were blank have had their time, once it has begun.
	settled time.Time
}

func (s *search) judge(p Process) error {
	if p.Dead || p.PID <= 1 || s.protected[p.PID] {
		return nil
	}
	if s.recorded(p.Ref) {
		s.owned[p.PID] = true
		return nil
	}
	tagged := false
	if s.Tag != "" {
		environment, err := p.Environ()
		switch {
		case errors.Is(err, ErrGone):
			// It has ended since the scan, which may have missed what it started by
			// then: it counts as found, if anything but its environment proves it.
		case errors.Is(err, ErrDenied), errors.Is(err, ErrUnsupported):
			s.denied[p.PID] = true
		case err != nil:
			return err
		case environment.Contradicts(s.Tag):
			s.foreign[p.PID] = true
			return nil
		case len(environment) == 0:
			s.blank[p.PID] = true
		default:
			tagged = environment.Has(s.Tag)
		}
	}
	ours := s.known[p.Ref] || s.grouped[p.PID] || names(s.Proved, p.Ref)
	if !ours && (tagged || s.led(p, p.Session)) {
		ours = !s.merelyInherits(p)
	}
	if ours {
		s.own(p)
	}
	return nil
}

// own claims a process, unless it turns out to be another run's that was about
// to begin its program when it was looked at.
func (s *search) own(p Process) bool {
	if s.blank[p.PID] && !s.bare[p.Ref] {
		if s.settled.IsZero() {
			s.settled = time.Now().Add(settleLimit)
		}
		environment, err := settledBy(s.settled, p.PID, NotEmpty)
		if err == nil && environment.Contradicts(s.Tag) {
			s.foreign[p.PID] = true
			return false
		}
		s.bare[p.Ref] = err == nil && len(environment) == 0
	}
	s.owned[p.PID] = true
	return true
}

func (s *search) recorded(ref Ref) bool { return names(s.Roots, ref) }

func names(roots []Root, ref Ref) bool {
	return slices.ContainsFunc(roots, func(root Root) bool { return root.Ref == ref })
}

// merelyInherits: what is below the calling process has the tag from it.
func (s *search) merelyInherits(p Process) bool {
	return s.inherited && s.table.Descends(p.PID, s.self)
}

// led reports whether the kernel session or process group of p, by its number,
// is one that a process of the run leads or led. While a member lives the kernel
// does not give the leader's number to anybody else; the start times cover a
// later use of the number.
func (s *search) led(p Process, number int) bool {
	leads := func(leader Ref) bool {
		if number != leader.PID || p.Start < leader.Start {
			return false
		}
		now, there := s.table[leader.PID]
		return !there || now.Ref == leader
	}
	for _, roots := range [][]Root{s.Roots, s.Proved} {
		for _, root := range roots {
			if root.LeadsSession && leads(root.Ref) {
				return true
			}
		}
	}
	for ref := range s.known {
		if leads(ref) {
			return true
		}
	}
	return false
}

// adopt adds what processes of the run have started, to any depth, and what is in
// a kernel session that one of these leads.
func (s *search) adopt() {
	for grown := true; grown; {
		grown = false
		for pid, p := range s.table {
			if s.owned[pid] || p.Dead || pid <= 1 || s.protected[pid] || s.foreign[pid] || !s.follows(p, p.Parent) &&
				(!s.follows(p, p.Session) || s.merelyInherits(p)) {
				continue
			}
			if s.own(p) {
				s.adopted[pid], grown = true, true
			}
		}
	}
}

// follows: the process with this number, the parent or the leader of p, is the
// run's, and not younger.
func (s *search) follows(p Process, number int) bool {
	return s.owned[number] && p.Start >= s.table[number].Start
}

func (s *search) result(group *cgroup) Belongings {
	var found Belongings
	for pid := range s.owned {
		p := s.table[pid]
		s.known[p.Ref] = true
		found.Owned = append(found.Owned, p)
		if s.adopted[pid] {
			found.Adopted = append(found.Adopted, p)
		}
	}
	for pid := range s.denied {
		if p := s.table[pid]; !s.owned[pid] && s.led(p, p.Group) {
			found.Untold = append(found.Untold, p)
		}
	}
	if group != nil {
		found.sole = group
		for pid := range s.grouped {
			if !s.owned[pid] && !s.table[pid].Dead {
				found.sole = nil
			}
		}
	}
	sortByPID(found.Owned)
	sortByPID(found.Adopted)
	sortByPID(found.Untold)
	return found
}
