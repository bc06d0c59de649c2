package config

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"unwind/teardown"
)

// Variables that are named in more than one place.
const (
	databaseURL      = "UNWIND_DATABASE_URL"
	stateDir         = "UNWIND_STATE_DIR"
	roots            = "UNWIND_ROOTS"
	retryInitial     = "UNWIND_RETRY_INITIAL"
	retryMax         = "UNWIND_RETRY_MAX"
	stepTimeout      = "UNWIND_STEP_TIMEOUT"
	heartbeatTimeout = "UNWIND_HEARTBEAT_TIMEOUT"
	lockWait         = "UNWIND_LOCK_WAIT"
)

// Setting is one environment variable and its flag.
type Setting struct {
	Variable string
	Flag     string // without dashes
	// Default is the value that an unset variable has, or words for it where it
	// depends on the machine or on other settings.
	Default string
	Help    string

	// derived: Default is words; the value is found by Config's own code.
	derived bool
	// parse puts a value that is not empty into the configuration. If it is not
	// ok, allowed says what is.
	parse func(c *Config, value string) (allowed string, ok bool)
}

// Settings lists all of them, in the order of the documentation.
func Settings() []Setting { return append([]Setting(nil), settings...) }

func flagOf(variable string) string {
	for _, s := range settings {
		if s.Variable == variable {
			return s.Flag
		}
	}
	return ""
}

var settings []Setting

// init, because flagOf looks into the table whose functions lead back to it.
func init() {
	const day = 24 * time.Hour
	ms := func(field func(*Config) *int64) func(*Config, time.Duration) {
		return func(c *Config, d time.Duration) { *field(c) = d.Milliseconds() }
	}
	settings = []Setting{
		{Variable: databaseURL, Flag: "database-url", derived: true,
			Default: "`unwind.db` in the state directory",
			Help:    "database: sqlite:///path/to.db or postgres://user@host/database",
			parse:   parseDatabaseURL},
		{Variable: stateDir, Flag: "state-dir", derived: true,
			Default: "`$XDG_STATE_HOME/unwind` or `~/.local/state/unwind`",
			Help:    "directory of this host's id, locks and snapshots; all of unwind's programs on a host must share it",
			parse:   parseStateDir},
		{Variable: "UNWIND_HOST", Flag: "host-id", derived: true,
			Default: "made once and kept in `host-id` in the state directory",
			Help:    "id of this machine",
			parse: func(c *Config, value string) (string, bool) {
				c.Host = value
				return "use 1 to 128 letters, digits, '-' or '_', beginning with a letter or digit", teardown.ValidateID(value) == nil
			}},
		{Variable: "UNWIND_TASK_QUEUE", Flag: "task-queue", Default: teardown.DefaultTaskQueue,
			Help:  "Temporal task queue of the workflows; a host's own is this followed by -host- and its id",
			parse: parseTaskQueue},
		{Variable: roots, Flag: "roots", derived: true,
			Default: "the home and the temporary directory",
			Help:    "directories below which worktrees and resources must lie, separated by ':'",
			parse:   parseRoots},
		{Variable: "UNWIND_IGNORED_FILES", Flag: "ignored-files", Default: IgnoredKeepPrecious,
			Help:  "ignored files in a worktree: keep_precious (it goes only if they can be made again), discard (they go with it) or preserve (they keep it)",
			parse: oneOf(func(c *Config, v string) { c.IgnoredFiles = v }, IgnoredKeepPrecious, IgnoredDiscard, IgnoredPreserve)},

		{Variable: retryInitial, Flag: "retry-initial", Default: "1s",
			Help:  "wait before the second attempt of a step; it doubles from then on",
			parse: duration(time.Millisecond, day, ms(func(c *Config) *int64 { return &c.Policy.InitialIntervalMS }))},
		{Variable: retryMax, Flag: "retry-max", Default: "1m, or the first wait if that is longer", derived: true,
			Help:  "longest wait between two attempts",
			parse: duration(time.Millisecond, 30*day, ms(func(c *Config) *int64 { return &c.Policy.MaximumIntervalMS }))},
		{Variable: "UNWIND_RETRY_ATTEMPTS", Flag: "retry-attempts", Default: "10",
			Help:  "attempts of a step before the finalization is parked",
			parse: number(100000, func(c *Config, n int) { c.Policy.MaximumAttempts = int32(n) })},
		{Variable: stepTimeout, Flag: "step-timeout", Default: "10m",
			Help:  "time limit of one attempt of a step",
			parse: duration(time.Second, 30*day, ms(func(c *Config) *int64 { return &c.Policy.StepTimeoutMS }))},
		{Variable: heartbeatTimeout, Flag: "heartbeat-timeout", Default: "30s, at most the time limit of a step", derived: true,
			Help:  "silence after which an attempt counts as lost",
			parse: duration(500*time.Millisecond, day, ms(func(c *Config) *int64 { return &c.Policy.HeartbeatMS }))},
		{Variable: "UNWIND_HOST_TIMEOUT", Flag: "host-timeout", Default: "15m",
			Help:  "how long a step waits for a worker of its host before the finalization is parked",
			parse: duration(time.Second, 30*day, ms(func(c *Config) *int64 { return &c.Policy.HostTimeoutMS }))},
		{Variable: "UNWIND_PARALLEL", Flag: "parallel", Default: "4",
			Help:  "worktrees of one session that are removed at the same time",
			parse: number(64, func(c *Config, n int) { c.Policy.Parallel = n })},
		{Variable: "UNWIND_CONCURRENCY", Flag: "concurrency", Default: "8",
			Help:  "steps that a worker carries out on its host at the same time",
			parse: number(1000, func(c *Config, n int) { c.Concurrency = n })},
		{Variable: lockWait, Flag: "lock-wait", Default: "2m, at most half the time limit of a step", derived: true,
			Help:  "how long a step waits for a lock before it answers busy and is retried",
			parse: duration(0, day, func(c *Config, d time.Duration) { c.LockWait = d })},
		{Variable: "UNWIND_STOP_TIMEOUT", Flag: "stop-timeout", Default: "30s",
			Help:  "how long a worker that is being stopped lets running steps finish",
			parse: duration(0, day, func(c *Config, d time.Duration) { c.StopTimeout = d })},
		{Variable: "UNWIND_RECONCILE_INTERVAL", Flag: "reconcile-interval", Default: "30s",
			Help:  "pause between two looks of a worker at its host's facts",
			parse: duration(100*time.Millisecond, day, func(c *Config, d time.Duration) { c.ReconcileInterval = d })},
		{Variable: "UNWIND_START_RATE", Flag: "start-rate", Default: "50",
			Help:  "finalizations that a look starts or wakes in a second at most; those that are terminated meanwhile do not wait for a backlog",
			parse: number(100000, func(c *Config, n int) { c.StartsPerSecond = n })},

		{Variable: "UNWIND_SNAPSHOT_KEEP", Flag: "snapshot-keep", Default: "720h",
			Help:  "how long the scrollback of a session that is finalized is kept",
			parse: duration(time.Minute, 3650*day, func(c *Config, d time.Duration) { c.SnapshotKeep = d })},
		{Variable: "UNWIND_SNAPSHOT_SPACE", Flag: "snapshot-space", Default: "1024",
			Help:  "MiB that all kept scrollback of this host may take; beyond that the oldest goes",
			parse: number(1<<20, func(c *Config, n int) { c.SnapshotSpace = int64(n) << 20 })},

		{Variable: "UNWIND_SEARCH_ATTRIBUTES", Flag: "search-attributes", Default: "on",
			Help:  "register and set search attributes in Temporal: on or off",
			parse: oneOf(func(c *Config, v string) { c.SearchAttributes = v == "on" }, "on", "off")},
		{Variable: "UNWIND_LOG_LEVEL", Flag: "log-level", Default: "info",
			Help:  "debug, info, warn or error",
			parse: oneOf(func(c *Config, v string) { _ = c.LogLevel.UnmarshalText([]byte(v)) }, "debug", "info", "warn", "error")},
		{Variable: "UNWIND_LOG_FORMAT", Flag: "log-format", Default: LogText,
			Help:  "text or json",
			parse: oneOf(func(c *Config, v string) { c.LogFormat = v }, LogText, LogJSON)},
		{Variable: "UNWIND_METRICS_ADDRESS", Flag: "metrics-address", Default: "off",
			Help:  "host:port on which a worker serves Prometheus metrics",
			parse: parseMetricsAddress},
		{Variable: "UNWIND_LISTEN", Flag: "listen", Default: "127.0.0.1:7391",
			Help:  "host:port on which serve and dev answer; other than loopback only with a token",
			parse: parseListen},
		{Variable: "UNWIND_TOKEN_FILE", Flag: "token-file", Default: "no token", derived: true,
			Help:  "file with the token that the page and the API ask for; or the token itself in UNWIND_TOKEN",
			parse: parseFile(func(c *Config, v string) { c.TokenFile = v })},
		{Variable: "UNWIND_WEBHOOK_SECRET_FILE", Flag: "webhook-secret-file", Default: "no webhooks", derived: true,
			Help:  "file with the secret of GitHub's webhooks; or the secret itself in UNWIND_WEBHOOK_SECRET",
			parse: parseFile(func(c *Config, v string) { c.WebhookSecretFile = v })},
		{Variable: "UNWIND_UI_URL", Flag: "ui-url", Default: "if Temporal is on this machine, where its dev server has it (port + 1000)", derived: true,
			Help:  "address of Temporal's web UI, for the links that are printed",
			parse: parseUIURL},
	}
}

func oneOf(set func(*Config, string), values ...string) func(*Config, string) (string, bool) {
	allowed := "use " + strings.Join(values[:len(values)-1], ", ") + " or " + values[len(values)-1]
	return func(c *Config, value string) (string, bool) {
		for _, v := range values {
			if v == value {
				set(c, v)
				return "", true
			}
		}
		return allowed, false
	}
}

func duration(least, most time.Duration, set func(*Config, time.Duration)) func(*Config, string) (string, bool) {
	return func(c *Config, value string) (string, bool) {
		d, err := time.ParseDuration(value)
		if err != nil || d < least || d > most {
			return fmt.Sprintf("use a duration such as 30s or 5m, from %s to %s", short(least), short(most)), false
		}
		set(c, d)
		return "", true
	}
}

// short drops the zero units that Duration.String ends with.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func number(most int, set func(*Config, int)) func(*Config, string) (string, bool) {
	return func(c *Config, value string) (string, bool) {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > most {
			return fmt.Sprintf("use a whole number from 1 to %d", most), false
		}
		set(c, n)
		return "", true
	}
}

func parseDatabaseURL(c *Config, value string) (string, bool) {
	const allowed = "use sqlite:///absolute/path.db or postgres://user:password@host/database"
	u, err := url.Parse(value)
	if err != nil || u.Opaque != "" {
		return allowed, false
	}
	c.DatabaseURL = value
	switch u.Scheme {
	case "sqlite":
		if u.Host != "" {
			return "a SQLite path needs three slashes: sqlite:///absolute/path.db", false
		}
		return allowed, u.Path != "" && u.Path != "/" && u.RawQuery == "" && u.Fragment == ""
	case "postgres", "postgresql":
		return allowed, true
	}
	return allowed, false
}

// redacted is a database URL without its password. What cannot be taken apart
// cannot be told from a password, so it is not shown.
func redacted(value string) (shown string, ok bool) {
	if strings.HasPrefix(value, "sqlite:") {
		return value, true
	}
	u, err := url.Parse(value)
	if err != nil || u.Opaque != "" {
		return "", false
	}
	if u.RawQuery != "" {
		u.RawQuery = "…" // a password can be in it, too
	}
	return u.Redacted(), true
}

func parseStateDir(c *Config, value string) (string, bool) {
	c.StateDir = filepath.Clean(value)
	return "use an absolute path other than /", filepath.IsAbs(value) && c.StateDir != "/"
}

var taskQueuePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$`)

func parseTaskQueue(c *Config, value string) (string, bool) {
	c.TaskQueue = value
	return "use 1 to 200 letters, digits, '.', '_', '-' or '/', beginning with a letter or digit",
		taskQueuePattern.MatchString(value)
}

func parseMetricsAddress(c *Config, value string) (string, bool) {
	const allowed = "use host:port, such as 127.0.0.1:9464, or off"
	if value == "off" {
		return "", true
	}
	_, port, err := net.SplitHostPort(value)
	if err != nil {
		return allowed, false
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return allowed, false
	}
	c.MetricsAddress = value
	return "", true
}

func parseListen(c *Config, value string) (string, bool) {
	c.Listen = value
	_, port, err := net.SplitHostPort(value)
	_, portErr := strconv.ParseUint(port, 10, 16)
	return "use host:port, such as 127.0.0.1:7391", err == nil && portErr == nil
}

func parseFile(set func(*Config, string)) func(*Config, string) (string, bool) {
	return func(c *Config, value string) (string, bool) {
		set(c, value)
		return "use the absolute path of a file", filepath.IsAbs(value)
	}
}

func parseUIURL(c *Config, value string) (string, bool) {
	u, err := url.Parse(value)
	c.UIURL = strings.TrimRight(value, "/")
	return "use an address such as http://localhost:8233",
		err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.RawQuery == "" && u.Fragment == ""
}
