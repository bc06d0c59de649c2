// The demo does unwind's main job on real things, in a temporary directory:
// Temporal's development server, a worker, a database, git repositories, nested
// worktrees and tmux sessions. Run it with `make demo`; KEEP=1 keeps it up.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"unwind/teardown"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	s, err := newStage(ctx)
	if err != nil {
		return err
	}
	defer s.clear()
	say("Everything below happens in %s, on private ports and a private tmux server.", s.dir)
	if err := s.start(); err != nil {
		return err
	}
	say("Temporal and a worker are up; its web UI is %s", s.up.WebUI)
	if err := play(s); err != nil {
		return err
	}
	if os.Getenv("KEEP") != "1" {
		return nil
	}
	say("Still up: look at %s/namespaces/default/workflows and end it with Ctrl-C.", s.up.WebUI)
	say("Commands find it with: export %s", s.exports())
	<-ctx.Done()
	return nil
}

// play is the story: three sessions that end in three ways.
func play(s *stage) error {
	title("1. A clean session: a tmux session, a worktree, another repository's worktree inside it, a directory, a secret")
	clean, err := s.session("clean")
	if err != nil {
		return err
	}
	if err := s.terminate(clean, teardown.OutcomeFinalized); err != nil {
		return err
	}

	title("2. A session with unsaved work in it")
	dirty, err := s.session("dirty")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dirty.nested, "idea.md"), []byte("nobody has this yet\n"), 0o600); err != nil {
		return err
	}
	if err := s.terminate(dirty, teardown.OutcomePreserved); err != nil {
		return err
	}
	if err := s.show("status", dirty.id); err != nil {
		return err
	}
	say("Its owner commits the file, and asks to look again:")
	if err := s.git(dirty.nested, "add", "."); err != nil {
		return err
	}
	if err := s.git(dirty.nested, "commit", "-q", "-m", "Keep the idea"); err != nil {
		return err
	}
	if err := s.retry(dirty); err != nil {
		return err
	}

	title("3. A session whose tmux session somebody kills by hand")
	killed, err := s.session("killed")
	if err != nil {
		return err
	}
	if err := s.tmux("kill-session", "-t", "="+killed.id); err != nil {
		return err
	}
	if err := s.terminate(killed, teardown.OutcomeFinalized); err != nil {
		return err
	}

	title("What became of them")
	return s.summary()
}

func title(text string) { fmt.Printf("\n== %s\n", text) }

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }
