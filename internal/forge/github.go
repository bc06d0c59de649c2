package forge

import (
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"unwind/teardown"
)

// Event says that a pull request or an issue is open or closed.
type Event struct {
	Kind       string // of a link
	Repository string // owner/name, where the pull request or issue is
	Number     int64
	// HeadRemote and Branch are where a pull request comes from: host/owner/name,
	// "" if that repository was deleted.
	HeadRemote, Branch string
	Closed             bool
	Source             string    // of the termination, if Closed
	At                 time.Time // of the change, by the forge's clock
}

// payload is the part of GitHub's events that is looked at.
type payload struct {
	Action     string      `json:"action"`
	Repository *repository `json:"repository"`
	Pull       *pull       `json:"pull_request"`
	Issue      *issue      `json:"issue"`
}

type repository struct {
	FullName string `json:"full_name"`
	HTMLURL  string `json:"html_url"`
}

type pull struct {
	issue
	Merged bool `json:"merged"`
	Head   struct {
		Ref  string      `json:"ref"`
		Repo *repository `json:"repo"` // null once a fork is deleted
	} `json:"head"`
}

type issue struct {
	Number    int64     `json:"number"`
	State     string    `json:"state"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Names of the events, as in the header X-GitHub-Event.
const (
	pullRequestEvent = "pull_request"
	issuesEvent      = "issues"
)

const (
	actionClosed = "closed"
	stateOpen    = "open"
)

// GitHub reads an event of GitHub's webhooks. Relevant is false for one that says
// nothing about a pull request or an issue being open or closed. The error says
// what is missing in one that should.
func GitHub(name string, body []byte) (event Event, relevant bool, err error) {
	if name != pullRequestEvent && name != issuesEvent {
		return Event{}, false, nil
	}
	var p payload
	if err := json.Unmarshal(body, &p); err != nil {
		return Event{}, false, fmt.Errorf("the event is not the JSON of GitHub's webhooks: %w", err)
	}
	if p.Repository == nil || !ValidRepository(p.Repository.FullName) {
		return Event{}, false, fmt.Errorf("the event has no repository")
	}
	about := p.Issue
	if name == pullRequestEvent && p.Pull != nil {
		about = &p.Pull.issue
	} else if name == pullRequestEvent {
		about = nil
	}
	if about == nil || about.Number <= 0 || about.UpdatedAt.IsZero() {
		return Event{}, false, fmt.Errorf("the event has no %s with a number and a time", name)
	}
	event = Event{Kind: teardown.LinkIssue, Repository: p.Repository.FullName, Number: about.Number, At: about.UpdatedAt,
		Closed: p.Action == actionClosed, Source: teardown.SourceIssueClosed}
	if name == pullRequestEvent {
		event.ofPull(*p.Pull)
	}
	// Any other change tells as well that it is open; of a closed one it tells
	// nothing new.
	return event, event.Closed || about.State == stateOpen, nil
}

func (e *Event) ofPull(p pull) {
	e.Kind, e.Source = teardown.LinkPullRequest, teardown.SourcePullRequestClosed
	if p.Merged {
		e.Source = teardown.SourcePullRequestMerged
	}
	e.Branch = p.Head.Ref
	if p.Head.Repo == nil {
		return
	}
	if u, err := url.Parse(p.Head.Repo.HTMLURL); err == nil && u.Host != "" && ValidRepository(p.Head.Repo.FullName) {
		e.HeadRemote = Remote("https://" + u.Host + "/" + p.Head.Repo.FullName)
	}
}
