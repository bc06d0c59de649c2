package worktree

import (
	"fmt"
	"slices"

	"unwind/teardown"
)

// finding makes a Finding of what was found, bounded and printable.
func finding(code teardown.Code, note string, found ...string) Finding {
	f := Finding{Code: code, Note: note, Total: len(found), Retryable: retryable(code)}
	for _, path := range found[:min(len(found), teardown.MaxDetails)] {
		f.Paths = append(f.Paths, printable(path))
	}
	return f
}

func retryable(code teardown.Code) bool {
	switch code {
	case teardown.CodeInUse, teardown.CodeIndexLocked, teardown.CodePermissionDenied, teardown.CodeIOError,
		teardown.CodeTimeout, teardown.CodeGitFailed, teardown.CodeBusy, teardown.CodeDatabaseUnavailable:
		return true
	}
	return false
}

// conclude fills in the verdict: that of the first finding, or otherwise if
// there is none.
func (r *Report) conclude(otherwise teardown.Disposition) {
	if len(r.Findings) == 0 {
		r.Disposition = otherwise
	} else if first := r.Findings[0]; first.Retryable {
		r.Disposition = teardown.DispositionFailed
	} else {
		r.Disposition = teardown.DispositionPreserved
	}
	r.describe()
}

// foreseeEnd leaves out the processes that are going to be ended.
func (r *Report) foreseeEnd(s *seen) {
	left := slices.DeleteFunc(slices.Clone(s.findings), func(f Finding) bool { return f.Code == teardown.CodeInUse })
	if len(left) < len(s.findings) {
		r.Notes = append(r.Notes, "it is in use now, as is to be expected while the runtime is alive")
	}
	s.findings, r.Findings = left, left
}

// foreseeSaving makes the report of an inspection that of a removal which saves
// what was found first.
func (r *Report) foreseeSaving(s seen) {
	r.Findings = unsavableFirst(r.Findings)
	if len(r.Findings) == 0 {
		return
	}
	if !s.wouldSave() {
		r.noteUnsavable(s)
		return
	}
	for _, line := range details(r.Findings, "") {
		r.Notes = append(r.Notes, "it would be saved first: "+line)
	}
	r.Findings = nil
}

// noteUnsavable says why changes that a commit could hold cannot be saved.
func (r *Report) noteUnsavable(s seen) {
	if s.contents == nil {
		return
	}
	if err := s.contents.unsavable(); err != nil {
		r.Notes = append(r.Notes, "the changes cannot be saved: "+err.Error())
	}
}

// halted takes over a verdict.
func (r *Report) halted(stop *halt) {
	r.Findings = append(r.Findings, stop.finding)
	r.Disposition = stop.disposition
	r.describe()
}

// describe fills in what follows from Disposition and Findings.
func (r *Report) describe() {
	r.Code, r.Retryable, r.Details = "", false, nil
	if len(r.Findings) > 0 {
		r.Code = r.Findings[0].Code
		r.Retryable = r.Findings[0].Retryable && r.Disposition == teardown.DispositionFailed
	}
	r.Details = details(r.Findings, r.Code)
	r.Message = r.sentence()
}

func details(findings []Finding, code teardown.Code) []string {
	var lines []string
	total := 0
	for _, f := range findings {
		total += f.Total
		for _, path := range f.Paths {
			if f.Code != code {
				path = string(f.Code) + ": " + path
			}
			lines = append(lines, path)
		}
	}
	if len(lines) > teardown.MaxDetails {
		lines = lines[:teardown.MaxDetails]
	}
	if total > len(lines) {
		lines = append(lines, fmt.Sprintf("and %d more", total-len(lines)))
	}
	return lines
}

func (r *Report) sentence() string {
	what := printable(r.Path)
	why := ""
	if len(r.Findings) > 0 {
		f := r.Findings[0]
		why = ": " + f.Note
		if more := len(r.Findings) - 1; more > 0 {
			why += fmt.Sprintf(" (and %d more findings)", more)
		}
	}
	where := ""
	if r.Quarantine != "" {
		where = "; it is at " + printable(r.Quarantine)
	}
	switch r.Disposition {
	case teardown.DispositionRemoved:
		return what + " is clean"
	case teardown.DispositionAlreadyGone:
		return what + " is gone already" + why
	case teardown.DispositionRefused:
		return what + " is refused" + why
	case teardown.DispositionPreserved:
		return what + " is kept" + why + where
	}
	return what + " could not be removed yet" + why + where
}
