package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"unwind/teardown"
)

// stage is where the demo plays: a directory, and what runs on private ports.
type stage struct {
	ctx    context.Context
	dir    string
	unwind string // the program
	socket string
	env    []string
	dev    *exec.Cmd
	ended  chan error
	up     announcement
	played []played
}

// announcement is what `unwind dev --json` prints when all is up.
type announcement struct {
	Address string `json:"temporal_address"`
	WebUI   string `json:"web_ui"`
}

// played is a session and how it ended.
type played struct {
	id     string
	result teardown.Result
}

// session is what one session of the demo holds.
type session struct {
	id, worktree, nested string
}

func newStage(ctx context.Context) (*stage, error) {
	unwind, err := filepath.Abs("bin/unwind")
	if err != nil {
		return nil, err
	}
	for _, program := range []string{unwind, "git", "tmux"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("%s is needed and was not found: install git and tmux, and run `make demo` in the project's directory", program)
		}
	}
	dir, err := os.MkdirTemp("", "unwind-demo-")
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	s := &stage{ctx: ctx, dir: dir, unwind: unwind, socket: filepath.Join(dir, "tmux.sock")}
	home := filepath.Join(dir, "home")
	s.env = []string{
		"PATH=" + filepath.Dir(unwind) + ":" + os.Getenv("PATH"), "HOME=" + home, "LC_ALL=C.UTF-8", "TERM=xterm", "SHELL=/bin/sh",
		"UNWIND_STATE_DIR=" + filepath.Join(dir, "state"), "UNWIND_ROOTS=" + dir, "UNWIND_LOG_LEVEL=warn",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=demo", "GIT_AUTHOR_EMAIL=demo@example.org",
		"GIT_COMMITTER_NAME=demo", "GIT_COMMITTER_EMAIL=demo@example.org",
	}
	return s, os.MkdirAll(home, 0o700)
}

const startLimit = time.Minute

// start runs `unwind dev` on free ports and waits until all is up.
func (s *stage) start() error {
	// Not ended by the context, but in order.
	s.dev = exec.CommandContext(context.WithoutCancel(s.ctx), s.unwind, "dev", "--ephemeral", "--port", "0", "--ui-port", "0", "--json")
	s.dev.Env, s.dev.Dir = s.env, s.dir
	// Ctrl-C is for the demo, which then ends it in order.
	s.dev.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := os.Create(filepath.Join(s.dir, "dev.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	s.dev.Stderr = log
	out, err := s.dev.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.dev.Start(); err != nil {
		return err
	}
	s.ended = make(chan error, 1)
	announced := make(chan error, 1)
	go func() {
		err := json.NewDecoder(out).Decode(&s.up)
		announced <- err
		s.ended <- s.dev.Wait()
	}()
	select {
	case err := <-announced:
		if err != nil {
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("unwind dev did not come up: %s", strings.TrimSpace(string(text)))
		}
	case <-time.After(startLimit):
		return errors.New("unwind dev did not come up in a minute")
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
	s.env = append(s.env, "TEMPORAL_ADDRESS="+s.up.Address, "UNWIND_UI_URL="+s.up.WebUI)
	return nil
}

// clear ends what the demo started and removes what it made.
func (s *stage) clear() {
	if s.ended != nil {
		_ = s.dev.Process.Signal(syscall.SIGTERM)
		if err := <-s.ended; err != nil {
			say("unwind dev ended with: %v", err)
		}
	}
	s.ctx = context.Background()
	_ = s.tmux("kill-server")
	if err := os.RemoveAll(s.dir); err != nil {
		say("%s could not be removed: %v", s.dir, err)
	}
}

func (s *stage) exports() string {
	var exports []string
	for _, entry := range s.env {
		if strings.HasPrefix(entry, "UNWIND_") || strings.HasPrefix(entry, "TEMPORAL_") {
			exports = append(exports, entry)
		}
	}
	return strings.Join(exports, " ")
}

// session makes two repositories, a worktree of each, one inside the other, a
// tmux session in them and the agent's own files, and registers all that.
func (s *stage) session(id string) (session, error) {
	at := func(elements ...string) string { return filepath.Join(append([]string{s.dir, id}, elements...)...) }
	made := session{id: id, worktree: at("wt"), nested: at("wt", "lib")}
	for _, repository := range []string{at("app"), at("lib")} {
		if err := s.repository(repository); err != nil {
			return made, err
		}
	}
	if err := os.WriteFile(at("app", ".git", "info", "exclude"), []byte("/lib/\n"), 0o600); err != nil {
		return made, err
	}
	if err := os.MkdirAll(at("agent"), 0o700); err != nil {
		return made, err
	}
	for path, content := range map[string]string{at("agent", "prompt.md"): "Do it.\n", at("token"): "not really a secret\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return made, err
		}
	}
	branch := "agent/" + id
	for _, step := range []func() error{
		func() error { return s.git(at("app"), "worktree", "add", "-q", "-b", branch, made.worktree) },
		func() error { return s.git(at("lib"), "worktree", "add", "-q", "-b", branch, made.nested) },
		func() error {
			return s.tmux("new-session", "-d", "-s", id, "-c", made.worktree, "echo 'an agent at work'; exec sleep 3600")
		},
	} {
		if err := step(); err != nil {
			return made, err
		}
	}
	return made, s.register(teardown.Manifest{ID: id,
		Runtimes: []teardown.Runtime{{Kind: teardown.KindTmux, Role: teardown.RoleAgent, Socket: s.socket, Session: id}},
		Worktrees: []teardown.WorktreeSpec{
			{Repository: at("app"), Path: made.worktree, Branch: branch},
			{Repository: at("lib"), Path: made.nested, Branch: branch, Parent: made.worktree}},
		Resources: []teardown.ResourceSpec{
			{Kind: teardown.ResourceDir, Path: at("agent")}, {Kind: teardown.ResourceSecret, Path: at("token")}},
	})
}

func (s *stage) repository(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte("# A project\n"), 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"commit", "-q", "-m", "Begin"}} {
		if err := s.git(dir, args...); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) register(manifest teardown.Manifest) error {
	text, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	path := filepath.Join(s.dir, manifest.ID, "session.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	return s.show("session", "add", "-f", path)
}

// terminate ends a session and waits; it fails unless it ends as expected.
func (s *stage) terminate(a session, expected teardown.Outcome) error {
	say("Watch it: %s/namespaces/default/workflows/%s", s.up.WebUI, teardown.FinalizeSessionID(a.id))
	result, err := s.wait("terminate", a.id, "--wait")
	if err == nil && result.Outcome != expected {
		err = fmt.Errorf("session %s ended as %s, not as %s: %s", a.id, result.Outcome, expected, result.Failure.Message)
	}
	if err != nil {
		return err
	}
	s.note(a.id, result)
	say("Session %s: %s", a.id, result.Outcome)
	return nil
}

func (s *stage) retry(a session) error {
	result, err := s.wait("retry", a.id, "--wait")
	if err == nil && result.Outcome != teardown.OutcomeFinalized {
		err = fmt.Errorf("session %s ended as %s: %s", a.id, result.Outcome, result.Failure.Message)
	}
	if err != nil {
		return err
	}
	s.note(a.id, result)
	say("Session %s: %s", a.id, result.Outcome)
	return nil
}

func (s *stage) note(id string, result teardown.Result) {
	if i := slices.IndexFunc(s.played, func(p played) bool { return p.id == id }); i >= 0 {
		s.played[i].result = result
		return
	}
	s.played = append(s.played, played{id: id, result: result})
}

// wait runs a command of unwind's that prints a result at its end.
func (s *stage) wait(args ...string) (teardown.Result, error) {
	say("$ unwind %s", strings.Join(args, " "))
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(s.ctx, s.unwind, append(args, "--json")...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = s.env, s.dir, &out, &errs
	runErr := cmd.Run()
	var result teardown.Result
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &result); err != nil || result.Outcome == "" {
		return result, fmt.Errorf("unwind %s: %w: %s%s", strings.Join(args, " "), errors.Join(runErr, err), out.String(), errs.String())
	}
	return result, nil
}

// show runs a command of unwind's as a person would, and shows what it says.
func (s *stage) show(args ...string) error {
	say("$ unwind %s", strings.Join(args, " "))
	cmd := exec.CommandContext(s.ctx, s.unwind, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = s.env, s.dir, os.Stdout, os.Stderr
	return cmd.Run()
}

func (s *stage) git(dir string, args ...string) error {
	return s.quietly("git", append([]string{"-C", dir}, args...)...)
}

func (s *stage) tmux(args ...string) error {
	return s.quietly("tmux", append([]string{"-f", "/dev/null", "-S", s.socket}, args...)...)
}

func (s *stage) quietly(program string, args ...string) error {
	cmd := exec.CommandContext(s.ctx, program, args...)
	cmd.Env, cmd.Dir = s.env, s.dir
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, output)
	}
	return nil
}

func (s *stage) summary() error {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "SESSION\tOUTCOME\tRUNTIME\tWORKTREES\tRESOURCES\tATTEMPTS")
	for _, p := range s.played {
		worktrees := map[teardown.Disposition]int{}
		var order []string
		for _, w := range p.result.Worktrees {
			if worktrees[w.Disposition]++; worktrees[w.Disposition] == 1 {
				order = append(order, string(w.Disposition))
			}
		}
		for i, disposition := range order {
			order[i] = fmt.Sprintf("%d %s", worktrees[teardown.Disposition(disposition)], disposition)
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d cleared\t%d\n", p.id, p.result.Outcome, p.result.Runtimes[0].Outcome,
			strings.Join(order, ", "), p.result.Resources.Cleared, p.result.Attempts)
	}
	return table.Flush()
}
