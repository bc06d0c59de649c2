package devserver

import (
	"os/exec"
	"syscall"
)

// endWithParent lets the kernel end the server when the test is killed.
func endWithParent(process *exec.Cmd) {
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
