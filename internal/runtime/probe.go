package runtime

import "unwind/teardown"

// Probe is Kind.Probe for a kind that gives check, which refuses a record that
// is no exact identity, and look, which is called only if a look is needed.
func Probe(rt teardown.Runtime, check func() error, look func() (State, error)) (State, error) {
	if rt.Gone {
		return Gone, nil
	}
	if err := check(); err != nil {
		return 0, err
	}
	earlier, err := EarlierBoot(rt.Identity)
	if err != nil {
		return 0, err
	}
	if earlier {
		return Gone, nil
	}
	return look()
}
