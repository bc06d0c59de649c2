package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"net/http"

	"unwind/internal/forge"
	"unwind/internal/store"
)

// maxDelivery bounds the body of a webhook, in bytes: an event of a pull request
// takes some 30 KB, most of it two descriptions of at most 64 KB each.
const maxDelivery = 2 << 20

// delivered is the answer to a webhook.
type delivered struct {
	// Taken: the event says something that matters here.
	Taken    bool               `json:"taken"`
	Replayed bool               `json:"replayed"`
	Sessions []deliveredSession `json:"sessions"`
}

type deliveredSession struct {
	SessionID  string `json:"session_id"`
	Terminated bool   `json:"terminated"`
	// Open is another pull request, as owner/name#number, because of which the
	// session stays.
	Open string `json:"open,omitempty"`
}

// github takes one delivery of GitHub's webhooks. It records facts only.
func (s *server) github(w http.ResponseWriter, r *http.Request) {
	answer := func(status int, message string) {
		sayJSON(w, status, printedError{errorObject{Code: "webhook", Message: message, Retryable: status >= http.StatusInternalServerError}})
	}
	if len(s.secret) == 0 {
		answer(http.StatusNotFound, "This server takes no webhooks: it has no secret for them; set UNWIND_WEBHOOK_SECRET_FILE.")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxDelivery))
	if err != nil {
		status := http.StatusBadRequest
		if errors.As(err, new(*http.MaxBytesError)) {
			status = http.StatusRequestEntityTooLarge
		}
		answer(status, "The delivery could not be read, or is too long.")
		return
	}
	if !forge.Signed(body, r.Header.Get("X-Hub-Signature-256"), s.secret) {
		s.log.Warn("A webhook with a wrong signature was refused", "from", r.RemoteAddr)
		answer(http.StatusUnauthorized, "The signature is wrong: both sides need the same secret.")
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		answer(http.StatusUnsupportedMediaType, "Set the webhook's content type to application/json.")
		return
	}
	s.take(w, r, body, answer)
}

func (s *server) take(w http.ResponseWriter, r *http.Request, body []byte, answer func(int, string)) {
	name, id := r.Header.Get("X-GitHub-Event"), r.Header.Get("X-GitHub-Delivery")
	event, relevant, err := forge.GitHub(name, body)
	switch {
	case err != nil:
		answer(http.StatusBadRequest, sentence(err.Error()))
		return
	case relevant && id == "":
		answer(http.StatusBadRequest, "The delivery has no X-GitHub-Delivery.")
		return
	case !relevant:
		sayJSON(w, http.StatusOK, delivered{Sessions: []deliveredSession{}})
		return
	}
	digest := sha256.Sum256(body)
	outcome, err := s.facts.ObserveForge(r.Context(), store.ForgeEvent{
		DeliveryID: id, Digest: hex.EncodeToString(digest[:]), Event: name,
		Kind: event.Kind, Repository: event.Repository, Number: event.Number,
		HeadRemote: event.HeadRemote, Branch: event.Branch, Closed: event.Closed, Source: event.Source, At: event.At,
	})
	if err != nil {
		s.fail(w, err)
		return
	}
	said := delivered{Taken: !outcome.Replayed, Replayed: outcome.Replayed, Sessions: []deliveredSession{}}
	for _, session := range outcome.Sessions {
		said.Sessions = append(said.Sessions, deliveredSession{SessionID: session.ID, Terminated: session.Terminated, Open: session.Open})
		if session.Terminated {
			s.log.Info("Session terminated", "session", session.ID, "source", event.Source, "repository", event.Repository, "number", event.Number)
		}
	}
	sayJSON(w, http.StatusOK, said)
}
