package main

import (
	"context"
	"time"

	"go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/types/known/timestamppb"

	"unwind/internal/store"
	"unwind/teardown"
)

// sight is what is known of one session at one moment: the facts, and what
// Temporal says about the run that is under way.
type sight struct {
	store.Detail
	// finalization is the one of the session's generation, nil if there is none
	// yet.
	finalization *store.Finalization
	state        store.SessionState
	at           time.Time
	host         store.Host // zero if it was never seen
	live         live
}

// live is what only Temporal knows. It is for people: nothing is decided by it.
type live struct {
	Available bool `json:"available"`
	// Why it is not available.
	Why             string         `json:"why,omitempty"`
	WebUI           string         `json:"web_ui,omitempty"`
	Phase           teardown.Phase `json:"phase,omitempty"`
	Running         []string       `json:"running,omitempty"`
	Steps           []pendingStep  `json:"steps,omitempty"`
	PendingRequests int            `json:"pending_requests"`
	HandledRequests []string       `json:"handled_requests,omitempty"`
}

// pendingStep is an activity that runs or waits for its next attempt.
type pendingStep struct {
	Step            string             `json:"step"` // the activity's type
	Summary         string             `json:"summary,omitempty"`
	State           string             `json:"state"`
	Attempt         int32              `json:"attempt"`
	MaximumAttempts int32              `json:"maximum_attempts"`
	NextAttemptAt   *time.Time         `json:"next_attempt_at"`
	Progress        *teardown.Progress `json:"progress,omitempty"`
	Failure         teardown.Failure   `json:"failure"`
	activityID      string
}

// States of a pending step.
const (
	stepRunning = "running"
	stepWaiting = "waiting" // for its next attempt, or for a worker to take it
)

// look reads the facts. Temporal is asked by lookLive.
func (f *facts) look(ctx context.Context, id string) (sight, error) {
	detail, err := f.SessionDetail(ctx, id)
	if err != nil {
		return sight{}, err
	}
	s := sight{Detail: detail, at: now()}
	for i := range detail.Finalizations {
		if detail.Finalizations[i].Generation == detail.Session.Generation {
			s.finalization = &detail.Finalizations[i]
		}
	}
	s.state = stateOf(detail.Session, s.finalization, s.at)
	if s.host, _, err = f.Host(ctx, detail.Session.Host); err != nil {
		return sight{}, err
	}
	return s, nil
}

// liveLimit bounds each question to Temporal: a query that no worker answers
// would take far longer.
const liveLimit = 2 * time.Second

// lookLive asks Temporal about the run.
func lookLive(ctx context.Context, server temporal, uiURL, id string) live {
	if server.away != nil {
		return live{Why: brief(server.away)}
	}
	workflowID := teardown.FinalizeSessionID(id)
	l := live{WebUI: server.WebURL(uiURL, workflowID)}
	bounded, cancel := context.WithTimeout(ctx, liveLimit)
	defer cancel()
	described, err := server.Client.DescribeWorkflow(bounded, workflowID, "")
	if err != nil {
		l.Why = brief(server.Explain(err))
		return l
	}
	l.Available = true
	if described.Status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return l
	}
	for _, activity := range described.RawResponse.GetPendingActivities() {
		l.Steps = append(l.Steps, stepOf(activity))
	}
	asked, cancelAsked := context.WithTimeout(ctx, liveLimit)
	defer cancelAsked()
	answer, err := server.Client.QueryWorkflow(asked, workflowID, "", teardown.StatusQuery)
	var status teardown.Status
	if err != nil || answer.Get(&status) != nil {
		l.Why = "no worker answers for the workflow; is unwind-worker running?"
		return l
	}
	l.Phase, l.Running = status.Phase, status.Running
	l.PendingRequests, l.HandledRequests = status.PendingRequests, status.HandledRequests
	if len(l.Running) == 1 && len(l.Steps) == 1 {
		l.Steps[0].Summary = l.Running[0]
	}
	return l
}

func stepOf(activity *workflowpb.PendingActivityInfo) pendingStep {
	step := pendingStep{
		Step:            activity.GetActivityType().GetName(),
		State:           stepWaiting,
		Attempt:         activity.GetAttempt(),
		MaximumAttempts: activity.GetMaximumAttempts(),
		NextAttemptAt:   timeOf(activity.GetNextAttemptScheduleTime()),
		Failure:         failureOf(activity.GetLastFailure()),
		activityID:      activity.GetActivityId(),
	}
	if activity.GetState() == enums.PENDING_ACTIVITY_STATE_STARTED {
		step.State = stepRunning
		var progress teardown.Progress
		if converter.GetDefaultDataConverter().FromPayloads(activity.GetHeartbeatDetails(), &progress) == nil && progress.Step != "" {
			step.Progress = &progress
		}
	}
	return step
}

func failureOf(failure *failurepb.Failure) teardown.Failure {
	if failure == nil {
		return teardown.Failure{}
	}
	return teardown.Failure{Code: teardown.Code(failure.GetApplicationFailureInfo().GetType()), Message: failure.GetMessage()}
}

func timeOf(stamp *timestamppb.Timestamp) *time.Time {
	if stamp == nil {
		return nil
	}
	at := stamp.AsTime()
	return &at
}

// hostSeenWithin is how long ago a host's worker may have been heard of before
// a person is told that it may be away.
const hostSeenWithin = 90 * time.Second

// hostHint says that nobody may be there to do the work; "" if somebody is.
func (s sight) hostHint() string {
	switch {
	case s.state != store.StateTerminated:
		return ""
	case s.host.ID == "":
		return "No worker of host " + s.Session.Host + " was ever seen; start unwind-worker there."
	case !s.host.SeenWithin(hostSeenWithin, s.at):
		return "The worker of host " + s.Session.Host + " was last seen " + lastSeen(s.host, s.at) + "; start unwind-worker there."
	}
	return ""
}

// lastSeen says when a host was seen that is not seen lately.
func lastSeen(host store.Host, at time.Time) string {
	if ahead := host.LastSeen.Sub(at); ahead > 0 {
		return "by a clock that was " + durationText(ahead) + " ahead"
	}
	return ago(host.LastSeen, at)
}
