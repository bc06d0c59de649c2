package forge_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/forge"
	"unwind/teardown"
)

func TestRemote(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"https://github.com/Ada/App.git":           "github.com/ada/app",
		"https://ada:t0ken@github.com/ada/app":     "github.com/ada/app",
		"https://www.github.com/ada/app/":          "github.com/ada/app",
		"ssh://git@ssh.github.com:443/ada/app.git": "github.com/ada/app",
		"git@github.com:ada/app.git":               "github.com/ada/app",
		"github.com:ada/app":                       "github.com/ada/app",
		"git://ghe.example/ada/app.git":            "ghe.example/ada/app",
		"https://gitlab.example/group/sub/app":     "",
		"/srv/git/app.git":                         "",
		"file:///srv/git/app.git":                  "",
		"../app":                                   "",
		"ext::sh -c true":                          "",
		"https://github.com/ada":                   "",
		"https://github.com/ada/app?x=1#y":         "github.com/ada/app",
		"git@github.com:ada/app\ncore.pager=x":     "",
		"":                                         "",
		"https://github.com/%2e%2e/app":            "github.com/../app",
	} {
		require.Equal(t, want, forge.Remote(remote), remote)
	}
}

// The example of GitHub's own documentation, and what must not pass.
func TestSigned(t *testing.T) {
	t.Parallel()
	body, secret := []byte("Hello, World!"), []byte("It's a Secret to Everybody")
	const signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
	require.True(t, forge.Signed(body, signature, secret))
	for _, wrong := range []string{"", "sha256=", signature[:len(signature)-1], signature[7:], "sha1=" + signature[7:], signature + "00", "sha256=zz"} {
		require.False(t, forge.Signed(body, wrong, secret), wrong)
	}
	require.False(t, forge.Signed([]byte("Hello, World?"), signature, secret))
	require.False(t, forge.Signed(body, signature, []byte("another")))
	unsigned := hmac.New(sha256.New, nil)
	unsigned.Write(body)
	require.False(t, forge.Signed(body, "sha256="+hex.EncodeToString(unsigned.Sum(nil)), nil), "no secret signs nothing")
}

func TestGitHub(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	const head = `"head":{"ref":"agent/s1","repo":{"full_name":"Fork/App","html_url":"https://github.com/Fork/App"}}`
	const base = `"repository":{"full_name":"ada/app","html_url":"https://github.com/ada/app"}`
	pull := func(action, state, more string) string {
		return `{"action":"` + action + `","pull_request":{"number":7,"state":"` + state + `","updated_at":"2026-05-06T07:08:09Z",` + more + `},` + base + `}`
	}
	merged := forge.Event{Kind: teardown.LinkPullRequest, Repository: "ada/app", Number: 7, HeadRemote: "github.com/fork/app", Branch: "agent/s1",
		Closed: true, Source: teardown.SourcePullRequestMerged, At: at}
	closed, deleted, open := merged, merged, merged
	closed.Source = teardown.SourcePullRequestClosed
	deleted.HeadRemote = ""
	open.Closed, open.Source = false, teardown.SourcePullRequestClosed
	for name, c := range map[string]struct {
		event, body string
		want        forge.Event
		relevant    bool
	}{
		"merged":       {"pull_request", pull("closed", "closed", `"merged":true,`+head), merged, true},
		"closed":       {"pull_request", pull("closed", "closed", `"merged":false,`+head), closed, true},
		"fork deleted": {"pull_request", pull("closed", "closed", `"merged":true,"head":{"ref":"agent/s1","repo":null}`), deleted, true},
		"opened":       {"pull_request", pull("opened", "open", head), open, true},
		"issue": {"issues", `{"action":"closed","issue":{"number":3,"state":"closed","updated_at":"2026-05-06T07:08:09Z"},` + base + `}`,
			forge.Event{Kind: teardown.LinkIssue, Repository: "ada/app", Number: 3, Closed: true, Source: teardown.SourceIssueClosed, At: at}, true},
		"ping": {"ping", `{"zen":"x"}`, forge.Event{}, false},
		"push": {"push", `not even JSON`, forge.Event{}, false},
	} {
		event, relevant, err := forge.GitHub(c.event, []byte(c.body))
		require.NoError(t, err, name)
		require.Equal(t, c.relevant, relevant, name)
		require.Equal(t, c.want, event, name)
	}
	_, relevant, err := forge.GitHub("pull_request", []byte(pull("labeled", "closed", head)))
	require.NoError(t, err)
	require.False(t, relevant, "of a closed one nothing new")
	for _, bad := range []string{`{`, `[]`, `{}`, `{"action":"closed",` + base + `}`, `{"action":"closed","issue":{"number":1},` + base + `}`,
		`{"action":"closed","pull_request":{"number":-1,"updated_at":"2026-05-06T07:08:09Z"},` + base + `}`} {
		_, _, err := forge.GitHub("pull_request", []byte(bad))
		require.Error(t, err, bad)
	}
}

func FuzzGitHub(f *testing.F) {
	f.Add("pull_request", []byte(`{"action":"closed","pull_request":{"number":1,"head":{"repo":null}},"repository":{"full_name":"a/b"}}`))
	f.Add("issues", []byte(`{"issue":null}`))
	f.Fuzz(func(t *testing.T, name string, body []byte) {
		event, relevant, err := forge.GitHub(name, body)
		if err == nil && relevant && (event.Number <= 0 || !forge.ValidRepository(event.Repository)) {
			t.Fatalf("%+v", event)
		}
	})
}
