//go:build faultpoints

package fault

import (
	"os"
	"syscall"
	"time"
)

// Point kills this process with SIGKILL if it is the point that
// UNWIND_FAULT_POINT names and the file UNWIND_FAULT_MARK does not exist yet.
// With UNWIND_FAULT_HOLD set it waits there instead, until that file is gone.
func Point(name string) {
	if os.Getenv("UNWIND_FAULT_POINT") != name {
		return
	}
	mark, err := os.OpenFile(os.Getenv("UNWIND_FAULT_MARK"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_ = mark.Close()
	hold := os.Getenv("UNWIND_FAULT_HOLD")
	if hold == "" {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	for {
		if _, err := os.Stat(hold); err != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
