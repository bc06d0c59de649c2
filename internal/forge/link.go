package forge

import (
	"fmt"
	"strings"

	"unwind/teardown"
)

// CheckLinks refuses, as invalid_manifest, a link that names nothing, and one that
// is listed twice.
func CheckLinks(links []teardown.Link) error {
	seen := map[teardown.Link]int{}
	for i, link := range links {
		switch {
		case link.Kind != teardown.LinkPullRequest && link.Kind != teardown.LinkIssue:
			return invalid(`links[%d]: kind %q is not known; use "pull_request" or "issue"`, i, link.Kind)
		case !ValidRepository(link.Repository):
			return invalid(`links[%d] needs "repository", as owner/name`, i)
		case link.Number <= 0:
			return invalid(`links[%d] needs "number", above 0`, i)
		}
		link.Repository = strings.ToLower(link.Repository)
		if first, twice := seen[link]; twice {
			return invalid("links[%d] is the same as links[%d]; list it once", i, first)
		}
		seen[link] = i
	}
	return nil
}

func invalid(format string, args ...any) error {
	return &teardown.Error{Code: teardown.CodeInvalidManifest, Message: fmt.Sprintf(format, args...)}
}
