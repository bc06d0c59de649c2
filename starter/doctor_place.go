package main

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"unwind/internal/config"
)

// place is where this program runs.
type place struct {
	container bool
	// ownProcesses: the host's cannot be seen.
	ownProcesses bool
}

// firstPIDNamespace is the number that Linux gives to the host's own.
const firstPIDNamespace = "pid:[4026531836]"

// placeAt looks for the marks that Docker and Podman leave below root, "/".
func placeAt(root string) place {
	var here place
	for _, mark := range []string{".dockerenv", "run/.containerenv"} {
		if _, err := os.Stat(filepath.Join(root, mark)); err == nil {
			here.container = true
		}
	}
	namespace, err := os.Readlink(filepath.Join(root, "proc/self/ns/pid"))
	here.ownProcesses = here.container && err == nil && namespace != firstPIDNamespace
	return here
}

// seesHost warns of a container that the sessions of its host cannot be released
// from.
func (e *examination) seesHost(c config.Config, here place, mounted func(string) bool) {
	if !here.container {
		return
	}
	const advice = "run unwind-worker on the host, or see docs/deployment.md"
	missing := of(c.Roots, func(root string) bool { return !mounted(root) })
	switch {
	case len(missing) == len(c.Roots):
		e.warn("container", "this is a container, and nothing of the host is mounted at its roots (UNWIND_ROOTS: %s): it releases sessions inside of the container, none of the host; for those %s",
			strings.Join(missing, ", "), advice)
	case len(missing) > 0:
		e.warn("container", "this is a container, and nothing of the host is mounted at %s (UNWIND_ROOTS); mount it there, or leave it out", strings.Join(missing, ", "))
	}
	if here.ownProcesses {
		e.warn("container", "this is a container, and it does not see the processes of its host, so it cannot end them; for those %s", advice)
	}
}

// isMounted reports whether a directory is on another file system than the
// container itself.
func isMounted(dir string) bool {
	var own, other syscall.Stat_t
	return syscall.Stat("/", &own) == nil && syscall.Stat(dir, &other) == nil && own.Dev != other.Dev
}

// unreachable adds to a server that does not answer what a container makes of its
// address.
func (e *examination) unreachable(host string, here place) {
	if here.container && onLoopback(host) {
		e.warn("container", "%s is this container itself, unless it shares its host's network; name the service or the machine", host)
	}
}

// uiLimit bounds the question whether the web UI is there.
const uiLimit = 3 * time.Second

// webUI warns of links that lead nowhere, or to another Temporal's UI.
func (e *examination) webUI(ctx context.Context, server temporal, c config.Config, here place) {
	page := server.WebURL(c.UIURL, "")
	ui, err := url.Parse(page)
	if page == "" || err != nil {
		return
	}
	host, _, _ := net.SplitHostPort(server.Address)
	switch {
	case onLoopback(ui.Hostname()) && here.container:
		// It is for a browser outside.
	case !answers(ctx, page):
		e.warn("web ui", "nothing answers at %s, where links to workflows lead; set UNWIND_UI_URL to the address of Temporal's web UI", page)
	case onLoopback(ui.Hostname()) && elsewhere(host, here):
		e.warn("web ui", "links to workflows lead to this machine (%s) and Temporal is at %s; unless that is a tunnel, correct UNWIND_UI_URL", page, server.Address)
	default:
		e.ok("web ui", "%s", page)
	}
}

func answers(ctx context.Context, page string) bool {
	ctx, cancel := context.WithTimeout(ctx, uiLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	return response.Body.Close() == nil && response.StatusCode < http.StatusInternalServerError
}
