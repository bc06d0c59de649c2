package teardown

// Manifest registers a session: what it holds, and where. See docs/manifest.md.
type Manifest struct {
	ID string `json:"id"`
	// Host is the id of the machine that holds the session; empty means the one
	// where the manifest is read.
	Host      string         `json:"host,omitempty"`
	TaskID    string         `json:"task_id,omitempty"`
	Runtimes  []Runtime      `json:"runtimes,omitempty"`
	Worktrees []WorktreeSpec `json:"worktrees,omitempty"`
	Resources []ResourceSpec `json:"resources,omitempty"`
	Links     []Link         `json:"links,omitempty"`
}

// Kinds and roles of runtimes.
const (
	KindTmux      = "tmux"
	KindProcess   = "process"
	RoleAgent     = "agent"
	RoleAuxiliary = "auxiliary"
)

// Runtime is what an agent, or something beside it, runs in.
type Runtime struct {
	Kind string `json:"kind"`
	Role string `json:"role,omitempty"`

	// Socket is the absolute path of the tmux server's socket, Session the name
	// as it was requested. Kind tmux only.
	Socket  string `json:"socket,omitempty"`
	Session string `json:"session,omitempty"`

	// PID and StartTime (field 22 of /proc/PID/stat, in clock ticks since boot)
	// name a process. Kind process only.
	PID       int   `json:"pid,omitempty"`
	StartTime int64 `json:"start_time,omitempty"`

	Identity *RuntimeIdentity `json:"identity,omitempty"`
	// Gone says that the runtime had already ended when the session was added.
	Gone bool `json:"gone,omitempty"`
}

// RuntimeIdentity is what proves that something that answers to a name or a
// number is what was registered. A runtime without it is never destroyed.
type RuntimeIdentity struct {
	// tmux
	SessionID       string `json:"session_id,omitempty"`
	SessionCreated  int64  `json:"session_created,omitempty"` // seconds since the epoch
	ServerPID       int    `json:"server_pid,omitempty"`
	ServerStartTime int64  `json:"server_start_time,omitempty"` // field 22 of stat
	TagOption       string `json:"tag_option,omitempty"`
	Tag             string `json:"tag,omitempty"`
	Panes           []Pane `json:"panes,omitempty"`
	// process
	PGID int `json:"pgid,omitempty"`
	// both
	EnvTag   string `json:"env_tag,omitempty"`  // a whole entry, NAME=VALUE
	Worktree string `json:"worktree,omitempty"` // canonical path
	BootID   string `json:"boot_id,omitempty"`
	Cgroup   string `json:"cgroup,omitempty"`
	// Descendants are its own only because of who started them: unwind records them
	// before it ends that process.
	Descendants []Descendant `json:"descendants,omitempty"`
}

// Descendant is a process that one of the runtime's has started.
type Descendant struct {
	PID       int   `json:"pid"`
	StartTime int64 `json:"start_time"`
	// LeadsSession: it leads a kernel session, whose members are the runtime's, too.
	LeadsSession bool `json:"leads_session,omitempty"`
}

// Pane is the process that a tmux pane was started with.
type Pane struct {
	PID       int   `json:"pid"`
	StartTime int64 `json:"start_time"`
}

// WorktreeSpec names one linked git worktree.
type WorktreeSpec struct {
	Repository string `json:"repository"`
	Path       string `json:"path"`
	Branch     string `json:"branch,omitempty"`
	// Parent is the path of the worktree that contains this one, if any.
	Parent string `json:"parent,omitempty"`
}

// Kinds of resources.
const (
	ResourceFile   = "file"
	ResourceDir    = "dir"
	ResourceFIFO   = "fifo"
	ResourceSecret = "secret"
)

// ResourceSpec is a file, directory, FIFO or secret of one session's agent.
type ResourceSpec struct {
	Kind string `json:"kind"`
	Path string `json:"path"`
}

// Kinds of links.
const (
	LinkPullRequest = "pull_request"
	LinkIssue       = "issue"
)

// Link is a pull request or an issue that the session works on: the session is
// over when it is closed, unless another pull request of it is open.
type Link struct {
	Kind       string `json:"kind"`
	Repository string `json:"repository"` // owner/name
	Number     int64  `json:"number"`
}
