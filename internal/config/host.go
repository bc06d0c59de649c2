package config

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"unwind/teardown"
)

const (
	hostFile     = "host-id"
	hostNameSize = 60 // of the readable part, so that names made from the id stay short
)

// HostID returns the id of this machine, such as "build-7-3fa92c", which is made
// when it is first asked for and kept in the file host-id of the state
// directory. Processes that ask at the same time get the same one. The error has
// code invalid_config.
func HostID(stateDir string) (string, error) {
	path := filepath.Join(stateDir, hostFile)
	id, err := readHostID(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return id, hostIDError(path, err)
	}
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return "", hostIDError(path, err)
	}
	if err := createHostID(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", hostIDError(path, err)
	}
	id, err = readHostID(path)
	return id, hostIDError(path, err)
}

func readHostID(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(string(content))
	return id, teardown.ValidateID(id)
}

// createHostID writes the whole file under another name first and links it into
// place, so that nobody reads half an id and the first one to arrive wins.
func createHostID(path string) error {
	draft, err := os.CreateTemp(filepath.Dir(path), hostFile+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(draft.Name()) }()
	name, err := os.Hostname()
	if err != nil {
		name = ""
	}
	if _, err := draft.WriteString(newHostID(name) + "\n"); err != nil {
		return errors.Join(err, draft.Close())
	}
	if err := errors.Join(draft.Sync(), draft.Close()); err != nil {
		return err
	}
	return os.Link(draft.Name(), path)
}

var notInID = regexp.MustCompile(`[^a-z0-9]+`)

// newHostID makes an id that a person recognises and that no other machine has.
func newHostID(hostname string) string {
	name, _, _ := strings.Cut(strings.ToLower(hostname), ".")
	name = notInID.ReplaceAllString(name, "-")
	name = strings.Trim(name[:min(len(name), hostNameSize)], "-")
	if name == "" {
		name = "host"
	}
	var random [3]byte
	_, _ = rand.Read(random[:]) // never fails
	return name + "-" + hex.EncodeToString(random[:])
}

func hostIDError(path string, err error) error {
	if err == nil {
		return nil
	}
	advice := "make the state directory (UNWIND_STATE_DIR) writable for this user"
	if teardown.CodeOf(err) == teardown.CodeInvalidID {
		advice = "put the former id back into it, or remove it to be given a new one (sessions of the former id then belong to another host)"
	}
	return &teardown.Error{Code: teardown.CodeInvalidConfig, Cause: err,
		Message: fmt.Sprintf("the host id in %s cannot be used; %s", path, advice)}
}
