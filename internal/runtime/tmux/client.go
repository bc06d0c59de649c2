package tmux

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"unwind/internal/runtime"
)

const (
	// callLimit bounds each call: a client of a stopped server waits for ever.
	callLimit = 3 * time.Second
	// pipeLimit bounds the wait for the client's output after it was killed. The
	// client passes its descriptors on to the server, so that a stopped server
	// keeps them open.
	pipeLimit = time.Second
	// listLimit bounds what a listing may print, in bytes.
	listLimit = 8 << 20
)

// server is the tmux server that listens at a socket, whichever that is.
type server struct {
	binary string
	socket string
}

// reply is what came back from one tmux command.
type reply struct {
	answer answer
	stdout []byte
	// text is what tmux or the system said, for people.
	text string
}

// run runs tmux commands, separated by ";" arguments, within callLimit. Nothing
// that it is used for starts a server. Of the output the last keep bytes are
// kept; truncated tells.
func (s server) run(ctx context.Context, keep int, args ...string) (r reply, truncated bool) {
	return s.in(ctx, environment(), keep, args...)
}

// starting is run for a command that may start the server, which hands its
// environment on to every session.
func (s server) starting(ctx context.Context, args ...string) (reply, bool) {
	return s.in(ctx, runtime.CleanEnvironment(), listLimit, args...)
}

func (s server) in(ctx context.Context, env []string, keep int, args ...string) (r reply, truncated bool) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	binary := s.binary
	if binary == "" {
		binary = "tmux"
	}
	stdout, stderr := &tail{keep: keep}, &tail{keep: 4096}
	// The context's end is SIGKILL: a client that is blocked in connect ignores
	// SIGTERM.
	cmd := exec.CommandContext(ctx, binary, append([]string{"-u", "-f", "/dev/null", "-S", s.socket}, args...)...)
	cmd.WaitDelay = pipeLimit
	cmd.Dir = "/"
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	text := strings.TrimSpace(string(stderr.bytes()))
	switch {
	case ctx.Err() != nil:
		return reply{answer: silence, text: "tmux did not answer in time"}, false
	case err != nil && !errors.As(err, new(*exec.ExitError)):
		return reply{answer: unknown, text: err.Error()}, false
	}
	printed := stdout.bytes()
	return reply{answer: classify(err == nil, text), stdout: printed, text: text}, stdout.dropped
}

// environment is ours without what would lead tmux to another server or let it
// mangle what it prints.
func environment() []string {
	kept := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "TMUX") || strings.HasPrefix(entry, "LC_") || strings.HasPrefix(entry, "LANG")
	})
	return append(kept, "LC_ALL=C.UTF-8")
}

// tail keeps the last keep bytes written to it.
type tail struct {
	keep    int
	held    []byte
	dropped bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.held = append(t.held, p...)
	if len(t.held) > 2*t.keep {
		t.held = append([]byte(nil), t.bytes()...)
	}
	return len(p), nil
}

func (t *tail) bytes() []byte {
	if over := len(t.held) - t.keep; over > 0 {
		t.dropped = true
		return t.held[over:]
	}
	return t.held
}
