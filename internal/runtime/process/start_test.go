//go:build linux

package process

import (
	"os"
	"path/filepath"
	"testing"

	"unwind/internal/runtime"
	"unwind/internal/runtime/runtimetest"
	"unwind/teardown"
)

func TestStarter(t *testing.T) {
	t.Parallel()
	runtimetest.RunStarter(t, Kind{}, func(s *runtimetest.Stage) teardown.Runtime {
		return teardown.Runtime{Kind: teardown.KindProcess, Role: teardown.RoleAgent, Identity: &teardown.RuntimeIdentity{Worktree: s.Worktree}}
	})
}

func TestStartKeepsOutput(t *testing.T) {
	t.Parallel()
	s := runtimetest.NewStage(t)
	output := filepath.Join(s.Dir, "log")
	planned, err := Kind{}.Plan(teardown.Runtime{Kind: teardown.KindProcess})
	if err != nil {
		t.Fatal(err)
	}
	rt, err := Kind{}.Start(t.Context(), planned, runtime.Launch{Command: []string{"sh", "-c", "echo said; exec sleep 900"}, Output: output})
	if err != nil {
		t.Fatal(err)
	}
	runtimetest.Eventually(t, "output", func() bool {
		content, _ := os.ReadFile(output)
		return string(content) == "said\n"
	})
	if _, err := (Kind{}).Destroy(t.Context(), rt, runtime.Options{}); err != nil {
		t.Fatal(err)
	}
	_, err = Kind{}.Start(t.Context(), planned, runtime.Launch{Command: []string{"sleep", "900"}, Output: s.Dir})
	if teardown.CodeOf(err) != teardown.CodeInvalidManifest {
		t.Errorf("%v", err)
	}
}
