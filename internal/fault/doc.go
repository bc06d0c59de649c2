// Package fault marks the instructions between which a worker may be killed.
// A build with the tag faultpoints, which only tests make, kills itself at the
// point that UNWIND_FAULT_POINT names, once; every other build does nothing.
package fault
