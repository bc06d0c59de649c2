package main

import (
	"encoding/json"
	"net/http"
	"strconv"

	"unwind/internal/store"
	"unwind/teardown"
)

// sessionsPage is a page of sessions in the API.
type sessionsPage struct {
	Sessions []summaryReport `json:"sessions"`
	// Next is what to give as "after" for the next page; "" on the last.
	Next string `json:"next"`
}

const maxPage = 500

func (s *server) listSessions(w http.ResponseWriter, r *http.Request) {
	filter, err := filterOf(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	found, err := s.facts.Sessions(r.Context(), filter)
	if err != nil {
		s.fail(w, err)
		return
	}
	page := sessionsPage{Sessions: []summaryReport{}}
	for _, summary := range found {
		page.Sessions = append(page.Sessions, summaryOf(summary))
	}
	if len(found) == filter.Limit {
		page.Next = found[len(found)-1].ID
	}
	sayJSON(w, http.StatusOK, page)
}

// filterOf reads what a page of sessions is asked for with.
func filterOf(r *http.Request) (store.SessionFilter, error) {
	q := r.URL.Query()
	o := listOptions{State: q.Get("state"), Reason: q.Get("reason"), Host: q.Get("host")}
	if err := o.check(); err != nil {
		return store.SessionFilter{}, err
	}
	filter := store.SessionFilter{State: store.SessionState(o.State), Host: o.Host, Reason: o.Reason, After: q.Get("after"), Limit: 100}
	if given := q.Get("limit"); given != "" {
		n, err := strconv.Atoi(given)
		if err != nil || n < 1 || n > maxPage {
			return filter, usageError("limit is a number from 1 to %d", maxPage)
		}
		filter.Limit = n
	}
	if filter.After != "" {
		return filter, teardown.ValidateID(filter.After)
	}
	return filter, nil
}

func (s *server) showSession(w http.ResponseWriter, r *http.Request) {
	seen, err := s.lookAt(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	report := seen.report()
	report.Live = nil // the API answers the facts, without asking Temporal
	sayJSON(w, http.StatusOK, report)
}

func (s *server) lookAt(r *http.Request) (sight, error) {
	id := r.PathValue("id")
	if err := teardown.ValidateID(id); err != nil {
		return sight{}, err
	}
	return s.facts.look(r.Context(), id)
}

// statusOf is the HTTP status for an error.
func statusOf(err error) int {
	switch exitOf(err) {
	case exitUsage:
		return http.StatusBadRequest
	case exitUnavailable, exitRetryable:
		return http.StatusServiceUnavailable
	case exitRefused:
		if teardown.CodeOf(err) == teardown.CodeSessionNotFound {
			return http.StatusNotFound
		}
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}

func (s *server) fail(w http.ResponseWriter, err error) {
	status := statusOf(err)
	if status >= http.StatusInternalServerError {
		s.log.Warn("A request could not be answered", "error", brief(err))
	}
	object := errorObjectOf(err)
	object.Message = brief(err)
	sayJSON(w, status, printedError{object})
}

func sayJSON(w http.ResponseWriter, status int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// Who no longer listens is told nothing.
	_ = json.NewEncoder(w).Encode(object)
}
