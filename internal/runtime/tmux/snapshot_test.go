//go:build linux

package tmux

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unwind/internal/runtime"
	"unwind/internal/runtime/runtimetest"
)

func TestSnapshotShowsEveryPane(t *testing.T) {
	b := setup(t, `echo first; `+runtimetest.Plain)
	b.tmux(t, "split-window", "-d", "-t", "=agent:", "echo second; echo x >$STAGE/second; exec sleep 900")
	runtimetest.Eventually(t, "second pane", func() bool { return b.Has("second") })
	var content string
	runtimetest.Eventually(t, "both panes in the snapshot", func() bool {
		content = b.snapshot(t)
		return strings.Contains(content, "first") && strings.Contains(content, "second")
	})
	if strings.Contains(content, "keep") || strings.Count(content, "== pane ") != 2 {
		t.Errorf("the snapshot shows\n%s", content)
	}
}

func TestSnapshotIsBoundedAndKeepsTheEnd(t *testing.T) {
	t.Parallel()
	b := &bench{Stage: runtimetest.NewStage(t)}
	b.socket = filepath.Join(b.Dir, "s")
	b.bystander(t)
	b.tmux(t, "set-option", "-g", "history-limit", "200000")
	b.register(t, b.session(t, "agent",
		`i=0; l=0123456789012345678901234567890123456789012345678901234567890123456789; while [ $i -lt 100000 ]; do echo $l; i=$((i+1)); done; echo the end; `+runtimetest.Plain))
	var content string
	runtimetest.Eventually(t, "the end in the snapshot", func() bool {
		content = b.snapshot(t)
		return strings.Contains(content, "the end")
	})
	if len(content) > runtime.MaxSnapshot || len(content) < runtime.MaxSnapshot/2 || !strings.Contains(content, ", its end\n") {
		t.Errorf("%d bytes: %.80s", len(content), content)
	}
}

func (b *bench) snapshot(t *testing.T) string {
	t.Helper()
	path, err := Kind{}.Snapshot(t.Context(), b.rt, filepath.Join(b.Dir, "shots"))
	b.check(t, err)
	content, err := os.ReadFile(path)
	b.check(t, err)
	entries, err := os.ReadDir(filepath.Dir(path))
	b.check(t, err)
	if len(entries) != 1 {
		t.Errorf("%d files in the snapshot's directory", len(entries))
	}
	return string(content)
}
