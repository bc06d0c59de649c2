package worktree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"unwind/teardown"
)

// hardening makes the answers of git independent of what the repository's own
// configuration says about display, caching and programs to run.
var hardening = []string{
	"core.fsmonitor=false",
	"core.hooksPath=/dev/null",
	"core.untrackedCache=false",
	"core.splitIndex=false",
	"core.ignoreCase=false",
	"core.trustctime=true",
	"core.ignoreStat=false",
	"core.checkStat=default",
	"status.showUntrackedFiles=all",
	"diff.ignoreSubmodules=none",
	"submodule.recurse=false",
	"protocol.allow=never",
	"diff.external=",
	"core.pager=cat",
}

// environment replaces every GIT_* variable of the process.
var environment = []string{
	"GIT_OPTIONAL_LOCKS=0",
	"GIT_TERMINAL_PROMPT=0",
	"GIT_NO_LAZY_FETCH=1",
	// A configured protocol.ext.allow outranks protocol.allow; this outranks both.
	"GIT_ALLOW_PROTOCOL=none",
	// Replacements and grafts change what seems to be reachable, but gc does not
	// honour them.
	"GIT_NO_REPLACE_OBJECTS=1",
	"GIT_GRAFT_FILE=/dev/null",
	"LC_ALL=C",
}

const (
	stderrLimit   = 64 << 10
	killGrace     = 5 * time.Second
	progressEvery = time.Second
)

// GitError is a run of git that failed, or that warned of something it could
// not read.
type GitError struct {
	Args     []string // without the fixed part
	ExitCode int      // -1 if git did not run or was killed
	Stderr   string
	Cause    error
}

func (e *GitError) Error() string {
	what := "git " + strings.Join(e.Args, " ")
	if line := firstLine(e.Stderr); line != "" {
		return fmt.Sprintf("%s: %s", what, printable(line))
	}
	if e.Cause != nil {
		return fmt.Sprintf("%s: %v", what, e.Cause)
	}
	return fmt.Sprintf("%s: exit status %d", what, e.ExitCode)
}

func (e *GitError) Unwrap() error { return e.Cause }

// exitedWith reports whether err is a run of git that ended with this status.
func exitedWith(err error, status int) bool {
	var failed *GitError
	return errors.As(err, &failed) && failed.ExitCode == status
}

// repositoryGit runs git on one repository that is named, never discovered.
type repositoryGit struct {
	program  string
	limit    time.Duration
	gitDir   string
	workTree string   // "" for commands that need none
	index    string   // "" for the repository's own
	settings []string // beside the hardening, as "key=value"
	env      []string
	inherit  []*os.File
	alive    func() // called about every second while git runs
}

func (e *Engine) gitFor(gitDir string, hooks Hooks) *repositoryGit {
	git := &repositoryGit{program: e.Git, limit: e.GitLimit, gitDir: gitDir, inherit: hooks.Inherit,
		alive: func() { hooks.report(teardown.Progress{Step: "git"}) }}
	if git.program == "" {
		git.program = "git"
	}
	if git.limit <= 0 {
		git.limit = DefaultGitLimit
	}
	return git
}

// run answers git's standard output. Every other outcome than success without a
// warning is a *GitError.
func (g *repositoryGit) run(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	var stdout strings.Builder
	if err := g.stream(ctx, stdin, &stdout, args...); err != nil {
		return "", err
	}
	return stdout.String(), nil
}

// stream is run for output that may be larger than memory.
func (g *repositoryGit) stream(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) error {
	limited, cancel := context.WithTimeout(ctx, g.limit)
	defer cancel()
	stderr := &cappedBuffer{limit: stderrLimit}
	cmd := exec.CommandContext(limited, g.program, g.arguments(args)...)
	cmd.Dir = "/"
	cmd.Env = g.environ(os.Environ())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.ExtraFiles = g.inherit
	// Git starts children of its own; on a time-out all of them have to go.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = killGrace

	err := g.wait(limited, cmd)
	failed := &GitError{Args: args, ExitCode: -1, Stderr: stderr.String(), Cause: err}
	if cmd.ProcessState != nil {
		failed.ExitCode = cmd.ProcessState.ExitCode()
	}
	switch {
	case limited.Err() != nil:
		failed.Cause = limited.Err()
		return failed
	case err != nil:
		return failed
	case warnsOfUnread(failed.Stderr):
		failed.Cause = errors.New("git could not read everything")
		return failed
	}
	return nil
}

// wait waits for git, but not for ever for one that no signal ends, because it
// waits for a file system that does not answer.
func (g *repositoryGit) wait(ctx context.Context, cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	var ended time.Time
	for {
		select {
		case err := <-done:
			return err
		case now := <-ticker.C:
			g.alive()
			switch {
			case ctx.Err() == nil:
			case ended.IsZero():
				ended = now
			case now.Sub(ended) > 3*killGrace:
				return ctx.Err()
			}
		}
	}
}

func (g *repositoryGit) arguments(args []string) []string {
	all := make([]string, 0, 2*len(hardening)+2*len(g.settings)+2+len(args))
	for _, setting := range hardening {
		all = append(all, "-c", setting)
	}
	for _, setting := range g.settings {
		all = append(all, "-c", setting)
	}
	all = append(all, "--git-dir="+g.gitDir)
	if g.workTree != "" {
		all = append(all, "--work-tree="+g.workTree)
	}
	return append(all, args...)
}

func (g *repositoryGit) environ(base []string) []string {
	env := make([]string, 0, len(base)+len(environment)+len(g.env)+1)
	for _, variable := range base {
		if !strings.HasPrefix(variable, "GIT_") && !strings.HasPrefix(variable, "LC_ALL=") {
			env = append(env, variable)
		}
	}
	env = append(append(env, environment...), g.env...)
	if g.index != "" {
		env = append(env, "GIT_INDEX_FILE="+g.index)
	}
	return env
}

// warnsOfUnread finds the warnings with which git says, while it exits with 0,
// that it left something out.
func warnsOfUnread(stderr string) bool {
	for line := range strings.Lines(stderr) {
		// A broken ref is not taken for an anchor, which is the safe way round.
		if strings.Contains(line, "does not point to a valid object") {
			continue
		}
		if strings.HasPrefix(line, "error:") || strings.HasPrefix(line, "fatal:") {
			return true
		}
		if !strings.HasPrefix(line, "warning:") {
			continue
		}
		for _, sign := range []string{"could not", "unable to", "cannot", "failed", "too long", "denied"} {
			if strings.Contains(line, sign) {
				return true
			}
		}
	}
	return false
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// cappedBuffer keeps the beginning of what is written and takes the rest.
type cappedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *cappedBuffer) Write(p []byte) (int, error) {
	if room := b.limit - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
