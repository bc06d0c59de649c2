package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"unwind/internal/config"
)

// workerUnit is deploy/unwind-worker.service, which reads workerSettings below the
// home directory.
const (
	workerUnit     = "unwind-worker.service"
	workerSettings = ".config/unwind/worker.env"
)

// shared are the settings that all of unwind's programs on a machine have to have
// in common.
var shared = []string{"UNWIND_DATABASE_URL", "UNWIND_STATE_DIR", "UNWIND_HOST", "UNWIND_TASK_QUEUE", "UNWIND_ROOTS",
	"TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "TEMPORAL_PROFILE"}

// unit compares this environment with that of the worker which systemd runs, and
// the worker's time to stop with systemd's. What systemd says of the unit is asked
// by a function.
func (e *examination) unit(c config.Config, systemd func() (string, error)) {
	file := filepath.Join(c.Home, workerSettings)
	content, err := os.ReadFile(file)
	settings := settingsIn(string(content))
	if err == nil {
		e.workerElsewhere(file, settings)
	}
	stop := c.StopTimeout
	if given, err := time.ParseDuration(settings["UNWIND_STOP_TIMEOUT"]); err == nil {
		stop = given
	}
	said, err := systemd()
	if err != nil || !strings.Contains(said, "LoadState=loaded") {
		return
	}
	_, span, _ := strings.Cut(said, "TimeoutStopUSec=")
	span, _, _ = strings.Cut(span, ";")
	if limit, ok := systemdSpan(span); ok && limit <= stop {
		e.warn("worker unit", "systemd kills the worker after %s, so UNWIND_STOP_TIMEOUT (%s) is never reached; make TimeoutStopSec in %s the longer one",
			limit, stop, workerUnit)
	}
}

func (e *examination) systemd(ctx context.Context) func() (string, error) {
	return func() (string, error) {
		return e.output(ctx, "systemctl", "--user", "show", workerUnit, "--property=LoadState,TimeoutStopUSec")
	}
}

func (e *examination) workerElsewhere(file string, settings map[string]string) {
	different := of(shared, func(variable string) bool { return settings[variable] != e.environment.get(variable) })
	if len(different) > 0 {
		e.warn("worker unit", "%s gives the worker other values of %s than this environment has, so the two may not work on the same things; "+
			"run `set -a; . %s` before `%s`, or correct the file", shown(file), strings.Join(different, ", "), shown(file), name)
	}
}

// settingsIn reads the lines of a systemd environment file.
func settingsIn(content string) map[string]string {
	settings := map[string]string{}
	for _, line := range strings.Split(content, "\n") {
		line = strings.TrimSpace(line)
		variable, value, found := strings.Cut(line, "=")
		if !found || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		if quoted := len(value) > 1 && value[0] == value[len(value)-1] && strings.ContainsRune(`"'`, rune(value[0])); quoted {
			value = value[1 : len(value)-1]
		}
		settings[variable] = value
	}
	return settings
}

// systemdSpan reads a time as systemd prints it, "1min 30s". Days and "infinity"
// are longer than any step; they are not ok.
func systemdSpan(text string) (span time.Duration, ok bool) {
	text = strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(text), "min", "m"), " ", "")
	span, err := time.ParseDuration(text)
	return span, err == nil
}
