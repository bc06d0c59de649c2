package teardown

// ConvergeWorkflow finishes one thing that no finalization will: a worktree
// whose remover does not exist any more, or what a session without a row still
// holds. Reconcile starts it.
const ConvergeWorkflow = "Converge"

// Names of its activities.
const (
	ConvergeWorktreeActivity = "ConvergeWorktree"
	ReleaseVanishedActivity  = "ReleaseVanished"
)

// ConvergeInput is the input of Converge. One of WorktreeID and SessionID is
// set.
type ConvergeInput struct {
	Host       string `json:"host"`
	WorktreeID string `json:"worktree_id,omitempty"`
	SessionID  string `json:"session_id,omitempty"`
	Policy     Policy `json:"policy"`
}

// ConvergeID is the id of the workflow: one for each worktree or session, so
// that no two work on the same.
func ConvergeID(in ConvergeInput) string {
	if in.WorktreeID != "" {
		return "converge-worktree-" + in.WorktreeID
	}
	return "converge-session-" + in.SessionID
}
