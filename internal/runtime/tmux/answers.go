package tmux

import "strings"

// answer is what tmux's exit status and words come to. Only answered says
// anything about sessions.
type answer int

const (
	unknown       answer = iota
	answered             // exit status 0 and nothing on stderr
	silence              // no answer in time: the server is stopped or busy
	noSocket             // there is no file at the socket's path
	noServer             // nobody listens there
	denied               // the socket or the server turned us away
	exiting              // a server on its way out, or one that died under us
	noSessions           // the server has no session at all
	noSession            // the server does not have the one that was named
	duplicate            // the server has a session of that name
	unsetVariable        // the server's environment does not have the one that was named
)

// said is the one table of tmux's words. tmux prints the system's messages in
// English whatever the locale; measured with 3.3a.
var said = []struct {
	begins, ends string
	means        answer
}{
	{"error connecting to ", "(No such file or directory)", noSocket},
	{"error connecting to ", "(Not a directory)", noSocket},
	{"error connecting to ", "(Connection refused)", noServer},
	{"no server running on ", "", noServer},
	{"error connecting to ", "(Permission denied)", denied},
	{"directory ", "has unsafe permissions", denied},
	{"access not allowed", "", denied}, // with exit status 0
	{"server exited unexpectedly", "", exiting},
	{"server exited", "", exiting},
	{"lost server", "", exiting},
	{"no current target", "", noSessions},
	{"can't find session: ", "", noSession},
	{"no such session: ", "", noSession},
	{"duplicate session: ", "", duplicate},
	{"unknown variable: ", "", unsetVariable},
}

// classify reads one reply. A success that says something is none: a server
// that turns a client away exits with 0.
func classify(success bool, stderr string) answer {
	for _, row := range said {
		if strings.HasPrefix(stderr, row.begins) && strings.HasSuffix(stderr, row.ends) {
			return row.means
		}
	}
	if success && stderr == "" {
		return answered
	}
	return unknown
}
