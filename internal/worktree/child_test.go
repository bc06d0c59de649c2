package worktree

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unwind/internal/lock"
)

// childJob is what a child process of a test does: one removal, killed at a
// step.
type childJob struct {
	Root    string
	Targets []Target
	// KillAt is the step at which the child kills itself, "" for never.
	KillAt string
	// Journal is the file of a fileJournal; "" for RemoveAll with its own.
	Journal string
	// Save: uncommitted work is saved first.
	Save bool
	// Temporary is the child's directory for temporary files, "" for ours.
	Temporary string
	// Bind is mounted on itself first, in a mount namespace of the child's own.
	Bind string
	// Dead is where a file system is mounted first, in the same way, that never
	// answers.
	Dead string
}

func (j childJob) engine() *Engine {
	return &Engine{Roots: []string{j.Root}, Home: j.Root + "/home", Locks: lock.Dir(j.Root + "/locks"), LockWait: 10 * time.Second,
		answerIn: j.answerIn(),
		reached: func(step string) {
			if step == j.KillAt {
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
				select {}
			}
		}}
}

func (j childJob) answerIn() time.Duration {
	if j.Dead != "" {
		return 2 * time.Second
	}
	return 0
}

// runChild prints the verdicts as a JSON list.
func runChild(text string) int {
	var job childJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if job.Bind != "" {
		if err := bindPrivately(job.Bind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return noNamespace
		}
	}
	var reports []Report
	if job.Dead != "" {
		if err := mountDead(job.Dead); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return noNamespace
		}
	}
	if job.Journal == "" {
		reports = job.engine().RemoveAll(context.Background(), job.Targets, AllHooks{SaveChanges: job.Save})
	} else {
		report, err := job.engine().Remove(context.Background(), job.Targets[0], &fileJournal{path: job.Journal}, rowHooks(job.Save))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		reports = append(reports, report)
	}
	verdicts := make([]string, len(reports))
	for i, report := range reports {
		verdicts[i] = verdict(report)
	}
	if err := json.NewEncoder(os.Stdout).Encode(verdicts); err != nil {
		return 2
	}
	return 0
}

// rowHooks are those of a finalization.
func rowHooks(save bool) Hooks {
	hooks := Hooks{Name: "row1"}
	if save {
		hooks.SaveRef = SavedRef("s1", 1, "row1")
	}
	return hooks
}

func (j childJob) command(t testing.TB) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), childMode+"="+string(text))
	if j.Temporary != "" {
		cmd.Env = append(cmd.Env, "TMPDIR="+j.Temporary)
	}
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	return cmd
}

// fileJournal stands for the database: it is not in the worktree's admin
// directory.
type fileJournal struct {
	path string
	// fail, if set, is asked before a write.
	fail func(step string) error
	// losesAnswer: the write is done, and then reported as failed.
	losesAnswer bool
}

func (j *fileJournal) read() record {
	var r record
	if text, err := os.ReadFile(j.path); err == nil {
		_ = json.Unmarshal(text, &r)
	}
	return r
}

func (j *fileJournal) write(step string, r record) error {
	var failed error
	if j.fail != nil {
		failed = j.fail(step)
	}
	if failed != nil && !j.losesAnswer {
		return failed
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := writeDurably(j.path, text); err != nil {
		return err
	}
	return failed
}

func (j *fileJournal) Quarantine() (string, bool) {
	r := j.read()
	return string(r.Quarantine), r.Condemned
}

func (j *fileJournal) SavedRef() string { return j.read().Saved }

func (j *fileJournal) Saved(_ context.Context, ref string) error {
	r := j.read()
	r.Saved = ref
	return j.write("saved", r)
}

func (j *fileJournal) MovingAside(_ context.Context, path string) error {
	return j.write("moving aside", record{Quarantine: []byte(path), Saved: j.read().Saved})
}

func (j *fileJournal) Condemned(context.Context) error {
	return j.write("condemned", record{Quarantine: j.read().Quarantine, Condemned: true, Saved: j.read().Saved})
}
