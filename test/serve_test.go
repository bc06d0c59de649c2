package test

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
)

const webhookSecret = "a secret of both sides"

// serve starts `unwind serve` and answers its address.
func (i *installation) serve() (url string, stop func() int) {
	i.t.Helper()
	write(i.t, filepath.Join(i.dir, "webhook-secret"), webhookSecret+"\n")
	cmd := exec.Command(filepath.Join(programs, "unwind"), "serve", "--json")
	cmd.Env = i.environment("UNWIND_LISTEN=127.0.0.1:0", "UNWIND_WEBHOOK_SECRET_FILE="+filepath.Join(i.dir, "webhook-secret"))
	log := &syncBuffer{}
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	require.NoError(i.t, err)
	require.NoError(i.t, cmd.Start())
	ended := make(chan struct{})
	line, err := bufio.NewReader(out).ReadString('\n')
	go func() { _ = cmd.Wait(); close(ended) }()
	i.t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	require.NoError(i.t, err, log)
	var said struct{ URL string }
	require.NoError(i.t, json.Unmarshal([]byte(line), &said))
	return said.URL, func() int {
		require.NoError(i.t, cmd.Process.Signal(syscall.SIGTERM))
		<-ended
		require.NotContains(i.t, log.String(), webhookSecret)
		return cmd.ProcessState.ExitCode()
	}
}

func (i *installation) deliver(url, delivery, body string) string {
	i.t.Helper()
	return i.deliverAs("pull_request", url, delivery, body)
}

func (i *installation) deliverAs(event, url, delivery, body string) string {
	i.t.Helper()
	mac := hmac.New(sha256.New, []byte(webhookSecret))
	mac.Write([]byte(body))
	request, err := http.NewRequestWithContext(i.t.Context(), http.MethodPost, url+"webhooks/github", strings.NewReader(body))
	require.NoError(i.t, err)
	for name, value := range map[string]string{"Content-Type": "application/json", "X-GitHub-Event": event, "X-GitHub-Delivery": delivery,
		"X-Hub-Signature-256": "sha256=" + hex.EncodeToString(mac.Sum(nil))} {
		request.Header.Set(name, value)
	}
	return i.read(request)
}

func (i *installation) read(request *http.Request) string {
	i.t.Helper()
	response, err := http.DefaultClient.Do(request)
	require.NoError(i.t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(i.t, err)
	require.Equal(i.t, http.StatusOK, response.StatusCode, string(text))
	return string(text)
}

func (i *installation) get(url string) string {
	i.t.Helper()
	request, err := http.NewRequestWithContext(i.t.Context(), http.MethodGet, url, nil)
	require.NoError(i.t, err)
	return i.read(request)
}

func closedPullRequest(branch string, merged bool) string {
	return fmt.Sprintf(`{"action":"closed","pull_request":{"number":7,"state":"closed","merged":%t,"updated_at":"2026-05-06T07:08:09Z",
		"head":{"ref":%q,"repo":{"full_name":"ada/app","html_url":"https://github.com/ada/app"}}},
		"repository":{"full_name":"ada/app","html_url":"https://github.com/ada/app"}}`, merged, branch)
}

func TestPullRequestThatIsMergedReleasesItsSession(t *testing.T) {
	webhookReleases(t, "pull_request", teardown.SourcePullRequestMerged, func(a *agent) string {
		return closedPullRequest("agent/"+a.id, true)
	})
}

func TestPullRequestThatIsClosedReleasesItsSession(t *testing.T) {
	webhookReleases(t, "pull_request", teardown.SourcePullRequestClosed, func(a *agent) string {
		return closedPullRequest("agent/"+a.id, false)
	})
}

func TestIssueThatIsClosedReleasesItsSession(t *testing.T) {
	webhookReleases(t, "issues", teardown.SourceIssueClosed, func(*agent) string {
		return `{"action":"closed","issue":{"number":3,"state":"closed","updated_at":"2026-05-06T07:08:09Z"},"repository":{"full_name":"ada/app"}}`
	})
}

// webhookReleases delivers an event that ends a session, which is found by its
// branch or by its link to issue 3.
func webhookReleases(t *testing.T, event, source string, body func(*agent) string) {
	t.Helper()
	onBothDatabases(t, func(t *testing.T, i *installation) {
		a := i.agent("s1")
		i.git(a.repository, "remote", "add", "origin", "git@github.com:Ada/App.git")
		a.manifest.Links = []teardown.Link{{Kind: "issue", Repository: "ada/app", Number: 3}}
		i.add(a)
		url, stop := i.serve()
		require.Contains(t, i.deliverAs(event, url, "d1", body(a)), `"terminated":true`)
		s := i.store()
		require.Equal(t, source, i.untilTerminated(s, a.id).TerminationSource)
		require.DirExists(t, a.worktree, "a webhook destroys nothing itself")
		require.Contains(t, i.deliverAs(event, url, "d1", body(a)), `"replayed":true`)
		i.worker()
		i.untilFinished(s, a.id)
		i.requireReleased(a)
		require.Contains(t, i.get(url+"api/sessions/"+a.id), `"outcome":"finalized"`)
		require.Contains(t, i.get(url+"?state=finished"), a.id)
		require.Zero(t, stop())
	})
}

// A session that unwind has started is found as one that was added is: by its
// repository's remote, or by its links.
func TestPullRequestThatIsMergedReleasesSessionsThatWereStarted(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	byRemote, byLink := i.toStart("remote"), i.toStart("link")
	i.git(byRemote.repository, "remote", "add", "origin", "git@github.com:Ada/App.git")
	byLink.in.Links = []teardown.Link{{Kind: teardown.LinkPullRequest, Repository: "Ada/App", Number: 7}}
	wrong := byLink.in
	wrong.Links = []teardown.Link{{Kind: teardown.LinkPullRequest, Repository: "App", Number: 7}}
	refused := i.start(64, &starting{agent: byLink.agent, in: wrong})
	require.Contains(t, refused.out, "owner/name")
	i.start(0, byRemote)
	i.start(0, byLink)
	url, _ := i.serve()
	require.Contains(t, i.deliver(url, "d1", closedPullRequest("agent/"+byRemote.id, true)), `"terminated":true`)
	facts := i.store()
	for _, s := range []*starting{byRemote, byLink} {
		require.Equal(t, teardown.SourcePullRequestMerged, i.untilTerminated(facts, s.id).TerminationSource)
		i.untilFinished(facts, s.id)
		i.requireTakenBack(facts, s)
	}
}

// The database is away while the webhook comes: the forge hears of it, and sends
// it again.
func TestWebhookWhileTheDatabaseIsAwayIsTakenWhenItIsSentAgain(t *testing.T) {
	t.Parallel()
	i := installOnPostgres(t)
	direct := i.database
	a := i.agent("s1")
	i.git(a.repository, "remote", "add", "origin", "https://github.com/ada/app")
	i.add(a)
	wire := newWire(t, direct)
	i.database = wire.url
	url, _ := i.serve()
	wire.cut()
	event := closedPullRequest("agent/"+a.id, true)
	mac := hmac.New(sha256.New, []byte(webhookSecret))
	mac.Write([]byte(event))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"webhooks/github", strings.NewReader(event))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-GitHub-Event", "pull_request")
	request.Header.Set("X-GitHub-Delivery", "d1")
	request.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	wire.mend()
	require.Contains(t, i.deliver(url, "d1", event), `"terminated":true`)
	i.database = direct
	session, err := i.store().Session(t.Context(), a.id)
	require.NoError(t, err)
	require.NotNil(t, session.TerminatedAt)
}

func TestPageNamesWhatIsKeptAndHowToGoOn(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.worker()
	a := i.agent("s1")
	write(t, filepath.Join(a.nested, "idea.txt"), "unsaved\n")
	i.add(a)
	i.result(3, "terminate", a.id, "--wait")
	url, _ := i.serve()
	page := i.get(url)
	for _, part := range []string{a.nested, "idea.txt", "untracked", "unwind retry " + a.id} {
		require.Contains(t, page, part)
	}
	var listed struct {
		Sessions []struct {
			State store.SessionState
		}
	}
	require.NoError(t, json.Unmarshal([]byte(i.get(url+"api/sessions")), &listed))
	require.Equal(t, store.StateParked, listed.Sessions[0].State)
}
