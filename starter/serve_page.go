package main

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"unwind/internal/store"
	"unwind/teardown"
)

//go:embed page
var pageFiles embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"bytes": bytesText, "shown": shown, "sentence": sentence, "marked": marked,
	"stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
}).ParseFS(pageFiles, "page/*.html"))

// span is a part of a sentence, or a command in it.
type span struct {
	Text string
	Code bool
}

// marked takes a sentence apart at its backquotes.
func marked(text string) []span {
	var spans []span
	for i, part := range strings.Split(text, "`") {
		if part != "" {
			spans = append(spans, span{part, i%2 == 1})
		}
	}
	return spans
}

// card is a session on the page.
type card struct {
	ID      string
	Words   string
	Tone    string // of the words: good, kept, plain
	Host    string
	Changed time.Time
	Ago     string
	Kept    []store.LeasedWorktree
	// What is said of a session that waits: the failure, what to do, and the
	// command that retries it.
	Why     string
	Advice  string
	Command string
}

// section is a part of the list.
type section struct {
	Title string
	Empty string // what is said if there is none
	Cards []card
	More  string // address of the rest; "" if all are here
}

type listView struct {
	Title    string
	Tabs     []tab
	Sections []section
}

type tab struct {
	Name, Address string
	Current       bool
}

const (
	cardsPerSection = 25
	cardsPerPage    = 50
)

// What the page of all sessions shows, in this order: what needs somebody first.
var overview = []struct {
	state        store.SessionState
	title, empty string
}{
	{store.StateParked, "Waiting", "Nothing waits for a person."},
	{store.StateTerminated, "Cleaning up", "Nothing is being cleaned up."},
	{store.StateHeld, "Held", ""},
	{store.StateLive, "Live", "No session is live."},
}

func (s *server) listPage(w http.ResponseWriter, r *http.Request) {
	filter, err := filterOf(r)
	if err != nil {
		s.failPage(w, err)
		return
	}
	view := listView{Title: "Sessions", Tabs: tabs(filter.State)}
	if filter.State != "" {
		title := strings.ToUpper(string(filter.State)[:1]) + string(filter.State)[1:]
		filter.Limit = cardsPerPage
		one, err := s.section(r.Context(), filter, title, "There is none.")
		if err != nil {
			s.failPage(w, err)
			return
		}
		view.Sections = []section{one}
		s.render(w, "list.html", view)
		return
	}
	for _, part := range overview {
		one, err := s.section(r.Context(), store.SessionFilter{State: part.state, Limit: cardsPerSection}, part.title, part.empty)
		if err != nil {
			s.failPage(w, err)
			return
		}
		if len(one.Cards) > 0 || part.empty != "" {
			view.Sections = append(view.Sections, one)
		}
	}
	s.render(w, "list.html", view)
}

func tabs(current store.SessionState) []tab {
	all := []tab{{"Overview", "/", current == ""}}
	for _, state := range []store.SessionState{store.StateParked, store.StateTerminated, store.StateHeld, store.StateLive, store.StateFinished} {
		words, _ := stateWords(state, "", 0)
		if state == store.StateParked {
			words = "Waiting"
		}
		all = append(all, tab{words, "/?state=" + string(state), current == state})
	}
	return all
}

func (s *server) section(ctx context.Context, filter store.SessionFilter, title, empty string) (section, error) {
	found, err := s.facts.Sessions(ctx, filter)
	if err != nil {
		return section{}, err
	}
	one := section{Title: title, Empty: empty}
	for _, summary := range found {
		c, err := s.card(ctx, summary)
		if err != nil {
			return section{}, err
		}
		one.Cards = append(one.Cards, c)
	}
	if len(found) == filter.Limit {
		one.More = "/?" + url.Values{"state": {string(filter.State)}, "after": {found[len(found)-1].ID}}.Encode()
	}
	return one, nil
}

func (s *server) card(ctx context.Context, summary store.Summary) (card, error) {
	at := now()
	words, as := stateWords(summary.State, summary.ParkedReason, summary.WorktreesKept)
	c := card{ID: summary.ID, Words: words, Tone: tone(as), Host: summary.Host, Changed: summary.ChangedAt(), Ago: ago(summary.ChangedAt(), at)}
	if summary.State == store.StateParked {
		c.Why, c.Advice, c.Command = sentence(summary.FailureMessage), whatNext(summary.ID, summary.ParkedReason), name+" retry "+summary.ID
	}
	if summary.WorktreesKept == 0 {
		return c, nil
	}
	seen, err := s.facts.look(ctx, summary.ID)
	if teardown.CodeOf(err) == teardown.CodeSessionNotFound {
		return c, nil // deleted meanwhile
	}
	c.Kept = of(seen.leased(), isKept)
	return c, err
}

func tone(as style) string {
	switch as {
	case green:
		return "good"
	case yellow:
		return "kept"
	}
	return "plain"
}

// sessionView is one session on a page of its own.
type sessionView struct {
	Title     string
	Tabs      []tab
	Card      card
	Summary   string
	Runtimes  []runtimeReport
	Worktrees []store.LeasedWorktree
	Cleared   int
	Left      int
	Links     []store.Link
}

func (s *server) sessionPage(w http.ResponseWriter, r *http.Request) {
	seen, err := s.lookAt(r)
	if err != nil {
		s.failPage(w, err)
		return
	}
	words, as := seen.words()
	view := sessionView{Title: "Session " + seen.Session.ID, Tabs: tabs("none"), Summary: seen.summary(),
		Card:     card{ID: seen.Session.ID, Words: words, Tone: tone(as)},
		Runtimes: seen.report().Runtimes, Worktrees: seen.leased(), Links: seen.Links}
	if seen.state == store.StateParked {
		f := seen.finalization
		view.Card.Why, view.Card.Advice, view.Card.Command = sentence(f.FailureMessage), whatNext(seen.Session.ID, f.ParkedReason), name+" retry "+seen.Session.ID
	}
	for _, resource := range seen.resources() {
		if resource.ClearedAt != nil {
			view.Cleared++
		} else {
			view.Left++
		}
	}
	// Those that stay come first.
	slices.SortStableFunc(view.Worktrees, func(a, b store.LeasedWorktree) int {
		switch {
		case isKept(a) == isKept(b):
			return 0
		case isKept(a):
			return -1
		}
		return 1
	})
	s.render(w, "session.html", view)
}

// render writes a page as a whole or not at all.
func (s *server) render(w http.ResponseWriter, page string, view any) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, page, view); err != nil {
		s.failPage(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes())
}

func (s *server) failPage(w http.ResponseWriter, err error) {
	status := statusOf(err)
	if status >= http.StatusInternalServerError {
		s.log.Warn("A page could not be shown", "error", brief(err))
	}
	sayPlain(w, status, brief(err))
}

func pageStyle(w http.ResponseWriter, _ *http.Request) {
	text, err := pageFiles.ReadFile("page/style.css")
	if err != nil {
		sayPlain(w, http.StatusInternalServerError, "the style is missing")
		return
	}
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	_, _ = w.Write(text)
}
