package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"unwind/teardown"
)

// scene is a directory with one repository and a tmux server of its own.
type scene struct {
	dir, repository, socket string
	env                     []string
}

func newScene(ctx context.Context, files int) (*scene, error) {
	dir, err := os.MkdirTemp("", "unwind-bench-")
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	s := &scene{dir: dir, repository: filepath.Join(dir, "app"), socket: filepath.Join(dir, "tmux.sock")}
	home := filepath.Join(dir, "home")
	s.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LC_ALL=C.UTF-8", "TERM=xterm", "SHELL=/bin/sh", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=bench", "GIT_AUTHOR_EMAIL=bench@example.org", "GIT_COMMITTER_NAME=bench", "GIT_COMMITTER_EMAIL=bench@example.org"}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}
	for i := range files {
		path := filepath.Join(s.repository, "src", strconv.Itoa(i%10), fmt.Sprintf("file%03d.txt", i))
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(strings.Repeat(fmt.Sprintf("line of file %d\n", i), 100)), 0o600); err != nil {
			return nil, err
		}
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"commit", "-q", "-m", "Begin"}} {
		if err := s.git(ctx, args...); err != nil {
			return nil, err
		}
	}
	// The server outlives each session of the bench.
	return s, s.tmux(ctx, "new-session", "-d", "-s", "keep", "-c", "/", "exec sleep 3600")
}

func (s *scene) clear() {
	_ = s.tmux(context.Background(), "kill-server")
	_ = os.RemoveAll(s.dir)
}

func (s *scene) worktree(name string) string { return filepath.Join(s.dir, "wt", name) }

// session makes one worktree and one tmux session that stands in it.
func (s *scene) session(ctx context.Context, name string) error {
	if err := s.git(ctx, "worktree", "add", "-q", "-b", "agent/"+name, s.worktree(name)); err != nil {
		return err
	}
	return s.tmux(ctx, "new-session", "-d", "-s", name, "-c", s.worktree(name), "exec sleep 3600")
}

func (s *scene) manifest(name string) ([]byte, error) {
	return json.Marshal(teardown.Manifest{ID: name,
		Runtimes:  []teardown.Runtime{{Kind: teardown.KindTmux, Role: teardown.RoleAgent, Socket: s.socket, Session: name}},
		Worktrees: []teardown.WorktreeSpec{{Repository: s.repository, Path: s.worktree(name), Branch: "agent/" + name}},
	})
}

func (s *scene) git(ctx context.Context, args ...string) error {
	return s.command(ctx, "git", append([]string{"-C", s.repository}, args...)...)
}

func (s *scene) tmux(ctx context.Context, args ...string) error {
	return s.command(ctx, "tmux", append([]string{"-f", "/dev/null", "-S", s.socket}, args...)...)
}

func (s *scene) command(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Dir = s.env, s.dir
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, output)
	}
	return nil
}

// loop is the baseline: what a script does that checks nothing.
const loop = `for name; do
	tmux -f /dev/null -S "$SOCKET" kill-session -t "=$name" && git -C "$REPOSITORY" worktree remove "$WORKTREES/$name" || exit 1
done`

func (s *scene) shellLoop(ctx context.Context, names ...string) error {
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", loop, "sh"}, names...)...)
	cmd.Env = slices.Concat(s.env, []string{"SOCKET=" + s.socket, "REPOSITORY=" + s.repository, "WORKTREES=" + filepath.Join(s.dir, "wt")})
	cmd.Dir = s.dir
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the shell loop: %w: %s", err, output)
	}
	return nil
}
