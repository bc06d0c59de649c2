package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"unwind/internal/config"
	"unwind/internal/lock"
	"unwind/internal/runtime"
	"unwind/internal/runtime/kinds"
	"unwind/internal/store"
	"unwind/internal/temporalclient"
	"unwind/internal/worktree"
	"unwind/teardown"
)

// name is what the program is called in its own output.
const name = "unwind"

// program is what every command is given: the streams, the environment, and the
// ways to the database, to Temporal and to the machine.
type program struct {
	streams
	environment environment
	json        bool
	flags       config.Flags
	// directory is where relative paths begin. The process itself works in "/",
	// so that it stands in no worktree.
	directory string
	// beside is the directory of this program, where the others are looked for.
	beside string
}

// environment holds "NAME=value" entries; the last of a name counts.
type environment []string

func (e environment) LookupEnv(name string) (string, bool) {
	for i := len(e) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(e[i], name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// Environ is for the SDK's envconfig.
func (e environment) Environ() []string { return e }

func (e environment) get(name string) string {
	value, _ := e.LookupEnv(name)
	return value
}

func (e environment) with(entries ...string) environment {
	return append(e[:len(e):len(e)], entries...)
}

func (p *program) config() (config.Config, error) {
	return config.Load(p.flags.Over(p.environment.get))
}

// facts is an open database together with the configuration that names it.
type facts struct {
	*store.Store
	config config.Config
}

func (p *program) openFacts(ctx context.Context) (*facts, error) {
	c, err := p.config()
	if err != nil {
		return nil, err
	}
	if err := mayMake(c); err != nil {
		return nil, err
	}
	opened, err := store.Open(ctx, c.DatabaseURL)
	if err != nil {
		return nil, err
	}
	return &facts{Store: opened, config: c}, nil
}

// mayMake refuses to make a database in a directory that does not exist, which is
// more likely a misspelt one. The state directory is ours to make.
func mayMake(c config.Config) error {
	path, isFile := sqlitePath(c.DatabaseURL)
	if !isFile || filepath.Dir(path) == filepath.Clean(c.StateDir) {
		return nil
	}
	if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
		return &teardown.Error{Code: teardown.CodeDatabaseUnavailable, Message: fmt.Sprintf(
			"there is no directory %s for the database; correct UNWIND_DATABASE_URL, or make the directory", shown(filepath.Dir(path)))}
	}
	return nil
}

func (f *facts) close() { _ = f.Close() }

// temporal is a connection, or why there is none.
type temporal struct {
	*temporalclient.Connection
	away error
}

func (p *program) dial(ctx context.Context) temporal {
	connection, err := temporalclient.Dial(ctx, temporalclient.Options{Program: name, Env: p.environment})
	return temporal{connection, err}
}

// start makes sure that a run of the session's finalization exists.
func (t temporal) start(ctx context.Context, taskQueue string, session store.Session) error {
	if t.away != nil {
		return t.away
	}
	_, err := teardown.Start(ctx, t.Client, taskQueue, teardown.FinalizeSessionInput{SessionID: session.ID, Generation: session.Generation})
	return t.Explain(err)
}

func (p *program) kinds() runtime.Set { return kinds.All() }

func engine(c config.Config) *worktree.Engine {
	return &worktree.Engine{
		Roots:    c.Roots,
		Home:     c.Home,
		Ignored:  worktree.IgnoredPolicy(c.IgnoredFiles),
		Locks:    c.Locks(),
		LockWait: c.LockWait,
	}
}

// lockWait says once, on a terminal, that somebody else is being waited for.
func (p *program) lockWait(c config.Config, what string) lock.Wait {
	said := false
	return lock.Wait{Limit: c.LockWait, Each: func() {
		if !said && p.errTerminal {
			p.note("Waiting for whoever works on %s …", what)
		}
		said = true
	}}
}

// absolute makes a path that was given by hand absolute without resolving
// anything: what ".." means behind a link is not for us to guess.
func (p *program) absolute(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	elements := []string{p.directory}
	for _, element := range strings.Split(path, "/") {
		if element != "" && element != "." {
			elements = append(elements, element)
		}
	}
	return strings.Join(elements, "/")
}

// maxInput bounds what is read from a file or from standard input, in bytes.
const maxInput = 4 << 20

// read reads a file, or standard input for "-".
func (p *program) read(path string) ([]byte, error) {
	if path == "" {
		return nil, usageError("name a file with -f FILE, or -f - for standard input")
	}
	source, what := p.in, "standard input"
	if path != "-" {
		file, err := os.Open(p.absolute(path))
		if err != nil {
			return nil, unreadable(path, err)
		}
		defer func() { _ = file.Close() }()
		if info, err := file.Stat(); err == nil && info.IsDir() {
			return nil, usageError("%s is a directory; name a file with -f", shown(path))
		}
		source, what = file, shown(path)
	}
	content, err := io.ReadAll(io.LimitReader(source, maxInput+1))
	if err != nil {
		return nil, unreadable(what, err)
	}
	if len(content) > maxInput {
		return nil, usageError("%s is longer than %s; split it", what, bytesText(maxInput))
	}
	return content, nil
}

func unreadable(path string, err error) error {
	var reason *os.PathError
	if errors.As(err, &reason) {
		err = reason.Err
	}
	return &teardown.Error{Code: codeUsage, Cause: err, Message: shown(path) + " cannot be read; name a readable file with -f"}
}

// whoAmI is who asks, as it is written into the facts: user@host.
func (p *program) whoAmI() string {
	who := p.environment.get("USER")
	if account, err := user.Current(); err == nil {
		who = account.Username
	}
	if who == "" {
		who = "somebody"
	}
	if host, err := os.Hostname(); err == nil {
		who += "@" + host
	}
	return who
}

func now() time.Time { return time.Now() }
