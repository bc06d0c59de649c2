package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"unwind/internal/forge"
	"unwind/teardown"
)

// maxThings bounds each list of a manifest.
const maxThings = 1000

// parseManifest reads a manifest and checks all that can be told without
// looking at the machine. What it answers is in the normal form: paths clean,
// the host and the roles filled in.
func parseManifest(content []byte, host string) (teardown.Manifest, error) {
	var m teardown.Manifest
	if err := decodeStrict("the manifest", content, &m); err != nil {
		return m, err
	}
	if m.Host == "" {
		m.Host = host
	}
	if err := checkManifest(&m); err != nil {
		return m, err
	}
	return m, nil
}

// manifestHash is equal for two manifests that say the same.
func manifestHash(m teardown.Manifest) string {
	normal, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and numbers only
	}
	sum := sha256.Sum256(normal)
	return hex.EncodeToString(sum[:])
}

func checkManifest(m *teardown.Manifest) error {
	if m.ID == "" {
		return invalid(`the manifest has no "id"; give the session one`)
	}
	for _, id := range []struct{ field, value string }{{"id", m.ID}, {"host", m.Host}, {"task_id", m.TaskID}} {
		if id.value == "" {
			continue
		}
		if err := teardown.ValidateID(id.value); err != nil {
			return &teardown.Error{Code: teardown.CodeInvalidID, Message: id.field + ": " + err.Error()}
		}
	}
	for field, n := range map[string]int{"runtimes": len(m.Runtimes), "worktrees": len(m.Worktrees), "resources": len(m.Resources), "links": len(m.Links)} {
		if n > maxThings {
			return invalid("the manifest lists %d %s; a session holds at most %d", n, field, maxThings)
		}
	}
	for _, check := range []func(*teardown.Manifest) error{checkRuntimes, checkWorktrees, checkParents, checkResources} {
		if err := check(m); err != nil {
			return err
		}
	}
	return forge.CheckLinks(m.Links)
}

func checkRuntimes(m *teardown.Manifest) error {
	seen := map[string]int{}
	for i := range m.Runtimes {
		rt, at := &m.Runtimes[i], fmt.Sprintf("runtimes[%d]", i)
		switch rt.Role {
		case "":
			rt.Role = teardown.RoleAgent
		case teardown.RoleAgent, teardown.RoleAuxiliary:
		default:
			return invalid(`%s: role %q is not known; use "agent" or "auxiliary"`, at, rt.Role)
		}
		if err := checkHandle(rt, at); err != nil {
			return err
		}
		if rt.Identity != nil && rt.Identity.Worktree != "" {
			if err := cleanPath(&rt.Identity.Worktree, at+".identity.worktree"); err != nil {
				return err
			}
		}
		key := fmt.Sprint(rt.Kind, "\x00", rt.Socket, "\x00", rt.Session, "\x00", rt.PID)
		if first, twice := seen[key]; twice {
			return invalid("%s is the same runtime as runtimes[%d]; list it once", at, first)
		}
		seen[key] = i
	}
	return nil
}

func checkHandle(rt *teardown.Runtime, at string) error {
	switch rt.Kind {
	case "":
		return invalid(`%s has no "kind"; use "tmux" or "process"`, at)
	case teardown.KindTmux:
		if rt.PID != 0 || rt.StartTime != 0 {
			return invalid(`%s: "pid" and "start_time" belong to a runtime of kind "process", this one is "tmux"`, at)
		}
		if rt.Session == "" || strings.ContainsRune(rt.Session, 0) {
			return invalid(`%s needs "session", the name of the tmux session`, at)
		}
		if rt.Socket == "" {
			return invalid(`%s needs "socket", as in: tmux display-message -p '#{socket_path}'`, at)
		}
		return cleanPath(&rt.Socket, at+".socket")
	case teardown.KindProcess:
		if rt.Socket != "" || rt.Session != "" {
			return invalid(`%s: "socket" and "session" belong to a runtime of kind "tmux", this one is "process"`, at)
		}
		if rt.PID <= 1 {
			return invalid(`%s needs "pid", a number above 1`, at)
		}
		if rt.StartTime < 0 {
			return invalid(`%s: "start_time" is negative; it is field 22 of /proc/%d/stat`, at, rt.PID)
		}
		return nil
	}
	return invalid(`%s: kind %q is not known; use "tmux" or "process"`, at, rt.Kind)
}

func checkWorktrees(m *teardown.Manifest) error {
	seen := map[string]int{}
	for i := range m.Worktrees {
		wt, at := &m.Worktrees[i], fmt.Sprintf("worktrees[%d]", i)
		if err := cleanPath(&wt.Path, at+".path"); err != nil {
			return err
		}
		if err := cleanPath(&wt.Repository, at+".repository"); err != nil {
			return err
		}
		if wt.Parent != "" {
			if err := cleanPath(&wt.Parent, at+".parent"); err != nil {
				return err
			}
		}
		if strings.ContainsRune(wt.Branch, 0) {
			return invalid("%s.branch holds a NUL character", at)
		}
		if first, twice := seen[wt.Path]; twice {
			return invalid("%s has the same path as worktrees[%d], %s; list it once", at, first, shown(wt.Path))
		}
		seen[wt.Path] = i
	}
	return nil
}

// checkParents refuses parents that contradict each other or the paths.
func checkParents(m *teardown.Manifest) error {
	parents := map[string]string{}
	for _, wt := range m.Worktrees {
		if wt.Parent != "" {
			parents[wt.Path] = wt.Parent
		}
	}
	for i, wt := range m.Worktrees {
		chain := []string{shown(wt.Path)}
		for at, ok := parents[wt.Path]; ok && len(chain) <= len(parents); at, ok = parents[at] {
			chain = append(chain, shown(at))
			if at == wt.Path {
				return invalid("worktrees[%d]: the parents go in a circle (%s); name only the worktree that contains this one",
					i, strings.Join(chain, " in "))
			}
		}
	}
	for i, wt := range m.Worktrees {
		if wt.Parent != "" && !below(wt.Path, wt.Parent) {
			return invalid("worktrees[%d]: parent %s does not contain %s; leave \"parent\" out or correct it",
				i, shown(wt.Parent), shown(wt.Path))
		}
	}
	return nil
}

func checkResources(m *teardown.Manifest) error {
	seen := map[string]int{}
	for i := range m.Resources {
		r, at := &m.Resources[i], fmt.Sprintf("resources[%d]", i)
		switch r.Kind {
		case teardown.ResourceFile, teardown.ResourceDir, teardown.ResourceFIFO, teardown.ResourceSecret:
		case "":
			return invalid(`%s has no "kind"; use "file", "dir", "fifo" or "secret"`, at)
		default:
			return invalid(`%s: kind %q is not known; use "file", "dir", "fifo" or "secret"`, at, r.Kind)
		}
		if err := cleanPath(&r.Path, at+".path"); err != nil {
			return err
		}
		if first, twice := seen[r.Path]; twice {
			return invalid("%s has the same path as resources[%d], %s; list it once", at, first, shown(r.Path))
		}
		seen[r.Path] = i
		for j, wt := range m.Worktrees {
			for _, kept := range []string{wt.Path, wt.Repository} {
				if r.Path == kept || below(kept, r.Path) {
					return invalid("%s, %s, contains what worktrees[%d] names, %s; a resource may not hold a worktree or its repository",
						at, shown(r.Path), j, shown(kept))
				}
			}
		}
	}
	return nil
}

// What Linux's and macOS's own file systems allow, in bytes.
const (
	maxPath = 4095
	maxName = 255
)

// cleanPath checks a path and brings it into the one form in which paths are
// compared. Links are not resolved: that takes a look at the machine.
func cleanPath(path *string, field string) error {
	switch {
	case *path == "":
		return invalid("%s is missing; give an absolute path", field)
	case !utf8.ValidString(*path) || strings.ContainsRune(*path, 0):
		return &teardown.Error{Code: teardown.CodePathNotUTF8, Message: fmt.Sprintf(
			"%s is not UTF-8 or holds a NUL character (%q); rename the file or directory", field, *path)}
	case !filepath.IsAbs(*path):
		return invalid("%s is relative (%s); give an absolute path", field, shown(*path))
	}
	if len(*path) > maxPath {
		return invalid("%s is too long (%d bytes); a path has at most %d", field, len(*path), maxPath)
	}
	for _, element := range strings.Split(*path, "/") {
		if len(element) > maxName {
			return invalid("%s holds a name that is too long (%d bytes); a file's or directory's has at most %d", field, len(element), maxName)
		}
		if element == ".." {
			return invalid(`%s holds ".." (%s), which leads elsewhere behind a link; give the path without`, field, shown(*path))
		}
	}
	*path = filepath.Clean(*path)
	return nil
}

// below reports whether path lies inside dir; both are clean.
func below(path, dir string) bool {
	if dir == "/" {
		return path != "/"
	}
	return strings.HasPrefix(path, dir+"/")
}
