package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/teardown"
)

// site is a server of sessions under test.
type site struct {
	*bench
	server *httptest.Server
	log    *bytes.Buffer
}

func (b *bench) site(environment ...string) *site {
	b.Helper()
	b.environment = b.environment.with(environment...)
	p, _, log := b.program("")
	f, err := p.openFacts(b.Context())
	require.NoError(b, err)
	b.Cleanup(f.close)
	s, err := p.server(f)
	require.NoError(b, err)
	server := httptest.NewServer(s.handler())
	b.Cleanup(server.Close)
	return &site{b, server, log}
}

type reply struct {
	status int
	header http.Header
	body   string
}

func (s *site) ask(method, path string, body string, headers ...string) reply {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), method, s.server.URL+path, strings.NewReader(body))
	require.NoError(s, err)
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			request.Host = headers[i+1]
		}
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := s.server.Client().Do(request)
	require.NoError(s, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(s, err)
	return reply{response.StatusCode, response.Header, string(text)}
}

const webhookSecret = "hush-hush"

func signature(body, secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

func (s *site) deliver(event, id, body string) reply {
	s.Helper()
	return s.ask(http.MethodPost, "/webhooks/github", body, "Content-Type", "application/json", "X-GitHub-Event", event,
		"X-GitHub-Delivery", id, "X-Hub-Signature-256", signature(body, webhookSecret))
}

// pullRequest is the event of a pull request, as GitHub sends it, in part.
func pullRequest(action string, number int, branch, head string, merged bool, minute int) string {
	state := "open"
	if action == "closed" {
		state = "closed"
	}
	return fmt.Sprintf(`{"action":%q,"number":%d,"pull_request":{"number":%[2]d,"state":%q,"merged":%t,"updated_at":"2026-05-06T07:%02d:00Z",
		"head":{"ref":%q,"repo":{"full_name":%q,"html_url":"https://github.com/%[7]s"}}},
		"repository":{"full_name":"ada/app","html_url":"https://github.com/ada/app"}}`, action, number, state, merged, minute, branch, head)
}

// atWork registers a session with a worktree of a repository that has a remote.
func (b *bench) atWork(id string, links ...teardown.Link) {
	b.Helper()
	app := filepath.Join(b.root, "app")
	if _, err := os.Stat(app); err != nil {
		b.repository("app")
		b.git(app, "remote", "add", "origin", "git@github.com:ada/app.git")
		b.git(app, "remote", "add", "mine", "https://me:t0ken@github.com/fork/app")
	}
	wt := b.worktree(app, id)
	b.add(teardown.Manifest{ID: id, Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: wt}}, Links: links})
}

func TestWebhookOfAMergedPullRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.atWork("s1")
	b.atWork("s2")
	s := b.site("UNWIND_WEBHOOK_SECRET=" + webhookSecret)
	merged := pullRequest("closed", 7, "s1", "ada/app", true, 1)
	r := s.deliver("pull_request", "d1", merged)
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Equal(t, delivered{Taken: true, Sessions: []deliveredSession{{SessionID: "s1", Terminated: true}}}, object[delivered](t, r.body))
	require.Equal(t, teardown.SourcePullRequestMerged, b.source("s1"))
	require.Empty(t, b.source("s2"))

	r = s.deliver("pull_request", "d1", merged)
	require.Equal(t, delivered{Replayed: true, Sessions: []deliveredSession{}}, object[delivered](t, r.body))

	// From a fork that the repository knows, then from one that it does not.
	s.deliver("pull_request", "d2", pullRequest("closed", 8, "s2", "stranger/app", false, 2))
	require.Empty(t, b.source("s2"), "a branch of the same name elsewhere is another one")
	s.deliver("pull_request", "d3", pullRequest("closed", 9, "s2", "Fork/App", false, 3))
	require.Equal(t, teardown.SourcePullRequestClosed, b.source("s2"))
	require.NotContains(t, s.log.String(), webhookSecret)
}

func TestWebhookLeavesASessionWithAnotherOpenPullRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.atWork("s1", teardown.Link{Kind: "pull_request", Repository: "ada/app", Number: 8}, teardown.Link{Kind: "issue", Repository: "ada/app", Number: 3})
	s := b.site("UNWIND_WEBHOOK_SECRET=" + webhookSecret)
	r := s.deliver("pull_request", "d1", pullRequest("closed", 7, "s1", "ada/app", true, 1))
	require.Equal(t, []deliveredSession{{SessionID: "s1", Open: "ada/app#8"}}, object[delivered](t, r.body).Sessions)
	issue := `{"action":"closed","issue":{"number":3,"state":"closed","updated_at":"2026-05-06T07:02:00Z"},"repository":{"full_name":"Ada/app"}}`
	require.Equal(t, "ada/app#8", object[delivered](t, s.deliver("issues", "d2", issue).body).Sessions[0].Open)
	require.Empty(t, b.source("s1"))
	s.deliver("pull_request", "d3", pullRequest("closed", 8, "elsewhere", "ada/app", false, 3))
	require.Equal(t, teardown.SourcePullRequestClosed, b.source("s1"))

	b.atWork("s2", teardown.Link{Kind: "issue", Repository: "ada/app", Number: 4})
	s.deliver("issues", "d4", strings.Replace(issue, `"number":3`, `"number":4`, 1))
	require.Equal(t, teardown.SourceIssueClosed, b.source("s2"))
	links := object[report](t, b.must("status", "s2", "--json")).Links
	require.Equal(t, "ada/app", links[0].Repository)
	require.NotNil(t, links[0].ClosedAt)
}

func TestWebhookThatIsNotGenuineIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.atWork("s1")
	s := b.site("UNWIND_WEBHOOK_SECRET=" + webhookSecret)
	body := pullRequest("closed", 7, "s1", "ada/app", true, 1)
	post := func(body string, headers ...string) reply {
		return s.ask(http.MethodPost, "/webhooks/github", body, append([]string{"Content-Type", "application/json", "X-GitHub-Event", "pull_request",
			"X-GitHub-Delivery", "d1", "X-Hub-Signature-256", signature(body, webhookSecret)}, headers...)...)
	}
	require.Equal(t, http.StatusUnauthorized, post(body, "X-Hub-Signature-256", "").status)
	require.Equal(t, http.StatusUnauthorized, post(body, "X-Hub-Signature-256", signature(body, "guess")).status)
	require.Equal(t, http.StatusUnauthorized, post(body+" ", "X-Hub-Signature-256", signature(body, webhookSecret)).status)
	require.Equal(t, http.StatusUnsupportedMediaType, post(body, "Content-Type", "application/x-www-form-urlencoded").status)
	require.Equal(t, http.StatusBadRequest, post(`{"action":"closed"}`).status)
	require.Equal(t, http.StatusBadRequest, post(body, "X-GitHub-Delivery", "").status)
	require.Equal(t, http.StatusRequestEntityTooLarge, post(strings.Repeat("x", maxDelivery+1)).status)
	require.Equal(t, http.StatusMethodNotAllowed, s.ask(http.MethodGet, "/webhooks/github", "").status)
	require.Equal(t, http.StatusOK, post(`{"zen":"x"}`, "X-GitHub-Event", "ping").status)
	require.Equal(t, http.StatusOK, post(body, "X-GitHub-Event", "push").status, "what does not matter here is no fault")
	require.Empty(t, b.source("s1"))
	require.NotContains(t, s.log.String(), webhookSecret)

	off := setup(t).site()
	r := off.deliver("pull_request", "d1", body)
	require.Equal(t, http.StatusNotFound, r.status)
	require.Contains(t, r.body, "UNWIND_WEBHOOK_SECRET_FILE")
}

func TestSecretsOfTheServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	file := b.write("secret", "  from-a-file\n")
	p, _, _ := b.program("")
	secret, err := p.secret("UNWIND_TOKEN", file)
	require.NoError(t, err)
	require.Equal(t, "from-a-file", string(secret))
	for path, sentence := range map[string]string{filepath.Join(b.root, "none"): "cannot be read", b.write("empty", "\n"): "is empty",
		b.write("long", strings.Repeat("x", maxSecret+1)): "is too long"} {
		_, err := p.secret("UNWIND_TOKEN", path)
		require.ErrorContains(t, err, sentence)
		require.Equal(t, teardown.CodeInvalidConfig, teardown.CodeOf(err))
	}
}

func TestServeListensOpenlyOnlyWithAToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.org:0"} {
		r := b.run("serve", "--listen", address)
		require.Equal(t, exitUsage, r.code, address)
		require.Contains(t, r.stderr, "there is no token")
	}
	require.Equal(t, exitUsage, b.run("serve", "--listen", "nonsense").code)
	held := httptest.NewServer(http.NotFoundHandler())
	defer held.Close()
	r := b.run("serve", "--listen", held.Listener.Addr().String())
	require.Equal(t, exitRetryable, r.code)
	require.Contains(t, r.stderr, "choose another address")
}

func TestServeAsksForItsToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.add(teardown.Manifest{ID: "s1"})
	s := b.site("UNWIND_TOKEN=open-sesame", "UNWIND_LISTEN=0.0.0.0:0", "UNWIND_WEBHOOK_SECRET="+webhookSecret)
	for _, path := range []string{"/", "/api/sessions", "/api/sessions/s1", "/sessions/s1", "/style.css"} {
		r := s.ask(http.MethodGet, path, "", "Host", "unwind.example")
		require.Equal(t, http.StatusUnauthorized, r.status, path)
		require.NotContains(t, r.body, "s1")
		require.Contains(t, r.header.Get("WWW-Authenticate"), "Basic")
		require.Equal(t, http.StatusUnauthorized, s.ask(http.MethodGet, path, "", "Authorization", "Bearer open-sesam").status)
		require.Equal(t, http.StatusOK, s.ask(http.MethodGet, path, "", "Authorization", "Bearer open-sesame", "Host", "unwind.example").status, path)
		require.Equal(t, http.StatusOK, s.ask(http.MethodGet, path, "", "Authorization", "Basic YW55Om9wZW4tc2VzYW1l").status, path)
	}
	require.Equal(t, http.StatusOK, s.ask(http.MethodGet, "/healthz", "").status)
	require.Equal(t, http.StatusOK, s.deliver("ping", "d", `{}`).status, "a webhook carries its own proof")
}

// A web page whose name was made to point at this machine reads nothing.
func TestServeAnswersToThisMachinesNamesOnly(t *testing.T) {
	t.Parallel()
	s := setup(t).site()
	for _, host := range []string{"evil.example", "evil.example:80", "127.0.0.1.evil.example"} {
		require.Equal(t, http.StatusMisdirectedRequest, s.ask(http.MethodGet, "/api/sessions", "", "Host", host).status, host)
	}
	for _, host := range []string{"localhost", "LOCALHOST:7391", "127.0.0.1:1", "[::1]:7391"} {
		require.Equal(t, http.StatusOK, s.ask(http.MethodGet, "/api/sessions", "", "Host", host).status, host)
	}
}

func TestServeAPI(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, id := range []string{"a", "b", "c"} {
		b.add(teardown.Manifest{ID: id})
	}
	b.must("terminate", "b")
	s := b.site()
	page := object[sessionsPage](t, s.ask(http.MethodGet, "/api/sessions?limit=2", "").body)
	require.Len(t, page.Sessions, 2)
	require.Equal(t, "b", page.Next)
	page = object[sessionsPage](t, s.ask(http.MethodGet, "/api/sessions?limit=2&after=b", "").body)
	require.Equal(t, "c", page.Sessions[0].SessionID)
	require.Empty(t, page.Next)
	page = object[sessionsPage](t, s.ask(http.MethodGet, "/api/sessions?state=terminated", "").body)
	require.Len(t, page.Sessions, 1)
	require.Equal(t, "manual", object[report](t, s.ask(http.MethodGet, "/api/sessions/b", "").body).TerminationSource)
	require.JSONEq(t, b.must("list", "--json", "--state", "terminated"), string(mustJSON(t, page.Sessions[0])), "the same object as the command line's")
	for path, status := range map[string]int{"/api/sessions/none": http.StatusNotFound, "/api/sessions/a%2Fb": http.StatusBadRequest,
		"/api/sessions?state=x": http.StatusBadRequest, "/api/sessions?limit=0": http.StatusBadRequest, "/api/sessions?after=%00": http.StatusBadRequest,
		"/api": http.StatusNotFound, "/sessions/none": http.StatusNotFound} {
		require.Equal(t, status, s.ask(http.MethodGet, path, "").status, path)
	}
	require.Equal(t, http.StatusMethodNotAllowed, s.ask(http.MethodDelete, "/api/sessions/a", "").status)
	require.Equal(t, http.StatusOK, s.ask(http.MethodGet, "/readyz", "").status)
}

func mustJSON(t *testing.T, object any) []byte {
	t.Helper()
	text, err := json.Marshal(object)
	require.NoError(t, err)
	return text
}

func TestPageShowsWhatIsKeptAndWhy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	app := b.repository("app")
	wt := b.worktree(app, "wt")
	b.add(teardown.Manifest{ID: "s1", Worktrees: []teardown.WorktreeSpec{{Repository: app, Path: wt}}})
	b.add(teardown.Manifest{ID: "s2"})
	b.park("s1", `<script>alert("x")</script>.txt`)
	s := b.site()
	for _, path := range []string{"/", "/?state=parked", "/sessions/s1"} {
		r := s.ask(http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, r.status, r.body)
		for _, part := range []string{wt, "untracked", "unwind retry s1", "Worktree kept", "&lt;script&gt;", `name="viewport"`, `lang="en"`} {
			require.Contains(t, r.body, part, path)
		}
		require.NotContains(t, r.body, "<script")
		require.Contains(t, r.header.Get("Content-Security-Policy"), "default-src 'none'")
		require.Equal(t, "no-store", r.header.Get("Cache-Control"))
	}
	require.Contains(t, s.ask(http.MethodGet, "/", "").body, `href="/sessions/s2"`)
	require.NotContains(t, s.ask(http.MethodGet, "/?state=parked", "").body, `href="/sessions/s2"`)
	require.Contains(t, s.ask(http.MethodGet, "/?state=finished", "").body, "There is none.")
	require.Contains(t, s.ask(http.MethodGet, "/style.css", "").header.Get("Content-Type"), "text/css")
}

// park leaves a session as a finalization would that has found something.
func (b *bench) park(id, found string) {
	b.Helper()
	b.must("terminate", id)
	st := b.store()
	begun, err := st.Begin(b.Context(), teardown.BeginInput{SessionID: id})
	require.NoError(b, err)
	step := begun.Step
	_, err = st.ReleaseLeases(b.Context(), step)
	require.NoError(b, err)
	detail, err := st.SessionDetail(b.Context(), id)
	require.NoError(b, err)
	for _, leased := range detail.Worktrees {
		_, err := st.Preserved(b.Context(), step, leased.Worktree.ID, teardown.WorktreeResult{Path: leased.Worktree.Path,
			Disposition: teardown.DispositionPreserved, Code: teardown.CodeUntracked, Details: []string{"untracked: " + found}, Bytes: 4711}, false)
		require.NoError(b, err)
	}
	_, err = st.Park(b.Context(), teardown.ParkInput{Step: step, Reason: teardown.ReasonPreserved,
		Failure: teardown.Failure{Code: teardown.CodeUntracked, Message: "A worktree holds what could be lost"}})
	require.NoError(b, err)
}

func TestServeStopsGracefully(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _, _ := b.program("")
	f, err := p.openFacts(t.Context())
	require.NoError(t, err)
	defer f.close()
	s, err := p.server(f)
	require.NoError(t, err)
	listener, err := listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, listener) }()
	response, err := http.Get(s.serving(listener).URL + "healthz")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	stop()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}
