package worktree

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// hasAlias reports whether a directory, or something in it, is also mounted
// elsewhere, so that it has several paths.
func hasAlias(dir string) (bool, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	type mount struct{ device, root, point string }
	var all []mount
	over := mount{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		m := mount{fields[2], unescapeMount(fields[3]), unescapeMount(fields[4])}
		all = append(all, m)
		// Of several at one point, the last is the one that is seen.
		if within(dir, m.point) || m.point == "/" {
			if len(m.point) >= len(over.point) {
				over = m
			}
		}
	}
	inside := filepath.Join(over.root, strings.TrimPrefix(dir, over.point))
	for _, m := range all {
		if m.device == over.device && m.point != over.point && (within(inside, m.root) || below(m.root, inside)) {
			return true, nil
		}
	}
	return false, nil
}
