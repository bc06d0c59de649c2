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

// Probed is the answer for one of several runtimes.
type Probed struct {
	State State
	Err   error
}

// Batch is a Kind that can probe many runtimes for the price of one look.
type Batch interface {
	// ProbeAll answers for each runtime what Probe would, in the same order.
	ProbeAll(ctx context.Context, rts []teardown.Runtime) []Probed
}

// ProbeAll probes runtimes of any kinds and answers in their order. It takes one
// listing per tmux server and one look at each process; what goes wrong with one
// runtime says nothing about the others.
func (s Set) ProbeAll(ctx context.Context, rts []teardown.Runtime) []Probed {
	answers := make([]Probed, len(rts))
	places := map[string][]int{}
	for i, rt := range rts {
		kind, err := s.For(rt)
		if err != nil {
			answers[i].Err = err
			continue
		}
		if _, ok := kind.(Batch); ok {
			places[rt.Kind] = append(places[rt.Kind], i)
			continue
		}
		answers[i].State, answers[i].Err = kind.Probe(ctx, rt)
	}
	for name, at := range places {
		batch := make([]teardown.Runtime, len(at))
		for j, i := range at {
			batch[j] = rts[i]
		}
		for j, probed := range s[name].(Batch).ProbeAll(ctx, batch) {
			answers[at[j]] = probed
		}
	}
	return answers
}
