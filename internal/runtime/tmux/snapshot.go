package tmux

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"unwind/internal/runtime"
)

// snapshotLimit bounds the time of a snapshot of all panes.
const snapshotLimit = 3 * time.Second

// headingLimit bounds the line above each pane, in bytes.
const headingLimit = 256

// snapshot writes the scrollback of every pane that can be had in time. The
// panes share runtime.MaxSnapshot.
func (t *target) snapshot(ctx context.Context, dir string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotLimit)
	defer cancel()
	panes, err := t.panesToShow(ctx)
	if err != nil {
		return "", err
	}
	var content bytes.Buffer
	share := runtime.MaxSnapshot/max(1, len(panes)) - headingLimit
	for _, p := range panes {
		heading := fmt.Sprintf("== pane %s\n", p.id)
		r, truncated := t.server.run(ctx, max(0, share), "capture-pane", "-p", "-J", "-S", "-", "-t", p.id)
		switch {
		case r.answer != answered:
			heading = fmt.Sprintf("== pane %s: %.100s\n", p.id, r.text)
		case truncated:
			heading = fmt.Sprintf("== pane %s, its end\n", p.id)
		}
		content.WriteString(heading)
		content.Write(r.stdout)
	}
	if content.Len() == 0 {
		return "", nil
	}
	return runtime.WriteSnapshot(dir, "tmux-"+t.tag+".txt", content.Bytes(), t.identity)
}
