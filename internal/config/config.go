// Package config reads unwind's settings from the environment and from flags,
// and refuses a value that it does not understand.
package config

import (
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"unwind/internal/lock"
	"unwind/teardown"
)

// What becomes of ignored files in a worktree that is otherwise clean.
const (
	IgnoredKeepPrecious = "keep_precious" // goes only if each of them can be made again
	IgnoredDiscard      = "discard"       // they go with the worktree
	IgnoredPreserve     = "preserve"      // any of them keeps the worktree
)

// Formats of the log.
const (
	LogText = "text"
	LogJSON = "json"
)

// Config is what all of unwind's programs are configured by. Temporal's own
// settings are not in it; they are read by the SDK.
type Config struct {
	// DatabaseURL is sqlite:///path, percent-encoded where a URL needs it, or
	// postgres://….
	DatabaseURL string
	StateDir    string // absolute; may not exist yet
	Host        string // id of this machine
	HostName    string // for people
	TaskQueue   string
	// Roots are canonical. Worktrees and resources lie below one of them.
	Roots []string
	// Home is canonical if it can be resolved; "" if this user has none.
	Home         string
	IgnoredFiles string

	Policy            teardown.Policy
	Concurrency       int           // steps on this host at the same time
	LockWait          time.Duration // how long a step waits for a lock
	StopTimeout       time.Duration // how long a stopping worker lets steps finish
	ReconcileInterval time.Duration
	SnapshotKeep      time.Duration // how long the scrollback of a finalized session is kept
	SnapshotSpace     int64         // bytes that all kept scrollback may take
	StartsPerSecond   int           // finalizations that a pass starts

	SearchAttributes bool
	LogLevel         slog.Level
	LogFormat        string
	MetricsAddress   string // "" = off
	Listen           string // host:port of the HTTP API
	// TokenFile and WebhookSecretFile are absolute; "" if there is none.
	TokenFile         string
	WebhookSecretFile string
	// UIURL is the address of Temporal's web UI without a slash at the end; "" if
	// none was given.
	UIURL string
}

// Database names the database, without a password.
func (c Config) Database() string {
	shown, _ := redacted(c.DatabaseURL)
	return shown
}

// Locks is the directory of this host's lock files.
func (c Config) Locks() lock.Dir { return lock.Dir(filepath.Join(c.StateDir, "locks")) }

// Snapshots is the directory of the scrollback that is kept from terminals.
func (c Config) Snapshots() string { return filepath.Join(c.StateDir, "snapshots") }

// TmuxSocket is the socket of the tmux server on which sessions are started.
func (c Config) TmuxSocket() string { return filepath.Join(c.StateDir, "tmux", "socket") }

// Load reads all settings; an empty value is an unset one. It makes the host id
// if the state directory has none yet. The error has code invalid_config, names
// every bad setting in Details, and says what each of them allows.
func Load(getenv func(string) string) (Config, error) {
	l := loading{getenv: getenv, given: map[string]bool{}}
	l.parse()
	if len(l.problems) == 0 {
		l.derive()
	}
	if len(l.problems) > 0 {
		return Config{}, &teardown.Error{Code: teardown.CodeInvalidConfig,
			Message: strings.Join(l.problems, "; "), Details: l.problems}
	}
	return l.Config, nil
}

// Check reads settings that are meant for another machine: nothing is made, and
// what depends on a machine is left empty. The problems are the clauses of Load's
// error.
func Check(getenv func(string) string) (c Config, problems []string) {
	l := loading{getenv: getenv, given: map[string]bool{}}
	l.parse()
	if len(l.problems) == 0 {
		l.deriveTimes()
	}
	return l.Config, l.problems
}

// loading is one call of Load.
type loading struct {
	Config
	getenv   func(string) string
	given    map[string]bool // variables that have a value of their own
	problems []string        // a clause each, naming variable, value and what is allowed
}

func (l *loading) parse() {
	for _, s := range settings {
		raw := l.getenv(s.Variable)
		l.given[s.Variable] = raw != ""
		if raw == "" {
			if s.derived {
				continue
			}
			raw = s.Default
		}
		if allowed, ok := s.parse(&l.Config, raw); !ok {
			l.reject(s.Variable, raw, allowed)
		}
	}
}

func (l *loading) reject(variable, value, allowed string) {
	shown := fmt.Sprintf("%q", value)
	if variable == databaseURL {
		shown = "not a URL"
		if without, ok := redacted(value); ok {
			shown = fmt.Sprintf("%q", without)
		}
	}
	l.problems = append(l.problems, fmt.Sprintf("%s (--%s) is %s: %s", variable, flagOf(variable), shown, allowed))
}

// derive fills in the defaults that depend on the machine or on other settings,
// and checks the settings that bound each other.
func (l *loading) derive() {
	l.deriveTimes()
	l.deriveHome()
	if l.StateDir == "" {
		if l.StateDir = defaultStateDir(l.getenv("XDG_STATE_HOME"), l.Home); l.StateDir == "" {
			l.problems = append(l.problems, stateDir+" (--"+flagOf(stateDir)+") is not set and this user has no home directory: set it to an absolute path")
			return
		}
	}
	if l.DatabaseURL == "" {
		l.DatabaseURL = (&url.URL{Scheme: "sqlite", Path: filepath.Join(l.StateDir, "unwind.db")}).String()
	}
	l.deriveRoots()
	if len(l.problems) > 0 {
		return
	}
	l.deriveHost()
}

func (l *loading) deriveTimes() {
	ms := func(d time.Duration) int64 { return d.Milliseconds() }
	p := &l.Policy
	if !l.given[retryMax] {
		p.MaximumIntervalMS = max(ms(time.Minute), p.InitialIntervalMS)
	} else if p.MaximumIntervalMS < p.InitialIntervalMS {
		l.reject(retryMax, l.getenv(retryMax), "it must not be shorter than "+retryInitial)
	}
	if !l.given[heartbeatTimeout] {
		p.HeartbeatMS = min(ms(30*time.Second), p.StepTimeoutMS)
	} else if p.HeartbeatMS > p.StepTimeoutMS {
		l.reject(heartbeatTimeout, l.getenv(heartbeatTimeout), "it must not be longer than "+stepTimeout)
	}
	step := time.Duration(p.StepTimeoutMS) * time.Millisecond
	if !l.given[lockWait] {
		l.LockWait = min(2*time.Minute, step/2)
	} else if l.LockWait >= step {
		l.reject(lockWait, l.getenv(lockWait), "it must be shorter than "+stepTimeout)
	}
}

func (l *loading) deriveHome() {
	home := l.getenv("HOME")
	if !filepath.IsAbs(home) {
		home = ""
		if account, err := user.Current(); err == nil && filepath.IsAbs(account.HomeDir) {
			home = account.HomeDir
		}
	}
	if home == "" {
		return
	}
	l.Home = filepath.Clean(home)
	if canonical, err := canonicalDir(home); err == nil {
		l.Home = canonical
	}
}

func (l *loading) deriveHost() {
	name, err := os.Hostname()
	if err != nil {
		name = ""
	}
	l.HostName = name
	if l.Host != "" {
		return
	}
	if l.Host, err = HostID(l.StateDir); err != nil {
		l.problems = append(l.problems, err.Error())
	}
}

// defaultStateDir follows the XDG base directory specification, which says that
// a relative path is to be ignored.
func defaultStateDir(xdg, home string) string {
	switch {
	case filepath.IsAbs(xdg):
		return filepath.Join(xdg, "unwind")
	case home != "":
		return filepath.Join(home, ".local", "state", "unwind")
	}
	return ""
}

// Unknown lists the variables of environ ("NAME=value", as from os.Environ)
// that look like settings of unwind but are none: most likely misspelt.
func Unknown(environ []string) []string {
	known := map[string]bool{
		"UNWIND_RUN_ID":            true, // marks the processes of a session
		"UNWIND_TOKEN":             true, // secrets, which a flag would show to everybody
		"UNWIND_WEBHOOK_SECRET":    true,
		"UNWIND_TEST_POSTGRES_URL": true, // of the project's own tests
	}
	for _, s := range settings {
		known[s.Variable] = true
	}
	var unknown []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "UNWIND_") && !known[name] {
			unknown = append(unknown, name)
		}
	}
	sort.Strings(unknown)
	return unknown
}
