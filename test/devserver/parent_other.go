//go:build !linux

package devserver

import "os/exec"

// endWithParent is for Linux; elsewhere a killed test leaves its server behind.
func endWithParent(*exec.Cmd) {}
