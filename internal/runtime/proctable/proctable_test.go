//go:build linux

package proctable

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadKnowsItself(t *testing.T) {
	t.Parallel()
	p, err := Read(os.Getpid())
	if err != nil || p.Parent != os.Getppid() || p.Group != unix.Getpgrp() || p.Dead || p.Stopped || !p.Valid() {
		t.Errorf("%+v %v", p, err)
	}
	session, err := unix.Getsid(0)
	if err != nil || p.Session != session {
		t.Errorf("session %d, want %d (%v)", p.Session, session, err)
	}
	if alive, err := Alive(p.Ref); !alive || err != nil {
		t.Errorf("%v %v", alive, err)
	}
	if alive, err := Alive(Ref{p.PID, p.Start - 1}); alive || err != nil {
		t.Errorf("with another start: %v %v", alive, err)
	}
}

func TestReadOfNoProcess(t *testing.T) {
	t.Parallel()
	if _, err := Read(1 << 30); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
	for _, pid := range []int{0, -1} {
		if _, err := Read(pid); err == nil || errors.Is(err, ErrGone) {
			t.Errorf("process %d: %v", pid, err)
		}
	}
}

func TestNeverSignalled(t *testing.T) {
	t.Parallel()
	self, err := Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []Ref{{0, 1}, {1, 1}, {-1, 1}, {-self.PID, self.Start}, {self.PID, 0}, self.Ref} {
		if handle, err := Open(ref); err == nil || errors.Is(err, ErrGone) {
			t.Errorf("%+v: %v %v", ref, handle, err)
		}
	}
}

func TestOpenOfANumberUsedAgain(t *testing.T) {
	t.Parallel()
	parent, err := Read(os.Getppid())
	if err != nil || parent.PID <= 1 {
		t.Skip("no parent to look at")
	}
	if _, err := Open(Ref{parent.PID, parent.Start + 1}); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
}

func TestCommandWithParentheses(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"a b": "7 a b", "x) Z (1": "7 x) Z (1", "new\nline": "7 new?line", "\xff": "7 \uFFFD"} {
		if have := (Process{Ref: Ref{PID: 7}, Command: name}).String(); have != want {
			t.Errorf("%q, want %q", have, want)
		}
	}
}

func TestEnvironmentEntriesAreWhole(t *testing.T) {
	t.Parallel()
	e := Environment("A=1\x00TAG=run-1\x00B=TAG=run-2\x00EMPTY=")
	for entry, want := range map[string]bool{"TAG=run-1": true, "TAG=run": false, "AG=run-1": false, "TAG=run-2": false, "EMPTY=": true, "A": false, "": false} {
		if e.Has(entry) != want {
			t.Errorf("%q: %v", entry, !want)
		}
	}
	for tag, want := range map[string]bool{"TAG=run-1": false, "TAG=run-2": true, "OTHER=x": false, "NONE": false} {
		if e.Contradicts(tag) != want {
			t.Errorf("contradicts %q: %v", tag, !want)
		}
	}
}

func TestClaimByKernelSession(t *testing.T) {
	t.Parallel()
	leader := Root{Ref: Ref{PID: 1 << 28, Start: 100}, LeadsSession: true}
	member := func(pid int, session int, start int64) Process {
		return Process{Ref: Ref{PID: 1<<28 + pid, Start: start}, Parent: 1, Session: session}
	}
	for name, c := range map[string]struct {
		root    Root
		table   []Process
		members int
	}{
		"leader dead":                 {leader, []Process{member(1, leader.PID, 100)}, 1},
		"leader alive":                {leader, []Process{member(0, leader.PID, 100), member(1, leader.PID, 101)}, 2},
		"number of the leader reused": {leader, []Process{member(0, leader.PID, 999), member(1, leader.PID, 1000)}, 0},
		"older than the leader":       {leader, []Process{member(1, leader.PID, 99)}, 0},
		"another session":             {leader, []Process{member(1, leader.PID+5, 101)}, 0},
		"root that led no session":    {Root{Ref: leader.Ref}, []Process{member(1, leader.PID, 101)}, 0},
	} {
		table := Table{}
		for _, p := range c.table {
			table[p.PID] = p
		}
		found, err := (&Claim{Roots: []Root{c.root}}).Find(table)
		if err != nil || len(found.Owned) != c.members {
			t.Errorf("%s: %v %v, want %d", name, found.Owned, err, c.members)
		}
	}
}

// A process that ended between the scan and the look into its environment may
// have handed itself on: such a scan has not found nothing.
func TestClaimOfOneThatEndedSinceTheScan(t *testing.T) {
	t.Parallel()
	const base = 1 << 28 // no process has such a number
	leader := Root{Ref: Ref{PID: base, Start: 100}, LeadsSession: true}
	ended := Process{Ref: Ref{PID: base + 1, Start: 101}, Parent: 1, Session: leader.PID}
	other := Process{Ref: Ref{PID: base + 2, Start: 101}, Parent: 1, Session: base + 2}
	claim := &Claim{Roots: []Root{leader}, Tag: "TAG=run-1"}
	found, err := claim.Find(Table{ended.PID: ended, other.PID: other})
	if err != nil || len(found.Owned) != 1 || found.Owned[0].Ref != ended.Ref {
		t.Errorf("%v %v, want the one of the session", found.Owned, err)
	}
}

func TestClaimByDescent(t *testing.T) {
	t.Parallel()
	const base = 1 << 28
	p := func(pid, parent int, start int64) Process {
		return Process{Ref: Ref{PID: base + pid, Start: start}, Parent: base + parent}
	}
	table := Table{}
	for _, entry := range []Process{p(1, 0, 100), p(2, 1, 101), p(3, 2, 102), p(4, 1, 50), p(5, 9, 103)} {
		table[entry.PID] = entry
	}
	found, err := (&Claim{Roots: []Root{{Ref: Ref{base + 1, 100}}}}).Find(table)
	if err != nil || len(found.Owned) != 3 {
		t.Errorf("%v %v, want the root, its child and its grandchild", found.Owned, err)
	}
	found, err = (&Claim{Roots: []Root{{Ref: Ref{base + 1, 100}}}, Exempt: []Ref{{base + 2, 101}}}).Find(table)
	if err != nil || len(found.Owned) != 1 {
		t.Errorf("%v %v, want the root only", found.Owned, err)
	}
}

// What was proved stays proved when the proof has ended.
func TestClaimRemembers(t *testing.T) {
	t.Parallel()
	const base = 1 << 28
	root := Process{Ref: Ref{PID: base, Start: 100}}
	child := Process{Ref: Ref{PID: base + 1, Start: 101}, Parent: base}
	claim := &Claim{Roots: []Root{{Ref: root.Ref}}}
	if found, err := claim.Find(Table{root.PID: root, child.PID: child}); err != nil || len(found.Owned) != 2 {
		t.Fatalf("%v %v", found.Owned, err)
	}
	child.Parent = 1
	if found, err := claim.Find(Table{child.PID: child}); err != nil || len(found.Owned) != 1 {
		t.Errorf("the orphan was forgotten: %v %v", found.Owned, err)
	}
	child.Start++
	if found, err := claim.Find(Table{child.PID: child}); err != nil || len(found.Owned) != 0 {
		t.Errorf("a number used again is taken for the orphan: %v %v", found.Owned, err)
	}
}

func TestCallerIsNeverClaimed(t *testing.T) {
	t.Parallel()
	table, err := Scan()
	if err != nil {
		t.Fatal(err)
	}
	claim := &Claim{}
	for pid := range table.ancestors(os.Getpid()) {
		claim.Roots = append(claim.Roots, Root{Ref: table[pid].Ref, LeadsSession: true})
	}
	if !claim.InvolvesCaller(table) {
		t.Error("the caller is not seen below its ancestors")
	}
	found, err := claim.Find(table)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range found.Owned {
		if table.ancestors(os.Getpid())[p.PID] {
			t.Errorf("%s is claimed", p)
		}
	}
}

func TestOccupantsAreWithinTheDirectory(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{"/wt": true, "/wt/a": true, "/wt2": false, "/": false, "/a/wt": false} {
		if within(path, "/wt") != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
}

func TestNoCgroup(t *testing.T) {
	t.Parallel()
	if group, err := openCgroup(""); group != nil || err != nil {
		t.Errorf("%v %v", group, err)
	}
	if group, err := openCgroup("/no/such/group-" + strconv.Itoa(os.Getpid())); group != nil || err != nil {
		t.Errorf("one that was removed: %v %v", group, err)
	}
	for _, path := range []string{"/", t.TempDir(), cgroupMount(), filepath.Join(cgroupMount(), "..")} {
		if group, err := openCgroup(path); !errors.Is(err, ErrNoCgroup) {
			t.Errorf("%s: %v %v", path, group, err)
		}
	}
}
