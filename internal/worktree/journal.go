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
}

// AdminJournal is the Journal of a removal by hand, without a database: a file
// of ours in the worktree's admin directory, which goes away with it.
type AdminJournal struct {
	admin  string // "" if the worktree has none
	record record
}

// AdminJournal reads what an earlier attempt wrote. A target without an admin
// directory has an empty journal, which cannot be written.
func (e *Engine) AdminJournal(target Target) (*AdminJournal, error) {
	path, err := CanonicalPath(target.Path)
	if err != nil {
		return nil, err
	}
	journal := &AdminJournal{admin: adminDirOf(target, path)}
	if journal.admin == "" {
		return journal, nil
	}
	journal.record, err = readRecord(journal.admin)
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
	return j.write(record{Quarantine: j.record.Quarantine, Condemned: j.record.Condemned, Saved: ref})
}

// MovingAside is the Journal's.
func (j *AdminJournal) MovingAside(_ context.Context, quarantinePath string) error {
	return j.write(record{Quarantine: []byte(quarantinePath), Saved: j.record.Saved})
}

// Condemned is the Journal's.
func (j *AdminJournal) Condemned(context.Context) error {
	return j.write(record{Quarantine: j.record.Quarantine, Condemned: true, Saved: j.record.Saved})
}

// Clear is called when the directory is back at its path.
func (j *AdminJournal) Clear() error {
	if j.admin == "" {
		return nil
	}
	j.record = record{}
	return ignoreAbsent(os.Remove(filepath.Join(j.admin, journalFile)))
}

func (j *AdminJournal) write(r record) error {
	if j.admin == "" {
		return &teardown.Error{Code: teardown.CodeInternal, Message: "the worktree has no admin directory to keep its journal in"}
	}
	content, err := json.Marshal(r)
	if err == nil {
		err = writeDurably(filepath.Join(j.admin, journalFile), content)
	}
	if err != nil {
		return &teardown.Error{Code: errnoCode(err), Retryable: true, Cause: err,
			Message: fmt.Sprintf("the removal could not be noted in %s", printable(j.admin))}
	}
	j.record = r
	return nil
}

// writeDurably replaces a small file as a whole.
func writeDurably(path string, content []byte) error {
	temporary := path + ".new"
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Sync(), file.Close())
	if err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

func readRecord(admin string) (record, error) {
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
	r, err := readRecord(admin)
	return string(r.Quarantine), r.Condemned, err
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
