package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"unwind/teardown"
)

// agentEvent is what coding agents give their hooks on standard input, as far as
// they agree: Claude Code and Gemini CLI name all four, Copilot CLI no event, and
// Cursor has roots in the place of a directory.
type agentEvent struct {
	Name   string   // hook_event_name
	Reason string   // why the session ended
	Cwd    string   // where the agent works
	Roots  []string // workspace_roots
}

const (
	// maxEvent bounds what is read of an event, in bytes.
	maxEvent = 1 << 20
	// eventPatience bounds the wait for it: a hook may be given a standard input
	// that nobody ever closes.
	eventPatience = 3 * time.Second
)

// readEvent reads the event, if there is one, and refuses what is not the end of
// a session.
func (o *hookExitOptions) readEvent() (agentEvent, error) {
	if o.inTerminal {
		return agentEvent{}, nil
	}
	content, err := readWithin(o.in, maxEvent, eventPatience)
	if err != nil {
		return agentEvent{}, err
	}
	event, err := parseEvent(content)
	if err != nil {
		return event, err
	}
	return event, event.checkEnd()
}

// readWithin reads to the end, at most limit bytes and so long. Silence is read
// as nothing at all.
func readWithin(from io.Reader, limit int64, patience time.Duration) ([]byte, error) {
	type reading struct {
		content []byte
		err     error
	}
	done := make(chan reading, 1)
	go func() {
		content, err := io.ReadAll(io.LimitReader(from, limit+1))
		done <- reading{content, err}
	}()
	select {
	case read := <-done:
		if int64(len(read.content)) > limit {
			return nil, notAnEvent("it is longer than %s", bytesText(limit))
		}
		return read.content, read.err
	case <-time.After(patience):
		return nil, nil
	}
}

func notAnEvent(format string, args ...any) error {
	return &teardown.Error{Code: codeUsage, Message: "standard input is no agent's event: " + fmt.Sprintf(format, args...)}
}

// parseEvent takes what it knows and leaves the rest: agents add fields.
func parseEvent(content []byte) (agentEvent, error) {
	var event agentEvent
	if len(bytes.TrimSpace(content)) == 0 {
		return event, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(content, &fields); err != nil {
		return event, notAnEvent("it is not a JSON object")
	}
	for field, to := range map[string]any{"hook_event_name": &event.Name, "reason": &event.Reason, "cwd": &event.Cwd, "workspace_roots": &event.Roots} {
		if raw, given := fields[field]; given && json.Unmarshal(raw, to) != nil {
			return event, notAnEvent("its %q has another type than expected", field)
		}
	}
	return event, nil
}

// Reasons for which an agent ends a conversation and begins the next one.
var goesOn = []string{"clear", "resume"}

func (e agentEvent) checkEnd() error {
	letters := strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(e.Name))
	if e.Name != "" && letters != "sessionend" {
		return notAnEvent("%q is not the end of a session; name this command in the hook SessionEnd", e.Name)
	}
	if slices.Contains(goesOn, e.Reason) {
		return notAnEvent("with reason %q the agent goes on", e.Reason)
	}
	return nil
}

// directories are where the agent worked, or our own.
func (e agentEvent) directories(own string) []string {
	switch {
	case e.Cwd != "":
		return []string{e.Cwd}
	case len(e.Roots) > 0:
		return e.Roots
	}
	return []string{own}
}
