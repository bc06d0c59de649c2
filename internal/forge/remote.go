// Package forge understands what unwind needs of a forge such as GitHub: where a
// remote lives, and what a signed event says. It does no I/O.
package forge

import (
	"net/url"
	"regexp"
	"strings"
)

var namePattern = regexp.MustCompile(`^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$`)

// ValidRepository reports whether name is of the form owner/name.
func ValidRepository(name string) bool { return len(name) <= 200 && namePattern.MatchString(name) }

// Remotes reads the URLs of a repository's remotes as Remote does, without those
// that are none of a forge.
func Remotes(urls []string) []string {
	var remotes []string
	for _, url := range urls {
		if remote := Remote(url); remote != "" {
			remotes = append(remotes, remote)
		}
	}
	return remotes
}

// scpPattern is git's short form of an ssh URL.
var scpPattern = regexp.MustCompile(`^(?:[^@/]+@)?([A-Za-z0-9.-]+):([^:].*)$`)

// Remote reads the URL of a git remote as host/owner/name in lower case; "" if it
// is none of a forge, such as a path. Nothing of a password in the URL is kept.
func Remote(remote string) string {
	host, path := "", ""
	if u, err := url.Parse(remote); err == nil && u.Host != "" {
		switch u.Scheme {
		case "https", "http", "ssh", "git", "git+ssh", "ssh+git":
			host, path = u.Hostname(), u.Path
		}
	} else if parts := scpPattern.FindStringSubmatch(remote); parts != nil {
		host, path = parts[1], parts[2]
	}
	path = strings.TrimSuffix(strings.Trim(path, "/"), ".git")
	if host == "" || !ValidRepository(path) {
		return ""
	}
	return strings.ToLower(siteOf(host) + "/" + path)
}

// siteOf is the name under which a forge is known, of the several that it has.
func siteOf(host string) string {
	host = strings.ToLower(host)
	switch host {
	case "ssh.github.com", "www.github.com":
		return "github.com"
	}
	return host
}
