package main

import "syscall"

// endWithParent has the kernel ask a child to end when we are killed and can no
// longer do so. It does that when the thread ends that has started the child.
func endWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGTERM }
