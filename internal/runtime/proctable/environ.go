package proctable

import (
	"bytes"
	"time"
)

// Environment is the block of NAME=VALUE entries that a process was started
// with. What the process changed since does not show.
type Environment []byte

// Has reports whether entry, a whole NAME=VALUE, is in the block.
func (e Environment) Has(entry string) bool {
	for block := []byte(e); len(block) > 0; {
		var one []byte
		one, block, _ = bytes.Cut(block, []byte{0})
		if string(one) == entry {
			return true
		}
	}
	return false
}

// Lookup returns the value of the first entry for name.
func (e Environment) Lookup(name string) (value string, found bool) {
	prefix := []byte(name + "=")
	for block := []byte(e); len(block) > 0; {
		var one []byte
		one, block, _ = bytes.Cut(block, []byte{0})
		if rest, ok := bytes.CutPrefix(one, prefix); ok {
			return string(rest), true
		}
	}
	return "", false
}

// Contradicts reports whether the block gives the name of tag, a NAME=VALUE,
// other values only: then the process belongs to another run.
func (e Environment) Contradicts(tag string) bool {
	name, _, ok := bytes.Cut([]byte(tag), []byte("="))
	if !ok || e.Has(tag) {
		return false
	}
	_, found := e.Lookup(string(name))
	return found
}

// settleLimit bounds the wait for a process that is about to begin a program.
const settleLimit = 500 * time.Millisecond

// SettledEnviron reads the environment of a process that may be about to begin
// a program; at that moment it shows none, or still its parent's. It waits a
// little until settled, and returns what there is then.
func SettledEnviron(pid int, settled func(Environment) bool) (Environment, error) {
	return settledBy(time.Now().Add(settleLimit), pid, settled)
}

func settledBy(end time.Time, pid int, settled func(Environment) bool) (Environment, error) {
	for ; ; time.Sleep(5 * time.Millisecond) {
		environment, err := Environ(pid)
		if err != nil || settled(environment) || time.Now().After(end) {
			return environment, err
		}
	}
}

// NotEmpty is true of every environment but that of a process about to begin a
// program, or of one that was given none.
func NotEmpty(e Environment) bool { return len(e) > 0 }
