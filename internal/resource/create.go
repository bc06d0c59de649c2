package resource

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"unwind/teardown"
)

// MaxSource bounds what is read for a file or a secret, in bytes.
const MaxSource = 16 << 20

// Absent reports whether a resource could be made: what Check demands, a
// directory to make it in, and nothing at its path. The error has the codes of
// Check, path_occupied, and invalid_manifest if there is no such directory.
func (c Cleaner) Absent(spec teardown.ResourceSpec) error {
	where, err := c.locate(spec.Kind, spec.Path)
	if err != nil {
		return err
	}
	parent, err := where.openParent()
	if err != nil {
		return err
	}
	if parent == nil {
		return noParent(spec.Path)
	}
	defer func() { _ = parent.Close() }()
	_, err = parent.Lstat(filepath.Base(spec.Path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return failed(spec.Path, err)
	}
	return occupied(spec.Path)
}

// Create makes a resource that only this user can use (0600, a directory 0700).
// A file or a secret gets what is in the file source, at most MaxSource bytes;
// with no source it is empty. Again says that an earlier attempt may have made
// it: what is there, of the right kind, is used and filled anew. Otherwise
// anything at its path is path_occupied and is not touched.
//
// What is read goes from file to file: it is neither logged nor part of an error.
func (c Cleaner) Create(spec teardown.ResourceSpec, source string, again bool) error {
	where, err := c.locate(spec.Kind, spec.Path)
	if err != nil {
		return err
	}
	parent, err := where.openParent()
	if err != nil {
		return err
	}
	if parent == nil {
		return noParent(spec.Path)
	}
	defer func() { _ = parent.Close() }()
	name := filepath.Base(spec.Path)
	switch spec.Kind {
	case teardown.ResourceDir:
		err = parent.Mkdir(name, 0o700)
	case teardown.ResourceFIFO:
		err = makeFIFO(parent, name)
	default:
		return fill(parent, spec.Path, source, again)
	}
	if again && errors.Is(err, fs.ErrExist) {
		info, lookErr := parent.Lstat(name)
		if lookErr != nil {
			return failed(spec.Path, lookErr)
		}
		return where.matches(info)
	}
	return made(spec.Path, err)
}

func made(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist):
		return occupied(path)
	}
	return failed(path, err)
}

func makeFIFO(parent *os.Root, name string) error {
	dir, err := parent.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return makeFIFOAt(dir, name)
}

// fill writes a file or a secret. The source is opened first: without it
// nothing is made.
func fill(parent *os.Root, path, source string, again bool) error {
	var content io.Reader
	if source != "" {
		from, err := openSource(source)
		if err != nil {
			return err
		}
		defer func() { _ = from.Close() }()
		content = from
	}
	name := filepath.Base(path)
	file, err := parent.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if again && errors.Is(err, fs.ErrExist) {
		file, err = reopen(parent, name, path)
	}
	if err != nil {
		return made(path, err)
	}
	if content != nil {
		_, err = io.Copy(file, content)
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	return made(path, err)
}

// reopen empties what an earlier attempt has made.
func reopen(parent *os.Root, name, path string) (*os.File, error) {
	info, err := parent.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, occupied(path)
	}
	file, err := parent.OpenFile(name, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	now, err := file.Stat()
	if err == nil && !os.SameFile(info, now) {
		err = occupied(path)
	}
	if err == nil {
		err = errors.Join(file.Truncate(0), file.Chmod(0o600))
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

func openSource(path string) (*os.File, error) {
	unfit := func(why string) error {
		return &teardown.Error{Code: teardown.CodeInvalidManifest, Message: fmt.Sprintf(
			"%s cannot be used as the content of a resource: %s; name a readable file with \"from\"", path, why)}
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		var reason *fs.PathError
		if errors.As(err, &reason) {
			err = reason.Err
		}
		return nil, unfit(err.Error())
	}
	info, err := file.Stat()
	switch {
	case err != nil:
		err = unfit(err.Error())
	case !info.Mode().IsRegular():
		err = unfit("it is not a file")
	case info.Size() > MaxSource:
		err = unfit(fmt.Sprintf("it is larger than %d MiB", MaxSource>>20))
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

func occupied(path string) error {
	return &teardown.Error{Code: teardown.CodePathOccupied, Message: fmt.Sprintf(
		"something is at %s already; choose another path for the resource", path)}
}

func noParent(path string) error {
	return &teardown.Error{Code: teardown.CodeInvalidManifest, Message: fmt.Sprintf(
		"there is no directory %s to make the resource in; make it first, or list it before as a resource of kind dir", filepath.Dir(path))}
}
