package worktree

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"unwind/teardown"
)

// journalFile lies in the admin directory while a removal by hand is under way.
const journalFile = "unwind-removal"

// record is the content of the journal file. Paths may hold any bytes, which
// JSON strings may not, so it is written as base64.
type record struct {
	Quarantine []byte `json:"quarantine"`
	Condemned  bool   `json:"condemned"`
	Saved      string `json:"saved,omitempty"`
	// Directory is the worktree's directory, Entry the admin directory. A journal
	// says nothing about others, which may have come to the same paths by now.
	Directory instance `json:"directory"`
	Entry     instance `json:"entry"`
}

// AdminJournal is the Journal of a removal by hand, without a database: a file
// of ours in the worktree's admin directory, which goes away with it.
type AdminJournal struct {
	path   string
	admin  string // "" if the worktree has none
	entry  instance
	record record
}

// AdminJournal reads what an earlier attempt wrote. A target without an admin
// directory has an empty journal, which cannot be written.
func (e *Engine) AdminJournal(target Target) (*AdminJournal, error) {
	path, err := CanonicalPath(target.Path)
	if err != nil {
		return nil, err
	}
	journal := &AdminJournal{path: path, admin: adminDirOf(target, path)}
	if journal.admin == "" {
		return journal, nil
	}
	if journal.entry, err = instanceOf(journal.admin); err != nil {
		return journal, ignoreAbsent(err)
	}
	journal.record, err = readRecord(journal.admin, path)
	return journal, err
}

// Quarantine is the Journal's.
func (j *AdminJournal) Quarantine() (path string, condemned bool) {
	return string(j.record.Quarantine), j.record.Condemned
}

// SavedRef is the Journal's.
func (j *AdminJournal) SavedRef() string { return j.record.Saved }

// Saved is the Journal's.
func (j *AdminJournal) Saved(_ context.Context, ref string) error {
	r := j.record
	r.Saved = ref
	return j.write(r)
}

// MovingAside is the Journal's.
func (j *AdminJournal) MovingAside(_ context.Context, quarantinePath string) error {
	dir := quarantinePath
	if !isDirectory(dir) {
		dir = j.path
	}
	directory, err := instanceOf(dir)
	if err != nil {
		return j.failed(err)
	}
	return j.write(record{Quarantine: []byte(quarantinePath), Saved: j.record.Saved, Directory: directory})
}

// Condemned is the Journal's.
func (j *AdminJournal) Condemned(context.Context) error {
	r := j.record
	r.Condemned = true
	return j.write(r)
}

// Clear is called when the directory is back at its path.
func (j *AdminJournal) Clear() error {
	j.record = record{}
	if j.admin == "" || !isInstance(j.admin, j.entry) {
		return nil
	}
	var failed error
	for _, name := range []string{journalFile, journalFile + draftMark} {
		failed = errors.Join(failed, ignoreAbsent(os.Remove(filepath.Join(j.admin, name))))
	}
	return failed
}

func (j *AdminJournal) write(r record) error {
	if j.admin == "" {
		return &teardown.Error{Code: teardown.CodeInternal, Message: "the worktree has no admin directory to keep its journal in"}
	}
	if !isInstance(j.admin, j.entry) {
		return j.failed(errChanged)
	}
	r.Entry = j.entry
	content, err := json.Marshal(r)
	if err == nil {
		err = writeDurably(filepath.Join(j.admin, journalFile), content)
	}
	if err != nil {
		return j.failed(err)
	}
	j.record = r
	return nil
}

func (j *AdminJournal) failed(err error) error {
	return &teardown.Error{Code: errnoCode(err), Retryable: true, Cause: err,
		Message: fmt.Sprintf("the removal could not be noted in %s", printable(j.admin))}
}

// draftMark ends the name of a file that is being written.
const draftMark = ".new"

// writeDurably replaces a small file as a whole, and outlives a loss of power.
func writeDurably(path string, content []byte) error {
	return replaceFile(path, content, (*os.File).Sync)
}

// writeWhole replaces a small file as a whole.
func writeWhole(path string, content []byte) error {
	return replaceFile(path, content, func(*os.File) error { return nil })
}

func replaceFile(path string, content []byte, sync func(*os.File) error) error {
	temporary := path + draftMark
	// What a crash left there may be anything by now: a link, which would lead to
	// a file of somebody's, or a pipe, which nobody reads.
	if err := ignoreAbsent(os.Remove(temporary)); err != nil {
		return err
	}
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	err = errors.Join(err, sync(file), file.Close())
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return nil
}

// readRecord answers what the journal says about the worktree that is registered
// at path, nothing if it says nothing any more. A journal that is contradicted
// by the disk is an error of code identity_mismatch.
func readRecord(admin, path string) (record, error) {
	r, err := readJournal(admin)
	quarantine := string(r.Quarantine)
	if err != nil || quarantine == "" {
		return r, err
	}
	nothing := record{Saved: r.Saved}
	entry, err := instanceOf(admin)
	if err != nil {
		return nothing, ignoreAbsent(err)
	}
	ours := entry.same(r.Entry) && checkQuarantine(quarantine, path) == nil
	if quarantine == path || !isDirectory(quarantine) {
		// The directory never came there, was put back, moved by somebody, or is
		// deleted, in which case only the registration is left to drop.
		if r.Condemned && ours && quarantine != path {
			return r, nil
		}
		return nothing, nil
	}
	if ours && isInstance(quarantine, r.Directory) {
		return r, nil
	}
	return record{}, &teardown.Error{Code: teardown.CodeIdentityMismatch, Details: []string{printable(quarantine)}, Message: fmt.Sprintf(
		"the journal of an earlier removal, %s, names a directory that is not the one that was moved aside; look at the directory, then delete the journal",
		printable(filepath.Join(admin, journalFile)))}
}

func readJournal(admin string) (record, error) {
	var r record
	text, err := readSmall(filepath.Join(admin, journalFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &r)
	}
	if err != nil {
		return record{}, &teardown.Error{Code: teardown.CodeCannotInspect, Cause: err,
			Message: fmt.Sprintf("the journal %s cannot be read; look at it and delete it", printable(filepath.Join(admin, journalFile)))}
	}
	return r, nil
}

// recorded answers what a removal by hand left in the worktree's own journal.
func recorded(target Target, path string) (quarantine string, condemned bool, err error) {
	admin := adminDirOf(target, path)
	if admin == "" {
		return "", false, nil
	}
	r, err := readRecord(admin, path)
	return string(r.Quarantine), r.Condemned, err
}

// condemnedAside answers the registrations of a path's quarantines: those with
// the nonce, or that a removal by hand has condemned.
func condemnedAside(entries []registration, path, nonce string) []registration {
	var aside []registration
	for _, entry := range entries {
		if entry.path == "" || checkQuarantine(entry.path, path) != nil {
			continue
		}
		if found, err := readNonce(entry.admin); nonce != "" && (err != nil || found != nonce) {
			continue
		}
		r, err := readJournal(entry.admin)
		if nonce != "" || err == nil && r.Condemned && string(r.Quarantine) == entry.path {
			aside = append(aside, entry)
		}
	}
	return aside
}

// adminDirOf finds the admin directory that is registered for a path, whether
// or not its directory is there. "" if there is none or more than one.
func adminDirOf(target Target, path string) string {
	repo, err := repositoryOf(target, path)
	if err != nil {
		return ""
	}
	entries, err := repo.registrations()
	if err != nil {
		return ""
	}
	here := at(entries, path)
	if len(here) == 0 {
		here = condemnedAside(entries, path, target.Nonce)
	}
	if len(here) != 1 {
		return ""
	}
	if target.Nonce != "" {
		if nonce, err := readNonce(here[0].admin); err != nil || nonce != target.Nonce {
			return ""
		}
	}
	return here[0].admin
}
