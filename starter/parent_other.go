//go:build !linux

package main

import "syscall"

// endWithParent is for Linux; elsewhere the children of a program that was killed
// have to be ended by hand.
func endWithParent(*syscall.SysProcAttr) {}
