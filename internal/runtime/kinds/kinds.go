// Package kinds wires the kinds of runtimes that unwind knows.
package kinds

import (
	"unwind/internal/runtime"
	"unwind/internal/runtime/process"
	"unwind/internal/runtime/tmux"
	"unwind/teardown"
)

// All returns every kind.
func All() runtime.Set {
	return runtime.Set{
		teardown.KindTmux:    tmux.Kind{},
		teardown.KindProcess: process.Kind{},
	}
}
