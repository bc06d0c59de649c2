package worktree

import (
	"context"
	"fmt"
	"os"

	"unwind/teardown"
)

// Inspect looks at a worktree and changes nothing. The report says everything
// that was found, in the policy's order, and what a removal would come to. The
// error, always of code timeout, means that ctx ended first.
func (e *Engine) Inspect(ctx context.Context, target Target) (Report, error) {
	if err := e.answers(ctx, target); err != nil {
		return Report{Path: target.Path}.orFailed(err), ignoreUnlessEnded(ctx, err)
	}
	return e.inspect(ctx, target, family{}, Hooks{}, false)
}

func (e *Engine) inspect(ctx context.Context, target Target, family family, hooks Hooks, callers bool) (Report, error) {
	report := Report{Path: target.Path}
	path, stop := e.checkTarget(target.Path)
	if stop != nil {
		report.halted(stop)
		return report, nil
	}
	place, stop := identify(target, path, path)
	report.locate(place)
	if stop != nil {
		report.halted(stop)
		return report, e.measure(ctx, &report, path, stop, hooks)
	}
	if place.missing() {
		return report, e.inspectMissing(ctx, &report, place, hooks)
	}
	look := look{engine: e, hooks: hooks, place: place, dir: path, family: family, callers: callers}
	seen, err := look.run(ctx)
	if err != nil {
		return report, err
	}
	report.record(seen)
	if hooks.RuntimeEnds {
		report.foreseeEnd(&seen)
	}
	if hooks.SaveRef != "" {
		report.foreseeSaving(seen)
	}
	report.conclude(teardown.DispositionRemoved)
	return report, nil
}

// locate fills in what is known from the place.
func (r *Report) locate(p place) {
	r.Repository = p.repo.name()
	if p.admin != "" {
		r.Branch = branchOf(p.admin)
	}
}

func (r *Report) record(s seen) {
	r.Findings, r.Notes = s.findings, s.notes
	r.Head, r.Branch = s.head, s.branch
	r.Files, r.Bytes = s.files, s.bytes
	r.Unanchored = s.lost.all()
}

// measure says how much is held by a directory that is kept because of what it
// is. It judges nothing.
func (e *Engine) measure(ctx context.Context, report *Report, path string, stop *halt, hooks Hooks) error {
	info, err := os.Lstat(path)
	if stop.disposition != teardown.DispositionPreserved || err != nil || !info.IsDir() {
		return nil
	}
	found, err := e.walk(ctx, path, idOf(info), nil, hooks)
	if ctx.Err() != nil {
		return stopped(ctx.Err())
	}
	if err == nil {
		report.Files, report.Bytes = found.files, found.bytes
	}
	return nil
}

// inspectMissing judges a registration whose directory is gone.
func (e *Engine) inspectMissing(ctx context.Context, report *Report, p place, hooks Hooks) error {
	seen, err := e.lookMissing(ctx, p, hooks)
	if err != nil {
		return err
	}
	report.record(seen)
	report.conclude(teardown.DispositionAlreadyGone)
	return nil
}

// lookMissing: steps 4 and 8 of the policy, and what only the index holds.
func (e *Engine) lookMissing(ctx context.Context, p place, hooks Hooks) (seen, error) {
	s := seen{branch: branchOf(p.admin)}
	for _, quarantine := range quarantinesAt(p.path) {
		switch {
		case claimedAt(quarantine, p.admin):
			s.add(busyFinding(quarantine))
		case !isRemains(quarantine):
			s.add(keepForgotten(p.path, []string{quarantine}).finding)
		}
	}
	state, err := adminState(p.admin)
	s.add(state...)
	if err := s.addError(ctx, err, "the worktree's administration"); err != nil {
		return seen{}, err
	}
	git := e.gitFor(p.admin, hooks)
	head, err := headCommit(ctx, git, p.admin, p.repo.common)
	if err != nil {
		return s, s.addError(ctx, err, "its HEAD")
	}
	s.head = head
	staged, err := (&contents{git: git, head: head}).stagedOnly(ctx)
	if len(staged) > 0 {
		s.add(finding(teardown.CodeStaged, "the directory is gone, but its index holds staged changes that are nowhere else", staged...))
	}
	if err := s.addError(ctx, err, "the index"); err != nil {
		return seen{}, err
	}
	lost, err := commits{git: git, admin: p.admin, repo: p.repo}.look(ctx)
	if len(lost.tips) > 0 {
		s.add(finding(teardown.CodeHiddenData, fmt.Sprintf("the directory is gone, but its HEAD or refs are the last to reach these commits; `git branch NAME %s` keeps them", lost.tips[0]), lost.tips...))
	}
	s.lost = lost
	return s, s.addError(ctx, err, "what its commits are reached by")
}

func (h Hooks) report(p teardown.Progress) {
	if h.Progress != nil {
		h.Progress(p)
	}
}

func (e *Engine) ignored() IgnoredPolicy {
	if e.Ignored == "" {
		return IgnoredKeepPrecious
	}
	return e.Ignored
}
