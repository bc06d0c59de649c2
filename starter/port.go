package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"unwind/teardown"
)

// portTaken says who holds a port that we need, as far as it can be told, and
// what is wrong with that.
func portTaken(port int, flag, wrong string) error {
	holder := "another program"
	if pid, command := portHolder(port); pid != "" {
		holder = fmt.Sprintf("%s (pid %s)", shown(command), pid)
	}
	return &teardown.Error{Code: teardown.CodeTemporalUnavailable, Message: fmt.Sprintf(
		"port %d is held by %s%s; end it, or choose another port with %s", port, holder, wrong, flag)}
}

// portHolder finds the process that listens on a port of this machine. It
// answers nothing where there is no /proc, or where the process is another
// user's.
func portHolder(port int) (pid, command string) {
	sockets := listeningSockets(port)
	if len(sockets) == 0 {
		return "", ""
	}
	descriptors, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, descriptor := range descriptors {
		target, err := os.Readlink(descriptor)
		if err != nil || !sockets[target] {
			continue
		}
		pid = strings.Split(descriptor, "/")[2]
		comm, _ := os.ReadFile("/proc/" + pid + "/comm")
		return pid, strings.TrimSpace(string(comm))
	}
	return "", ""
}

// listeningSockets are the sockets that listen on a port, as links in /proc name
// them.
func listeningSockets(port int) map[string]bool {
	const listen = "0A"
	sockets := map[string]bool{}
	suffix := fmt.Sprintf(":%04X", port)
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		content, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(content), "\n") {
			// sl local_address rem_address st queues timer retransmits uid timeout inode
			fields := strings.Fields(line)
			if len(fields) > 9 && strings.HasSuffix(fields[1], suffix) && fields[3] == listen {
				sockets["socket:["+fields[9]+"]"] = true
			}
		}
	}
	return sockets
}
