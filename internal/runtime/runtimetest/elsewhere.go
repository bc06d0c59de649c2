//go:build linux

package runtimetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"unwind/internal/runtime"
	"unwind/teardown"
)

// destroyVariable holds the file of a runtime that the test binary, started
// again, is to destroy instead of running tests.
const destroyVariable = "UNWIND_TEST_DESTROY"

// Answer is what another process came to that called Destroy.
type Answer struct {
	Outcome runtime.Outcome
	Error   *teardown.Error
}

// Elsewhere calls Destroy in a process of its own, with further entries in its
// environment.
func Elsewhere(t *testing.T, rt teardown.Runtime, environ ...string) Answer {
	t.Helper()
	return elsewhere(t, rt, nil, environ)
}

// As calls Destroy in a process of another user; it needs root.
func As(t *testing.T, uid uint32, rt teardown.Runtime) Answer {
	t.Helper()
	return elsewhere(t, rt, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}, nil)
}

func elsewhere(t *testing.T, rt teardown.Runtime, attributes *syscall.SysProcAttr, environ []string) Answer {
	t.Helper()
	// Through /proc, as another user may not walk to the test binary's place.
	cmd := exec.Command("/proc/self/exe")
	cmd.Dir = "/"
	cmd.Env = append(append(os.Environ(), DestroyEntry(t, rt)), environ...)
	cmd.SysProcAttr = attributes
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var answer Answer
	if err == nil {
		err = json.Unmarshal(out, &answer)
	}
	if err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr.String())
	}
	return answer
}

// DestroyEntry is the entry of the environment that makes the test binary
// destroy rt and print an Answer.
func DestroyEntry(t *testing.T, rt teardown.Runtime) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "u")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	content, err := json.Marshal(rt)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "runtime.json")
	if err := errors.Join(os.WriteFile(path, content, 0o644), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return destroyVariable + "=" + path
}

// destroyInstead carries out DestroyEntry.
func destroyInstead(kind runtime.Kind, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var rt teardown.Runtime
	if err := json.Unmarshal(content, &rt); err != nil {
		return err
	}
	outcome, err := kind.Destroy(context.Background(), rt, runtime.Options{})
	answer := Answer{Outcome: outcome}
	if errors.As(err, &answer.Error) {
		answer.Error.Cause = nil
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

func (a Answer) want(t *testing.T, want teardown.RuntimeOutcome) {
	t.Helper()
	if a.Error != nil {
		t.Fatalf("Destroy: %v %v", a.Error, a.Error.Details)
	}
	wantOutcome(t, a.Outcome, want)
}

// ownCgroup is the control group of the test itself.
func ownCgroup(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(content)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path
		}
	}
	t.Skip("no version 2 control groups")
	return ""
}

// Main runs the tests of a kind's package and fails if a process that they
// started is left.
func Main(m *testing.M, kind runtime.Kind) int {
	if path := os.Getenv(destroyVariable); path != "" {
		if err := destroyInstead(kind, path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	mark := runVariable + "=" + random()
	os.Setenv(runVariable, strings.TrimPrefix(mark, runVariable+"="))
	code := m.Run()
	left, err := Carrying(mark)
	// What a test was about to end may need a moment.
	for end := time.Now().Add(patience); err == nil && len(left) > 0 && time.Now().Before(end); left, err = Carrying(mark) {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil || len(left) > 0 {
		fmt.Fprintf(os.Stderr, "processes are left: %v %v\n", left, err)
		return 1
	}
	return code
}
