package proctable

import (
	"os"
	"strings"
)

// BootID names the boot that start times are counted from.
func BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}
