package worktree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"unwind/internal/lock"
	"unwind/teardown"
)

// Remove removes a worktree if nothing in it could be lost, or finishes what an
// earlier attempt began. The caller holds the path lock of CanonicalPath; Remove
// takes the repository's itself.
//
// What keeps the worktree is a report, not an error. An error is one of the
// journal's, passed on as it is, or says that ctx ended (timeout); the report
// is valid then too. After Remove has returned, the caller writes down the
// disposition and whether Report.Quarantine is left, together.
func (e *Engine) Remove(ctx context.Context, target Target, journal Journal, hooks Hooks) (Report, error) {
	if err := e.answers(ctx, target); err != nil {
		return Report{Path: target.Path}.orFailed(err), ignoreUnlessEnded(ctx, err)
	}
	return e.remove(ctx, target, journal, hooks, family{}, false)
}

func (e *Engine) remove(ctx context.Context, target Target, journal Journal, hooks Hooks, family family, callers bool) (Report, error) {
	r := &removal{engine: e, target: target, journal: journal, hooks: hooks, family: family, callers: callers,
		name: hooks.Name, report: Report{Path: target.Path}}
	if teardown.ValidateID(r.name) != nil {
		r.name = randomName()
	}
	err := r.run(ctx)
	if err != nil && r.report.Disposition == "" {
		r.addError(err)
		r.report.conclude(teardown.DispositionFailed)
	}
	if r.report.Disposition == teardown.DispositionRemoved {
		r.report.Message = printable(target.Path) + " was removed"
		if r.report.SavedRef != "" {
			r.report.Message += "; its uncommitted work is saved in " + r.report.SavedRef
		}
	}
	return r.report, err
}

// removal is one attempt at one worktree.
type removal struct {
	engine  *Engine
	target  Target
	journal Journal
	hooks   Hooks
	family  family
	callers bool
	name    string

	path   string
	place  place
	report Report
	// quarantine is where the directory is, or was, moved aside.
	quarantine string
	// steady is what the look before the rename came to, if that holds on.
	steady *steady
	// listed is what git told that look of the commit.
	listed *listing
	// owned is the lock on the admin directory.
	owned *lock.Held
}

func (r *removal) run(ctx context.Context) error {
	path, err := CanonicalPath(r.target.Path)
	if err != nil {
		return r.begin(ctx)
	}
	r.path = path
	defer func() { r.owned.Release() }()
	if err := r.own(ctx, adminDirOf(r.target, path)); err != nil {
		return r.stop(ctx, err)
	}
	if err := r.finishEarlier(ctx); err != nil {
		return err
	}
	r.report.SavedRef = r.journal.SavedRef()
	quarantine, condemned := r.journal.Quarantine()
	if quarantine == "" {
		if quarantine, condemned, err = recorded(r.target, path); err != nil {
			return r.stop(ctx, err)
		}
	}
	if quarantine == "" {
		return r.begin(ctx)
	}
	if err := checkQuarantine(quarantine, path); err != nil {
		return err
	}
	r.quarantine = quarantine
	switch {
	case condemned:
		return r.resumeCondemned(ctx)
	case !isDirectory(quarantine):
		return r.begin(ctx)
	}
	// The intent may be written in the worktree's own journal only.
	if err := r.journal.MovingAside(ctx, quarantine); err != nil {
		return err
	}
	return r.decide(ctx, nil)
}

// own takes the admin directory for this removal alone: other users, and other
// state directories, have path locks of their own.
func (r *removal) own(ctx context.Context, admin string) error {
	if admin == "" {
		return nil
	}
	held, err := lock.Directory(ctx, admin, lock.Wait{Limit: r.engine.lockWait(), Each: func() {
		r.hooks.report(teardown.Progress{Step: "waiting for the worktree"})
	}})
	if err != nil || held == nil {
		return ignoreAbsent(err)
	}
	r.owned = held
	r.hooks.Inherit = append(slices.Clone(r.hooks.Inherit), held.File())
	return nil
}

// stop concludes from an error before anything was touched.
func (r *removal) stop(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return stopped(ctx.Err())
	}
	r.addError(err)
	r.report.conclude(teardown.DispositionFailed)
	return nil
}

// finishEarlier deletes what an earlier removal by hand at the same path had
// condemned, when another worktree is registered at the path by now.
func (r *removal) finishEarlier(ctx context.Context) error {
	repo, err := repositoryOf(r.target, r.path)
	if err != nil {
		return nil
	}
	entries, err := repo.registrations()
	if err != nil || len(at(entries, r.path)) == 0 {
		return nil
	}
	for _, entry := range condemnedAside(entries, r.path, "") {
		if found, err := readRecord(entry.admin, r.path); err != nil || !found.Condemned {
			continue
		}
		earlier := &removal{engine: r.engine, target: Target{Repository: repo.common, Path: r.path}, hooks: r.hooks, path: r.path,
			name: randomName(), report: Report{Path: r.path}, quarantine: entry.path}
		if err := earlier.own(ctx, entry.admin); err != nil {
			continue
		}
		earlier.place = earlier.condemnedPlace()
		err := earlier.finish(ctx, 0)
		earlier.owned.Release()
		if err != nil {
			return err
		}
		if earlier.report.Disposition != teardown.DispositionRemoved {
			r.report.Notes = append(r.report.Notes, earlier.report.Message)
		}
	}
	return nil
}

// begin looks at the worktree where it is, and moves it aside if it is clean.
func (r *removal) begin(ctx context.Context) error {
	path, stop := r.engine.checkTarget(r.target.Path)
	if stop != nil {
		r.report.halted(stop)
		return nil
	}
	r.path = path
	if r.place, stop = identify(r.target, path, path); stop != nil {
		r.report.locate(r.place)
		r.report.halted(stop)
		if stop.disposition == teardown.DispositionAlreadyGone {
			return r.clearRemains(ctx)
		}
		return r.engine.measure(ctx, &r.report, path, stop, r.hooks)
	}
	r.report.locate(r.place)
	if r.place.missing() {
		return r.dropMissing(ctx)
	}
	unmark(r.place.admin)
	began := time.Now()
	seen, err := r.look(path).run(ctx)
	if err != nil {
		return err
	}
	r.report.record(seen)
	r.steady, r.listed = seen.steady(began, r.engine.coarse()), seen.listed
	if len(seen.findings) > 0 {
		if saved, err := r.save(ctx, seen); !saved || err != nil {
			return err
		}
	}
	// While it is in quarantine, somebody could drop its registration.
	if kept, err := r.rescue(ctx, seen); !kept || err != nil {
		return err
	}
	if moved, err := r.moveAside(ctx); !moved || err != nil {
		return err
	}
	return r.decide(ctx, &r.place)
}

// save saves what was found, if that was asked for and is all that keeps the
// worktree. If not, it concludes.
func (r *removal) save(ctx context.Context, seen seen) (saved bool, err error) {
	if r.hooks.SaveRef == "" {
		r.report.conclude(teardown.DispositionPreserved)
		return false, nil
	}
	r.report.Findings = unsavableFirst(seen.findings)
	if !seen.wouldSave() {
		r.report.noteUnsavable(seen)
		r.report.conclude(teardown.DispositionPreserved)
		return false, nil
	}
	r.engine.reach("saving")
	at, err := r.engine.save(ctx, r.place, seen.contents, r.hooks)
	switch {
	case err != nil && ctx.Err() != nil:
		return false, stopped(ctx.Err())
	case errors.Is(err, errChanged):
		r.report.Notes = append(r.report.Notes, "files changed while they were saved")
		r.report.conclude(teardown.DispositionPreserved)
		return false, nil
	case err != nil:
		r.report.Findings = nil
		r.addError(saveError(ctx, err))
		r.report.conclude(teardown.DispositionFailed)
		return false, nil
	}
	r.report.SavedRef, r.report.Findings = at.Ref, nil
	if err := r.journal.Saved(ctx, at.Ref); err != nil {
		return false, err
	}
	r.engine.reach("saved")
	return true, nil
}

// isSaved reports whether what the second look found is exactly what was saved.
func (r *removal) isSaved(ctx context.Context, seen seen) (bool, error) {
	if r.hooks.SaveRef == "" {
		return false, nil
	}
	r.report.Findings = unsavableFirst(seen.findings)
	if !seen.wouldSave() {
		r.report.noteUnsavable(seen)
		return false, nil
	}
	taken, err := r.engine.capture(ctx, r.place, seen.contents, r.hooks)
	if errors.Is(err, errChanged) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	found, err := findSaved(ctx, r.engine.saver(r.place.admin, r.hooks), r.hooks.SaveRef, taken)
	if err != nil || found.Ref == "" {
		return false, err
	}
	r.report.SavedRef, r.report.Findings = found.Ref, nil
	return true, nil
}

// rescue makes refs for the commits that only this worktree reaches. If it cannot,
// it concludes.
func (r *removal) rescue(ctx context.Context, seen seen) (kept bool, err error) {
	if len(seen.lost.all()) == 0 {
		return true, nil
	}
	rescued, err := r.engine.keepCommits(ctx, r.place, r.name, r.hooks)
	r.report.Rescued = append(r.report.Rescued, rescued...)
	if err == nil {
		return true, nil
	}
	if ctx.Err() != nil {
		return false, stopped(ctx.Err())
	}
	r.report.Findings = nil
	r.addError(err)
	r.report.conclude(teardown.DispositionFailed)
	return false, nil
}

func (r *removal) look(dir string) *look {
	return &look{engine: r.engine, hooks: r.hooks, place: r.place, dir: dir, family: r.family, callers: r.callers, first: dir == r.path, last: dir == r.quarantine, steady: r.steady, listed: r.listed}
}

// moveAside is step 9: after it, whoever uses the path gets an error, and nobody
// can write into the directory by its name.
func (r *removal) moveAside(ctx context.Context) (moved bool, err error) {
	quarantine, err := freeQuarantine(r.path, r.name)
	if err != nil {
		r.fail("a place to move it to was not found", err)
		return false, nil
	}
	if err := r.journal.MovingAside(ctx, quarantine); err != nil {
		return false, err
	}
	r.engine.reach("moving aside")
	if err := mark(r.place.admin, quarantine); err != nil {
		r.report.Findings = []Finding{markError(r.place.admin, err)}
		r.report.conclude(teardown.DispositionPreserved)
		return false, nil
	}
	r.engine.reach("marked")
	if err := renameNoReplace(r.path, quarantine); err != nil {
		unmark(r.place.admin)
		r.fail("it could not be moved aside", err)
		return false, nil
	}
	r.quarantine = quarantine
	r.engine.reach("moved aside")
	return true, nil
}

// decide looks again at the quarantined directory and deletes it or puts it
// back. before is what was looked at before the rename, nil after a crash.
func (r *removal) decide(ctx context.Context, before *place) error {
	place, stop := identify(r.target, r.path, r.quarantine)
	if stop == nil && before != nil && (idOf(place.info) != idOf(before.info) || place.admin != before.admin || !place.entry.same(before.entry)) {
		stop = keep(teardown.CodeIdentityMismatch, r.path, "another directory was put at the path while it was looked at")
	}
	if stop != nil {
		r.report.Findings = nil
		return r.abandon(stop.disposition, stop.finding)
	}
	place.aside = r.quarantine
	r.place = place
	r.report.locate(place)
	unanchored := r.report.Unanchored
	seen, err := r.look(r.quarantine).run(ctx)
	if err != nil {
		return r.abandonFor(err)
	}
	r.report.record(seen)
	r.place.branch = seen.branch
	r.report.Unanchored = append(unanchored, r.report.Unanchored...)
	if len(seen.findings) > 0 {
		saved, err := r.isSaved(ctx, seen)
		switch {
		case err != nil && ctx.Err() != nil:
			return r.abandonFor(stopped(ctx.Err()))
		case err != nil:
			r.report.Findings = nil
			r.addError(saveError(ctx, err))
			return r.abandon("")
		case !saved:
			return r.abandon("")
		}
	}
	r.engine.reach("looked again")
	if len(seen.lost.all()) > 0 {
		var rescued []string
		rescued, err = r.engine.keepCommits(ctx, place, r.name, r.hooks)
		r.report.Rescued = append(r.report.Rescued, rescued...)
		if err != nil && ctx.Err() == nil {
			r.addError(err)
			return r.abandon("")
		}
	}
	r.engine.reach("rescued")
	if found := r.changedState(); len(found) > 0 {
		r.report.Findings = nil
		return r.abandon("", found...)
	}
	if err == nil {
		err = r.journal.Condemned(ctx)
	}
	if err != nil {
		return r.abandonFor(err)
	}
	r.engine.reach("condemned")
	if err := release(place.admin, r.quarantine, seen.head); err != nil {
		// It is free when all is deleted, then.
		r.report.Notes = append(r.report.Notes, err.Error())
	}
	r.engine.reach("released")
	return r.finish(ctx, seen.entries)
}

// changedState answers what was done to the worktree's administration, or with
// its path, during the look.
func (r *removal) changedState() []Finding {
	found, err := adminState(r.place.admin)
	if err != nil {
		found = append(found, finding(teardown.CodeCannotInspect, "the worktree's administration could not be inspected", err.Error()))
	}
	if !isInstance(r.place.admin, r.place.entry) {
		found = append(found, finding(teardown.CodeIdentityMismatch, "the worktree was registered anew while it was looked at", r.path))
	}
	if claimedAt(r.path, r.place.admin) {
		found = append(found, claimedFinding(r.path))
	}
	return found
}

// abandon puts the directory back and concludes from the findings.
func (r *removal) abandon(disposition teardown.Disposition, findings ...Finding) error {
	r.report.Findings = append(r.report.Findings, findings...)
	err := putBack(r.quarantine, r.path)
	if err == nil {
		unmark(r.place.admin)
	} else {
		r.report.Quarantine = r.quarantine
		r.report.Notes = append(r.report.Notes, err.Error())
	}
	var failed *teardown.Error
	if errors.As(err, &failed) && failed.Retryable {
		r.report.Findings = append([]Finding{finding(failed.Code, failed.Message, r.quarantine)}, r.report.Findings...)
		disposition = ""
	}
	r.report.conclude(teardown.DispositionPreserved)
	if disposition != "" {
		r.report.Disposition = disposition
		r.report.describe()
	}
	return nil
}

// abandonFor puts the directory back and passes the error on.
func (r *removal) abandonFor(err error) error {
	r.report.Findings = nil
	r.addError(err)
	_ = r.abandon("")
	return err
}

// finish deletes what is condemned, and then its registration. entries is how
// many files and directories there are, 0 if that is not known.
func (r *removal) finish(ctx context.Context, entries int64) error {
	if claimedAt(r.path, r.place.admin) {
		f := claimedFinding(r.path)
		f.Code, f.Retryable = teardown.CodePathOccupied, true
		r.report.Findings, r.report.Quarantine = []Finding{f}, r.quarantine
		r.report.conclude(teardown.DispositionFailed)
		return nil
	}
	progress := func(p teardown.Progress) {
		p.TotalFiles = entries
		r.hooks.report(p)
	}
	err := emptyDirectory(ctx, r.quarantine, observer{r.engine.patience(), progress, r.engine.reach})
	if err != nil {
		r.report.Quarantine = r.quarantine
		if ctx.Err() != nil {
			return stopped(ctx.Err())
		}
		r.fail("it was moved aside and could not be deleted whole; the next attempt goes on", err)
		return nil
	}
	r.engine.reach("deleted")
	if err := r.dropEntry(ctx, teardown.DispositionRemoved); err != nil || r.report.Disposition != teardown.DispositionRemoved {
		r.report.Quarantine = r.quarantine
		return err
	}
	return r.deleteRemains(ctx, r.quarantine)
}

// deleteRemains deletes what leads to the registration, now that this is gone.
func (r *removal) deleteRemains(ctx context.Context, quarantine string) error {
	if err := deleteDirectory(ctx, quarantine, observer{r.engine.patience(), r.hooks.report, func(string) {}}); err != nil {
		r.report.Quarantine = quarantine
		if ctx.Err() != nil {
			return stopped(ctx.Err())
		}
		r.fail("its empty directory could not be deleted; the next attempt goes on", err)
		return nil
	}
	r.engine.reach("finished")
	return nil
}

// clearRemains finishes removals that were cut off after the registration was
// dropped.
func (r *removal) clearRemains(ctx context.Context) error {
	for _, quarantine := range quarantinesAt(r.path) {
		if !isRemains(quarantine) {
			continue
		}
		named, err := readGitFile(filepath.Join(quarantine, ".git"))
		if err == nil && isDirectory(named) {
			continue
		}
		if err == nil {
			if repo, err := newRepository(filepath.Dir(filepath.Dir(named))); err == nil {
				sweep := func(Hooks) error { return r.engine.sweep(ctx, repo) }
				if err := r.engine.locked(ctx, repo, r.hooks, sweep); err != nil {
					r.report.Notes = append(r.report.Notes, err.Error())
				}
			}
		}
		if err := r.deleteRemains(ctx, quarantine); err != nil {
			return err
		}
	}
	return nil
}

func (r *removal) dropEntry(ctx context.Context, disposition teardown.Disposition) error {
	rescued, err := r.engine.drop(ctx, r.place, r.name, r.hooks)
	r.report.Rescued = append(r.report.Rescued, rescued...)
	if ctx.Err() != nil && err != nil {
		return stopped(ctx.Err())
	}
	if err != nil {
		r.report.Findings = nil
		r.addError(err)
		r.report.conclude(teardown.DispositionFailed)
		return nil
	}
	r.engine.reach("dropped")
	r.report.conclude(disposition)
	return nil
}

// dropMissing drops the registration of a directory that is gone.
func (r *removal) dropMissing(ctx context.Context) error {
	seen, err := r.engine.lookMissing(ctx, r.place, r.hooks)
	if err != nil {
		return err
	}
	r.report.record(seen)
	if len(seen.findings) > 0 {
		r.report.conclude(teardown.DispositionPreserved)
		return nil
	}
	return r.dropEntry(ctx, teardown.DispositionAlreadyGone)
}

// resumeCondemned only deletes: a half-deleted directory says nothing any more.
func (r *removal) resumeCondemned(ctx context.Context) error {
	if isDirectory(r.quarantine) {
		r.place = r.condemnedPlace()
		return r.finish(ctx, 0)
	}
	// Whether the fact was written may have been unknown when the directory was
	// put back. Then it is at its path, whole.
	if place, stop := identify(r.target, r.path, r.path); stop == nil && !place.missing() {
		return r.begin(ctx)
	}
	r.place = r.condemnedPlace()
	return r.dropEntry(ctx, teardown.DispositionRemoved)
}

// condemnedPlace finds the registration of a directory that is partly or wholly
// deleted. Without one there is nothing left to drop.
func (r *removal) condemnedPlace() place {
	p := place{path: r.path, aside: r.quarantine}
	repo, err := repositoryOf(r.target, r.path)
	if err != nil {
		return p
	}
	p.repo = repo
	if p.registered, err = repo.registrations(); err != nil {
		return p
	}
	for _, entry := range append(at(p.registered, r.quarantine), at(p.registered, r.path)...) {
		nonce, err := readNonce(entry.admin)
		if p.admin == "" && err == nil && (nonce == r.target.Nonce || r.target.Nonce == "") {
			p.admin, p.nonce = entry.admin, nonce
			p.entry, _ = instanceOf(entry.admin)
		}
	}
	return p
}

func (r *removal) fail(what string, err error) {
	r.report.Findings = []Finding{finding(errnoCode(err), what+": "+err.Error(), r.path)}
	r.report.conclude(teardown.DispositionFailed)
}

func (r *removal) addError(err error) {
	f := finding(teardown.CodeGitFailed, err.Error(), r.path)
	var coded *teardown.Error
	var git *GitError
	switch {
	case errors.As(err, &coded):
		f.Code, f.Retryable = coded.Code, coded.Retryable
	case !errors.As(err, &git):
		f.Code = errnoCode(err)
	}
	r.report.Findings = append(r.report.Findings, f)
}

// repositoryOf finds the repository of a target whose directory may be moved
// aside.
func repositoryOf(target Target, path string) (repository, error) {
	if target.Repository != "" {
		return findRepository(target.Repository)
	}
	for _, dir := range append([]string{path}, quarantinesAt(path)...) {
		admin, err := readGitFile(filepath.Join(dir, ".git"))
		if err != nil {
			continue
		}
		if repo, err := findRepository(admin); err == nil {
			return repo, nil
		}
	}
	return repository{}, errNoRepository
}

func quarantinesAt(path string) []string {
	names, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil
	}
	var found []string
	for _, name := range names {
		if name.IsDir() && isQuarantineOf(name.Name(), filepath.Base(path)) {
			found = append(found, filepath.Join(filepath.Dir(path), name.Name()))
		}
	}
	return found
}

func (e *Engine) reach(step string) {
	if e.reached != nil {
		e.reached(step)
	}
}

func (e *Engine) lockWait() time.Duration {
	if e.LockWait <= 0 {
		return DefaultLockWait
	}
	return e.LockWait
}
