package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"unwind/internal/store"
)

type watchOptions struct {
	*program
	ID string
}

func newWatchCommand(p *program) *cobra.Command {
	o := &watchOptions{program: p}
	return &cobra.Command{
		Use:   "watch ID",
		Short: "Show a session's finalization until it ends or waits for a person",
		Long: `Show a session's finalization until it ends or waits for a person.

A terminal shows the newest state; when piped, each change is a line, and with
--json an object as of "unwind status --json". A live session is watched until it
is terminated and finalized. Exit codes are those of "terminate --wait".`,
		Example: `  unwind watch s1
  unwind watch s1 --json | jq -r .state`,
		Args:              takesID(&o.ID),
		ValidArgsFunction: p.completeIDs,
		RunE:              runs(o.run),
	}
}

func (o *watchOptions) run(ctx context.Context) error {
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	seen, err := f.look(ctx, o.ID)
	if err != nil {
		return err
	}
	server := o.dial(ctx)
	defer server.Close()
	waiting := awaiting{program: o.program, facts: f, server: server, id: o.ID, generation: seen.Session.Generation}
	waiting.show = o.show()
	result, err := waiting.wait(ctx)
	if err != nil {
		return err
	}
	return asVerdict(exitOfResult(result))
}

// show answers how each sight is shown.
func (o *watchOptions) show() func(sight) {
	switch {
	case o.json:
		return o.objects()
	case o.outTerminal:
		return o.screen()
	}
	return o.lines()
}

func (o *watchOptions) objects() func(sight) {
	var last []byte
	return func(s sight) {
		// Never of a report that holds what JSON cannot.
		object, _ := json.Marshal(s.report())
		if !bytes.Equal(object, last) {
			o.printJSON(s.report())
		}
		last = object
	}
}

func (o *watchOptions) lines() func(sight) {
	last := ""
	return func(s sight) {
		text := s.changeLine()
		if text != last {
			fmt.Fprintln(o.out, text)
		}
		last = text
	}
}

// changeLine holds what is worth a new line: no times and no counts that run.
func (s sight) changeLine() string {
	parts := []string{s.Session.ID, string(s.state)}
	if f := s.finalization; f != nil {
		parts = append(parts, fmt.Sprintf("round %d", f.Round))
		if s.state == store.StateParked {
			parts = append(parts, f.ParkedReason, sentence(f.FailureMessage))
		}
		if f.FinishedAt != nil {
			parts = append(parts, string(f.Outcome))
		}
	}
	if s.live.Phase != "" && s.state == store.StateTerminated {
		parts = append(parts, strings.ReplaceAll(string(s.live.Phase), "_", " "))
	}
	for _, step := range s.live.Steps {
		text := fmt.Sprintf("%s attempt %d", step.Step, step.Attempt)
		if step.Failure.Code != "" {
			text += " (" + string(step.Failure.Code) + ")"
		}
		parts = append(parts, text)
	}
	for _, wt := range s.leased() {
		parts = append(parts, fmt.Sprintf("%s %s", shown(wt.Worktree.Path), wt.Lease.Disposition))
	}
	return strings.Join(parts, "\t")
}

// screen redraws in place what fits on the terminal.
func (o *watchOptions) screen() func(sight) {
	drawn := 0
	return func(s sight) {
		lines := strings.Split(strings.TrimSuffix(o.sightText(s), "\n"), "\n")
		if room := o.height - 1; room > 0 && len(lines) > room {
			lines = append(lines[:room-1], "…")
		}
		var b strings.Builder
		if drawn > 0 {
			fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", drawn)
		}
		for _, line := range lines {
			b.WriteString(cut(line, o.width) + "\n")
		}
		_, _ = io.WriteString(o.out, b.String())
		drawn = len(lines)
	}
}
