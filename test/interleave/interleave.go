// Package interleave says how often the tests of what must exclude each other
// let it meet.
package interleave

import (
	"os"
	"strconv"
)

const asked = "UNWIND_TEST_INTERLEAVINGS"

// Times is how often a race is run: UNWIND_TEST_INTERLEAVINGS, which `make races`
// sets to 1000, or as often as is usual for it: enough to notice a rule that is
// broken, and a matter of seconds.
func Times(usual int) int {
	if n, err := strconv.Atoi(os.Getenv(asked)); err == nil && n > 0 {
		return n
	}
	return usual
}

// Asked reports whether the races are what the tests are run for.
func Asked() bool { return os.Getenv(asked) != "" }
