package store_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

// onBranch registers a session with a worktree on a branch of a repository with
// one remote.
func (b *bundle) onBranch(id, branch, remote string, links ...store.Link) {
	b.t.Helper()
	n := b.manifest(id, "/wt/"+id)
	n.Worktrees[0].Branch, n.Worktrees[0].Remotes, n.Links = branch, []string{remote}, links
	b.add(n)
}

var forgeTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// closing is the event that a pull request was merged; each has a time of its own.
func closing(number int64, after time.Duration) store.ForgeEvent {
	return store.ForgeEvent{DeliveryID: fmt.Sprintf("d%d-%d", number, after), Digest: fmt.Sprintf("b%d-%d", number, after), Event: "pull_request",
		Kind: teardown.LinkPullRequest, Repository: "Ada/App", Number: number, HeadRemote: "github.com/ada/app", Branch: "agent/s1",
		Closed: true, Source: teardown.SourcePullRequestMerged, At: forgeTime.Add(after)}
}

func opening(number int64, after time.Duration) store.ForgeEvent {
	e := closing(number, after)
	e.Closed, e.DeliveryID, e.Digest = false, e.DeliveryID+"o", e.Digest+"o"
	return e
}

func (b *bundle) forge(e store.ForgeEvent) store.ForgeOutcome {
	b.t.Helper()
	outcome, err := b.ObserveForge(ctx, e)
	require.NoError(b.t, err)
	return outcome
}

func (b *bundle) sourceOf(id string) string {
	b.t.Helper()
	session, err := b.Session(ctx, id)
	require.NoError(b.t, err)
	if session.TerminatedAt == nil {
		return ""
	}
	return session.TerminationSource
}

var forgePromises = []promise{
	{"a merged pull request ends the live session on its branch, and no other", func(t *testing.T, b *bundle) {
		b.onBranch("s1", "agent/s1", "github.com/ada/app")
		b.onBranch("s2", "agent/s2", "github.com/ada/app")
		b.onBranch("s3", "agent/s1", "github.com/fork/app")
		b.onBranch("s4", "agent/s1", "gitlab.com/ada/app")
		require.Equal(t, []store.ForgeSession{{ID: "s1", Terminated: true}}, b.forge(closing(7, 0)).Sessions)
		require.Equal(t, teardown.SourcePullRequestMerged, b.sourceOf("s1"))
		for _, id := range []string{"s2", "s3", "s4"} {
			require.Empty(t, b.sourceOf(id))
		}
	}},
	{"a link ends its session whatever the branch, and a deleted fork is no branch", func(t *testing.T, b *bundle) {
		b.onBranch("s1", "elsewhere", "github.com/x/y", store.Link{Kind: teardown.LinkPullRequest, Repository: "ADA/app", Number: 7})
		b.onBranch("s2", "agent/s1", "github.com/ada/app")
		e := closing(7, 0)
		e.HeadRemote = ""
		require.Equal(t, []store.ForgeSession{{ID: "s1", Terminated: true}}, b.forge(e).Sessions)
		require.Empty(t, b.sourceOf("s2"))
	}},
	{"another open pull request keeps the session until it is closed, too", func(t *testing.T, b *bundle) {
		b.onBranch("s1", "agent/s1", "github.com/ada/app")
		b.forge(opening(8, 0))
		require.Equal(t, []store.ForgeSession{{ID: "s1", Open: "ada/app#8"}}, b.forge(closing(7, time.Minute)).Sessions)
		require.Empty(t, b.sourceOf("s1"))
		b.forge(opening(7, 2*time.Minute)) // reopened
		require.Equal(t, []store.ForgeSession{{ID: "s1", Open: "ada/app#7"}}, b.forge(closing(8, 3*time.Minute)).Sessions)
		require.True(t, b.forge(closing(7, 4*time.Minute)).Sessions[0].Terminated)
	}},
	{"a closed issue ends its session, but not one with an open pull request", func(t *testing.T, b *bundle) {
		issue := store.Link{Kind: teardown.LinkIssue, Repository: "ada/app", Number: 3}
		b.onBranch("s1", "a", "github.com/ada/app", issue)
		b.onBranch("s2", "b", "github.com/ada/app", issue, store.Link{Kind: teardown.LinkPullRequest, Repository: "ada/app", Number: 7})
		e := closing(3, 0)
		e.Kind, e.HeadRemote, e.Branch, e.Source = teardown.LinkIssue, "", "", teardown.SourceIssueClosed
		require.Equal(t, []store.ForgeSession{{ID: "s1", Terminated: true}, {ID: "s2", Open: "ada/app#7"}}, b.forge(e).Sessions)
		require.Equal(t, teardown.SourceIssueClosed, b.sourceOf("s1"))
		detail, err := b.SessionDetail(ctx, "s2")
		require.NoError(t, err)
		require.Len(t, detail.Links, 2)
		require.NotNil(t, detail.Links[0].ClosedAt)
		require.Nil(t, detail.Links[1].ClosedAt)
	}},
	{"a delivery is taken up once, by its id or by its body", func(t *testing.T, b *bundle) {
		first := closing(7, 0)
		b.forge(first)
		b.onBranch("s1", "agent/s1", "github.com/ada/app")
		sameID, sameBody := first, first
		sameID.Digest, sameBody.DeliveryID = "other", "other"
		for _, again := range []store.ForgeEvent{first, sameID, sameBody} {
			outcome := b.forge(again)
			require.True(t, outcome.Replayed)
			require.Empty(t, outcome.Sessions)
		}
		require.Empty(t, b.sourceOf("s1"), "the session is newer than the event")
		forgotten, err := b.ForgetDeliveries(ctx, 90)
		require.NoError(t, err)
		require.Zero(t, forgotten)
		forgotten, err = b.ForgetDeliveries(ctx, -1)
		require.NoError(t, err)
		require.Equal(t, int64(1), forgotten)
	}},
	{"an event that arrives late changes nothing that is newer", func(t *testing.T, b *bundle) {
		b.onBranch("s1", "agent/s1", "github.com/ada/app")
		b.forge(opening(7, time.Hour)) // reopened after the closing that arrives now
		require.Equal(t, []store.ForgeSession{{ID: "s1"}}, b.forge(closing(7, 0)).Sessions)
		require.Empty(t, b.sourceOf("s1"))
	}},
	{"of one delivery that arrives several times at once one is taken up", func(t *testing.T, b *bundle) {
		b.onBranch("s1", "agent/s1", "github.com/ada/app")
		var all sync.WaitGroup
		outcomes := make([]store.ForgeOutcome, 8)
		for i := range outcomes {
			all.Go(func() {
				outcome, err := b.ObserveForge(ctx, closing(7, 0))
				if err == nil {
					outcomes[i] = outcome
				}
			})
		}
		all.Wait()
		taken := 0
		for _, outcome := range outcomes {
			if !outcome.Replayed {
				taken++
				require.Equal(t, []store.ForgeSession{{ID: "s1", Terminated: true}}, outcome.Sessions)
			}
		}
		require.Equal(t, 1, taken)
	}},
	{"a program that sets the fact without a source is named sql", func(t *testing.T, b *bundle) {
		b.session("s1", "/wt/s1")
		b.session("s2", "/wt/s2")
		at := time.Now().UTC()
		b.exec("UPDATE sessions SET terminated_at = ? WHERE id = 's1'", at)
		b.exec("UPDATE sessions SET terminated_at = ?, termination_source = 'tracker' WHERE id = 's2'", at)
		b.exec("INSERT INTO sessions (id, host, terminated_at, created_at, updated_at) VALUES ('s3', 'h', ?, ?, ?)", at, at, at)
		require.Equal(t, "sql", b.sourceOf("s1"))
		require.Equal(t, "tracker", b.sourceOf("s2"))
		require.Equal(t, "sql", b.sourceOf("s3"))
		b.exec("UPDATE sessions SET updated_at = ? WHERE id = 's1'", at)
		require.Equal(t, "sql", b.sourceOf("s1"))
	}},
	{"a session may be registered as terminated", func(t *testing.T, b *bundle) {
		n := b.manifest("s1", "/wt/s1")
		n.TerminatedBy = teardown.SourceAdopted
		b.add(n)
		require.Equal(t, teardown.SourceAdopted, b.sourceOf("s1"))
		session, err := b.Session(ctx, "s1")
		require.NoError(t, err)
		require.NotNil(t, session.TerminatedAt)
	}},
}
