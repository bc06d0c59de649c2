// Package test runs the built programs end to end: real git, tmux, databases
// and Temporal's own server.
package test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"unwind/test/devserver"
)

// programs is the directory of the programs under test. The worker is built with
// fault points; see package fault.
var programs string

// temporal serves all tests that do not stop their server.
var temporal *devserver.Server

func TestMain(m *testing.M) {
	if os.Getenv(isRacer) != "" {
		if err := runRacer(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// Most of their time the stories wait: for a heartbeat that fails to come, or
	// for the next pass. More of them at once than there are processors halve it.
	_ = flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))) // the command line has the last word
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
	if err := build(programs); err != nil {
		return 1, err
	}
	// In memory, the server loses all it has when its database is interrupted, as
	// happens on a machine that is very busy.
	if temporal, err = devserver.Launch(devserver.File(filepath.Join(programs, "temporal.db"))); err != nil {
		return 1, err
	}
	defer temporal.Close()
	return m.Run(), nil
}

// build builds the programs into a directory.
func build(directory string, flags ...string) error {
	for name, pkg := range map[string]string{"unwind": "unwind/starter", "unwind-worker": "unwind/worker"} {
		args := append([]string{"build", "-tags", "faultpoints", "-o", filepath.Join(directory, name)}, flags...)
		if output, err := exec.Command("go", append(args, pkg)...).CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", name, err, output)
		}
	}
	return nil
}
