// Package interleave says how often the tests of what must exclude each other
// let it meet.
package interleave

import (
	"os"
	"strconv"
)

// usual is enough to notice a rule that is broken, and takes seconds.
const usual = 100

// Times is how often a race is run: UNWIND_TEST_INTERLEAVINGS, which `make races`
// sets to 1000, or 100.
func Times() int {
	if n, err := strconv.Atoi(os.Getenv("UNWIND_TEST_INTERLEAVINGS")); err == nil && n > 0 {
		return n
	}
	return usual
}
