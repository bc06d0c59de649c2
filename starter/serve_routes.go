package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"
)

// handler answers all paths. What shows sessions is guarded; a webhook carries its
// own proof, and health tells nothing.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { sayPlain(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("POST /webhooks/github", s.github)
	mux.Handle("GET /api/sessions", s.guarded(s.listSessions))
	mux.Handle("GET /api/sessions/{id}", s.guarded(s.showSession))
	mux.Handle("GET /{$}", s.guarded(s.listPage))
	mux.Handle("GET /sessions/{id}", s.guarded(s.sessionPage))
	mux.Handle("GET /style.css", s.guarded(pageStyle))
	return guardedHeaders(mux)
}

// guardedHeaders keeps what is shown from being stored, framed or taken for
// something else, and the page from running or fetching anything.
func guardedHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// guarded lets through who has the token. Without a token only this machine can
// connect; then the name in the request has to be this machine's, too, or any web
// page could have its own name point here and read on.
func (s *server) guarded(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case len(s.token) == 0 && !loopbackName(r.Host):
			refuse(w, r, http.StatusMisdirectedRequest, "This server answers to localhost only; set a token to reach it by another name.")
		case len(s.token) > 0 && !s.hasToken(r):
			w.Header().Set("WWW-Authenticate", `Basic realm="unwind", charset="UTF-8"`)
			refuse(w, r, http.StatusUnauthorized, "Give the token of UNWIND_TOKEN_FILE, as a bearer token or as the password of any user.")
		default:
			next(w, r)
		}
	})
}

func loopbackName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return onLoopback(strings.ToLower(strings.Trim(host, "[]")))
}

func (s *server) hasToken(r *http.Request) bool {
	given, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !isBearer {
		_, given, _ = r.BasicAuth()
	}
	// The sums are of one length, so that the token's own does not show.
	have, want := sha256.Sum256([]byte(given)), sha256.Sum256(s.token)
	return subtle.ConstantTimeCompare(have[:], want[:]) == 1
}

func refuse(w http.ResponseWriter, r *http.Request, status int, sentence string) {
	if strings.HasPrefix(r.URL.Path, "/api/") {
		sayJSON(w, status, printedError{errorObject{Code: "not_allowed", Message: sentence}})
		return
	}
	sayPlain(w, status, sentence)
}

func (s *server) ready(w http.ResponseWriter, r *http.Request) {
	if _, err := s.facts.Hosts(r.Context()); err != nil {
		sayPlain(w, http.StatusServiceUnavailable, "the database does not answer")
		return
	}
	sayPlain(w, http.StatusOK, "ok")
}

func sayPlain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n"))
}
