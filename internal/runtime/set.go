package runtime

import (
	"context"

	"unwind/teardown"
)

// Set holds the kinds of runtimes by their name in a manifest.
type Set map[string]Kind

// For returns the kind of rt, or an error with CodeRuntimeUnroutable.
func (s Set) For(rt teardown.Runtime) (Kind, error) {
	kind, ok := s[rt.Kind]
	switch {
	case ok:
		return kind, nil
	case rt.Kind == "":
		return nil, Unroutable("The record of the runtime cannot be read or names no kind; correct its handle in the database, or end it by hand and confirm that it is gone.")
	}
	return nil, Unroutable("The runtime's kind %q is not known; use %s or %s.", rt.Kind, teardown.KindTmux, teardown.KindProcess)
}

// Survey answers whether a runtime is there, as Kind.Probe does, for many of them
// with one look at each place where they live. The look is as old as the first
// question: a runtime that was recorded after it may wrongly be Gone. What goes
// wrong with one runtime says nothing about the others. It serves one caller.
type Survey func(ctx context.Context, rt teardown.Runtime) (State, error)

// Surveyor is a Kind that has a survey cheaper than a probe for each runtime.
type Surveyor interface {
	Survey() Survey
}

// Survey begins a survey of runtimes of any kinds. It takes one listing per tmux
// server and one look at each process.
func (s Set) Survey() Survey {
	begun := map[string]Survey{}
	return func(ctx context.Context, rt teardown.Runtime) (State, error) {
		kind, err := s.For(rt)
		if err != nil {
			return 0, err
		}
		ask, ok := begun[rt.Kind]
		if !ok {
			ask = kind.Probe
			if surveyor, ok := kind.(Surveyor); ok {
				ask = surveyor.Survey()
			}
			begun[rt.Kind] = ask
		}
		return ask(ctx, rt)
	}
}
