package runtime

import (
	"fmt"

	"unwind/teardown"
)

// Set holds the kinds of runtimes by their name in a manifest.
type Set map[string]Kind

// For returns the kind of rt, or an error with CodeRuntimeUnroutable.
func (s Set) For(rt teardown.Runtime) (Kind, error) {
	kind, ok := s[rt.Kind]
	if !ok {
		return nil, Unroutable("The runtime's kind %q is not known; use %s or %s.",
			rt.Kind, teardown.KindTmux, teardown.KindProcess)
	}
	return kind, nil
}

// Unroutable returns the error for a record that names nothing exactly.
func Unroutable(format string, args ...any) *teardown.Error {
	return &teardown.Error{Code: teardown.CodeRuntimeUnroutable, Message: fmt.Sprintf(format, args...)}
}
