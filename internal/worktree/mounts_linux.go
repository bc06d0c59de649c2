package worktree

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mountsBelow answers the mount points at dir or below it.
func mountsBelow(dir string) ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if point := unescapeMount(fields[4]); within(point, dir) {
			found = append(found, point)
		}
	}
	return found, nil
}

// unescapeMount undoes the octal escapes of mountinfo.
func unescapeMount(field string) string {
	var plain strings.Builder
	for i := 0; i < len(field); i++ {
		if field[i] == '\\' && i+3 < len(field) {
			if code, err := strconv.ParseUint(field[i+1:i+4], 8, 8); err == nil {
				plain.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		plain.WriteByte(field[i])
	}
	return plain.String()
}

// severalMounts reports whether a device is mounted more than once, so that its
// directories may have several paths.
func severalMounts(dev uint64) bool {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return true
	}
	wanted := fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
	count := 0
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == wanted {
			count++
		}
	}
	return count != 1
}
