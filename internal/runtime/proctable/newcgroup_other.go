//go:build !linux

package proctable

// PlanCgroup answers "": this system has no control groups.
func PlanCgroup(string) string { return "" }

// MakeCgroup always fails.
func MakeCgroup(string) error { return ErrNoCgroup }

// RemoveCgroup does nothing.
func RemoveCgroup(string) {}

// InCgroup is always false.
func InCgroup(int, string) bool { return false }
