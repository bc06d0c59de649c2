package worktree

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// contentSettings decide what git makes of a file's bytes, and which files it
// ignores. Commands that read files know nothing else of the configuration, so
// no program that it names can be run, whatever is written into it meanwhile.
var contentSettings = map[string]bool{
	"core.autocrlf": true, "core.eol": true, "core.checkroundtripencoding": true,
	"core.filemode": true, "core.symlinks": true, "core.precomposeunicode": true,
	"core.excludesfile": true, "core.attributesfile": true, "core.bigfilethreshold": true,
	"core.repositoryformatversion": true, "extensions.objectformat": true, "extensions.compatobjectformat": true,
}

// infoFiles are the repository's own lists of patterns.
var infoFiles = []string{"exclude", "attributes"}

// maxPatterns bounds a list of patterns, as git itself does.
const maxPatterns = 100 << 20

// isolate makes, in a directory of ours, a git directory for the commands that
// read files: it has the repository's objects, this commit as its HEAD, a copy
// of the settings and patterns as they are now, and nothing else.
func (g *repositoryGit) isolate(ctx context.Context, dir, common, head string) (*repositoryGit, configuration, error) {
	settings, err := g.configuration(ctx)
	if err != nil {
		return nil, nil, err
	}
	private := filepath.Join(dir, "git")
	if err := makeGitDir(private, common, head, settings); err != nil {
		return nil, nil, err
	}
	isolated := *g
	isolated.gitDir, isolated.index = private, filepath.Join(dir, "index")
	isolated.env = append([]string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}, g.env...)
	return &isolated, settings, nil
}

// configuration reads the settings once.
func (g *repositoryGit) configuration(ctx context.Context) (configuration, error) {
	out, err := g.run(ctx, nil, "config", "--list", "-z")
	if err != nil {
		return nil, err
	}
	settings, err := parseSettings(out)
	if err != nil {
		return nil, err
	}
	return settings, checkPatternFiles(settings)
}

func makeGitDir(private, common, head string, settings configuration) error {
	for _, name := range []string{"refs", "info"} {
		if err := os.MkdirAll(filepath.Join(private, name), 0o700); err != nil {
			return err
		}
	}
	for _, name := range infoFiles {
		if err := copyPatterns(filepath.Join(common, "info", name), filepath.Join(private, "info", name)); err != nil {
			return err
		}
	}
	if head == "" {
		head = "ref: refs/heads/none"
	}
	return errors.Join(
		os.WriteFile(filepath.Join(private, "HEAD"), []byte(head+"\n"), 0o600),
		os.WriteFile(filepath.Join(private, "config"), []byte(settings.format()), 0o600),
		os.Symlink(filepath.Join(common, "objects"), filepath.Join(private, "objects")))
}

// configuration is a list of settings, of which the last with a name counts.
type configuration []setting

// setting is one value of the configuration; without one it is true.
type setting struct {
	key, value string
	valued     bool
}

// parseSettings reads `git config --list -z` and answers what contentSettings
// names, in order.
func parseSettings(out string) (configuration, error) {
	all, err := records(out)
	if err != nil {
		return nil, err
	}
	var settings configuration
	for _, record := range all {
		key, value, valued := strings.Cut(record, "\n")
		if contentSettings[key] {
			settings = append(settings, setting{key, value, valued})
		}
	}
	return settings, nil
}

var settingEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`)

func (c configuration) format() string {
	var b strings.Builder
	for _, s := range c {
		section, name, _ := strings.Cut(s.key, ".")
		fmt.Fprintf(&b, "[%s]\n\t%s", section, name)
		if s.valued {
			fmt.Fprintf(&b, " = \"%s\"", settingEscapes.Replace(s.value))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (c configuration) last(key string) (setting, bool) {
	for _, s := range slices.Backward(c) {
		if s.key == key {
			return s, true
		}
	}
	return setting{}, false
}

// fileMode: git was not told that the disk's executable bits say nothing.
func (c configuration) fileMode() bool {
	s, found := c.last("core.filemode")
	switch strings.ToLower(s.value) {
	case "false", "no", "off", "0", "":
		return !found || !s.valued
	}
	return true
}

// newHash is the hash function of the repository's object ids.
func (c configuration) newHash() func() hash.Hash {
	if s, _ := c.last("extensions.objectformat"); strings.EqualFold(s.value, "sha256") {
		return sha256.New
	}
	return sha1.New
}

// checkPatternFiles: git would read a device or a pipe for ever.
func checkPatternFiles(settings configuration) error {
	home, _ := os.UserHomeDir()
	configuration := os.Getenv("XDG_CONFIG_HOME")
	if configuration == "" {
		configuration = filepath.Join(home, ".config")
	}
	paths := []string{filepath.Join(configuration, "git", "ignore"), filepath.Join(configuration, "git", "attributes"), "/etc/gitattributes"}
	for _, s := range settings {
		if s.key == "core.excludesfile" || s.key == "core.attributesfile" {
			path := s.value
			if rest, found := strings.CutPrefix(path, "~/"); found {
				path = filepath.Join(home, rest)
			}
			paths = append(paths, path)
		}
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err == nil && !info.Mode().IsRegular() && !info.IsDir() && path != os.DevNull {
			return fmt.Errorf("git would read patterns from %s, which is not a file", printable(path))
		}
	}
	return nil
}

func copyPatterns(from, to string) error {
	file, err := os.OpenFile(from, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > maxPatterns {
		return fmt.Errorf("git would read patterns from %s, which is not a file of a sensible size", printable(from))
	}
	content, err := io.ReadAll(io.LimitReader(file, maxPatterns))
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o600)
}
