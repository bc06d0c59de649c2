package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"unwind/teardown"
)

// portTaken says who holds a port that we need, as far as it can be told, and
// what is wrong with that.
func portTaken(port int, flag, wrong string) error {
	holder := "another program"
	if holders, _ := portHolders(port); len(holders) > 0 {
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", holders[0]))
		holder = fmt.Sprintf("%s (pid %d)", shown(strings.TrimSpace(string(command))), holders[0])
	}
	return &teardown.Error{Code: teardown.CodeTemporalUnavailable, Message: fmt.Sprintf(
		"port %d is held by %s%s; end it, or choose another port with %s", port, holder, wrong, flag)}
}

// holdsAlone reports whether everything that listens on a port is known to be
// held by this one process.
func holdsAlone(pid, port int) bool {
	holders, all := portHolders(port)
	return all && len(holders) == 1 && holders[0] == pid
}

// portHolders finds the processes that have a socket which listens on a port of
// this machine. It finds none where there is no /proc, and not those of another
// user; all: a holder is known for each of the sockets.
func portHolders(port int) (pids []int, all bool) {
	sockets := listeningSockets(port)
	if len(sockets) == 0 {
		return nil, false
	}
	held := map[string]bool{}
	descriptors, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, descriptor := range descriptors {
		target, err := os.Readlink(descriptor)
		if err != nil || !sockets[target] {
			continue
		}
		held[target] = true
		pid, err := strconv.Atoi(strings.Split(descriptor, "/")[2])
		if err == nil && !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	return pids, len(held) == len(sockets)
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
