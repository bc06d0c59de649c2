package temporalclient

import (
	"net"
	"net/url"
	"strconv"
)

// uiPortOffset is where Temporal's dev server puts its web UI: its own port
// plus 1000.
const uiPortOffset = 1000

// WebURL is the page of a workflow in Temporal's web UI, or of the list of
// workflows if workflowID is empty. The UI is at base, or, if base is empty, where
// the dev server puts it, provided that Temporal is on this machine. The answer
// is empty if there is no telling where it is.
func (c *Connection) WebURL(base, workflowID string) string {
	if base == "" {
		base = c.devServerUI()
	}
	if base == "" {
		return ""
	}
	page := base + "/namespaces/" + url.PathEscape(c.Namespace) + "/workflows"
	if workflowID != "" {
		page += "/" + url.PathEscape(workflowID)
	}
	return page
}

func (c *Connection) devServerUI() string {
	host, port, err := net.SplitHostPort(c.Address)
	if err != nil {
		return ""
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return ""
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(number+uiPortOffset))
}
