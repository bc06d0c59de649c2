package teardown

// What ended a session, as recorded in termination_source. Anybody may record
// another word; these are unwind's own.
const (
	SourceManual            = "manual"
	SourceAgentExit         = "agent_exit"   // the agent said that it ends
	SourceRuntimeExit       = "runtime_exit" // what the agent ran in is gone
	SourcePullRequestMerged = "pull_request_merged"
	SourcePullRequestClosed = "pull_request_closed"
	SourceIssueClosed       = "issue_closed"
	SourceAdopted           = "adopted" // it leaked before unwind knew of it
)
