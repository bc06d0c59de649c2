package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"unwind/internal/config"
	"unwind/internal/lock"
	"unwind/internal/runtime"
	"unwind/teardown"
)

// runtimeOptions are those of probe and of destroy.
type runtimeOptions struct {
	*program
	File string
}

func newRuntimeCommand(p *program) *cobra.Command {
	command := &cobra.Command{
		Use:   "runtime",
		Short: "Probe and destroy runtimes by hand",
		Long: `Probe and destroy one runtime by hand, without Temporal or a database: exactly the
one that was recorded, by its identity, and the processes that it left behind.`,
	}
	command.AddCommand(newRuntimeProbeCommand(p), newRuntimeDestroyCommand(p))
	group(command)
	return command
}

const runtimeInput = `
The file holds one runtime object of a manifest, or an object with a field
"runtime" that does. A runtime without an identity is never destroyed.
`

func newRuntimeProbeCommand(p *program) *cobra.Command {
	o := &runtimeOptions{program: p}
	command := &cobra.Command{
		Use:   "probe -f FILE",
		Short: "Say whether a runtime is alive or gone",
		Long: `Say whether a runtime is alive or gone. Nothing is changed.
` + runtimeInput + `
Exit codes: 0 it is alive or gone, 65 the record contradicts what is there or
names nothing exactly, 75 it could not be told.`,
		Example: `  unwind runtime probe -f runtime.json
  unwind runtime probe -f - --json < runtime.json`,
		Args: noArgs,
		RunE: runs(o.probe),
	}
	o.flags(command)
	return command
}

func newRuntimeDestroyCommand(p *program) *cobra.Command {
	o := &runtimeOptions{program: p}
	command := &cobra.Command{
		Use:   "destroy -f FILE",
		Short: "End a runtime and what it left behind, and see that it is gone",
		Long: `End a runtime and the processes that are provably its own, and see that they are
gone. Its scrollback is saved first, below the state directory.
` + runtimeInput + `
Exit codes: 0 released or already gone, 65 refused, 75 try again.`,
		Example: `  unwind runtime destroy -f runtime.json`,
		Args:    noArgs,
		RunE:    runs(o.destroy),
	}
	o.flags(command)
	return command
}

func (o *runtimeOptions) flags(command *cobra.Command) {
	command.Flags().StringVarP(&o.File, "file", "f", "", "runtime object to read, - for standard input")
}

// probed is what probe prints with --json.
type probed struct {
	Kind  string `json:"kind"`
	Role  string `json:"role"`
	Name  string `json:"name"`
	State string `json:"state"`
}

func (o *runtimeOptions) probe(ctx context.Context) error {
	rt, kind, err := o.runtime()
	if err != nil {
		return err
	}
	state, err := kind.Probe(ctx, rt)
	if err != nil {
		return err
	}
	if o.json {
		o.printJSON(probed{Kind: rt.Kind, Role: rt.Role, Name: runtimeName(rt), State: state.String()})
		return nil
	}
	o.say("%s %s: %s", rt.Kind, shown(runtimeName(rt)), state)
	return nil
}

// destroyed is what destroy prints with --json.
type destroyed struct {
	teardown.RuntimeResult
	Retryable bool     `json:"retryable"`
	Message   string   `json:"message"`
	Occupants []string `json:"occupants,omitempty"`
	Notes     []string `json:"notes,omitempty"`
}

func (o *runtimeOptions) destroy(ctx context.Context) error {
	rt, kind, err := o.runtime()
	if err != nil {
		return err
	}
	c, err := o.config()
	if err != nil {
		return err
	}
	held, err := o.lock(ctx, c, rt)
	if err != nil {
		return err
	}
	defer held.Release()
	line := &progressLine{streams: o.streams}
	options := runtime.Options{Snapshot: c.Snapshots()}
	if o.errTerminal && !o.json {
		options.Progress = line.print
	}
	outcome, err := kind.Destroy(ctx, rt, options)
	line.clear()
	if err != nil {
		return o.notDestroyed(rt, err)
	}
	if o.json {
		o.printJSON(destroyed{RuntimeResult: outcome.Runtime, Message: outcome.Message, Occupants: outcome.Occupants, Notes: outcome.Notes})
	} else {
		o.printOutcome(rt, outcome)
	}
	switch {
	case outcome.Runtime.Outcome.Released():
		return nil
	case outcome.Runtime.Outcome == teardown.RuntimeRefused:
		return verdict(exitRefused)
	}
	return verdict(exitRetryable)
}

// notDestroyed prints the runtime's failure as its result. An error that says
// nothing of the runtime stays an error.
func (o *runtimeOptions) notDestroyed(rt teardown.Runtime, err error) error {
	var own *teardown.Error
	if !o.json || !errors.As(err, &own) {
		return err
	}
	o.printJSON(destroyed{
		RuntimeResult: teardown.RuntimeResult{Kind: rt.Kind, Role: rt.Role, Outcome: teardown.RuntimeFailed, Code: own.Code, Details: own.Details},
		Retryable:     own.Retryable, Message: sentence(own.Error())})
	o.note("%s: %s", name, sentence(own.Error()))
	return verdict(exitOf(err))
}

func (o *runtimeOptions) printOutcome(rt teardown.Runtime, outcome runtime.Outcome) {
	words := strings.ReplaceAll(string(outcome.Runtime.Outcome), "_", " ")
	o.say("%s %s: %s%s", rt.Kind, shown(runtimeName(rt)), o.styled(words, runtimeStyle(outcome.Runtime.Outcome)), because(outcome.Runtime.Code))
	o.sayDetails(outcome.Runtime.Details)
	for _, occupant := range outcome.Occupants {
		o.say("    in its worktree: %s", shown(occupant))
	}
	for _, note := range outcome.Notes {
		o.say("    %s", sentence(note))
	}
	if outcome.Runtime.Snapshot != "" {
		o.say("    last screen: %s", shown(outcome.Runtime.Snapshot))
	}
	if outcome.Message != "" {
		o.say("    %s", sentence(outcome.Message))
	}
}

// lock keeps two destroyers of one runtime apart. The session's own lock is out
// of reach here, for the object names no session.
func (o *runtimeOptions) lock(ctx context.Context, c config.Config, rt teardown.Runtime) (*lock.Held, error) {
	record, err := json.Marshal(rt)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(record)
	return c.Locks().Host(ctx, "runtime-"+hex.EncodeToString(sum[:16]), o.lockWait(c, "this runtime"))
}

func (o *runtimeOptions) runtime() (teardown.Runtime, runtime.Kind, error) {
	content, err := o.read(o.File)
	if err != nil {
		return teardown.Runtime{}, nil, err
	}
	rt, err := parseRuntime(content)
	if err != nil {
		return rt, nil, err
	}
	kind, err := o.kinds().For(rt)
	return rt, kind, err
}

// parseRuntime reads a runtime object, alone or in the field "runtime" of
// another object, whose other fields are its own business.
func parseRuntime(content []byte) (teardown.Runtime, error) {
	var around struct {
		Runtime json.RawMessage `json:"runtime"`
	}
	if json.Unmarshal(content, &around) == nil && len(around.Runtime) > 0 {
		content = around.Runtime
	}
	var rt teardown.Runtime
	if err := decodeStrict("the runtime", content, &rt); err != nil {
		return rt, err
	}
	if rt.Kind == "" {
		return rt, invalid(`the runtime has no "kind"; use "tmux" or "process"`)
	}
	return rt, nil
}
