package proctable

import (
	"fmt"
	"os"
)

// signallable is the one guard of every signal that is sent: the numbers up to
// 1 mean process groups, everybody or init, and we do not end ourselves.
func signallable(ref Ref) error {
	if !ref.Valid() || ref.PID == os.Getpid() {
		return fmt.Errorf("process %d is never signalled", ref.PID)
	}
	return nil
}
