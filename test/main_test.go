// Package test runs the built programs end to end: real git, tmux, databases
// and Temporal's own server.
package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"unwind/test/devserver"
)

// programs is the directory of the programs under test. The worker is built with
// fault points; see package fault.
var programs string

// temporal serves all tests that do not stop their server.
var temporal *devserver.Server

func TestMain(m *testing.M) {
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	if programs, err = os.MkdirTemp("", "unwind-programs-"); err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(programs) }()
	for name, pkg := range map[string]string{"unwind": "unwind/starter", "unwind-worker": "unwind/worker"} {
		build := exec.Command("go", "build", "-tags", "faultpoints", "-o", filepath.Join(programs, name), pkg)
		if output, err := build.CombinedOutput(); err != nil {
			return 1, fmt.Errorf("building %s: %w\n%s", name, err, output)
		}
	}
	// In memory, the server loses all it has when its database is interrupted, as
	// happens on a machine that is very busy.
	if temporal, err = devserver.Launch(devserver.File(filepath.Join(programs, "temporal.db"))); err != nil {
		return 1, err
	}
	defer temporal.Close()
	return m.Run(), nil
}
