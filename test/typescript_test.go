package test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/teardown"
)

// packagePatience bounds the installation of the example's packages, which may
// have to be fetched.
const packagePatience = 4 * time.Minute

// buildTypescript builds the example in a directory of its own, which it answers.
func buildTypescript(t *testing.T) string {
	t.Helper()
	requireNode(t)
	source, dir := filepath.Join("..", "examples", "typescript"), filepath.Join(realTempDir(t, ""), "typescript")
	require.NoError(t, os.CopyFS(filepath.Join(dir, "src"), os.DirFS(filepath.Join(source, "src"))))
	for _, name := range []string{".npmrc", "package.json", "package-lock.json", "tsconfig.json"} {
		content, err := os.ReadFile(filepath.Join(source, name))
		require.NoError(t, err)
		write(t, filepath.Join(dir, name), string(content))
	}
	for _, args := range [][]string{{"ci", "--prefer-offline"}, {"run", "build"}} {
		ctx, cancel := context.WithTimeout(t.Context(), packagePatience)
		cmd := exec.CommandContext(ctx, "npm", args...)
		cmd.Dir = dir
		output, err := cmd.CombinedOutput()
		cancel()
		require.NoError(t, err, "npm %v: %s", args, output)
	}
	return dir
}

func requireNode(t *testing.T) {
	t.Helper()
	const install = "install Node 18 or later and npm (Debian: apt-get install nodejs npm; macOS: brew install node)"
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is missing: %s", program, install)
		}
	}
	version, err := exec.Command("node", "--version").Output()
	require.NoError(t, err)
	major, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < 18 {
		t.Fatalf("node is %s, which is too old: %s", strings.TrimSpace(string(version)), install)
	}
}

// typescript starts the example's program.
func (i *installation) typescript(dir string, agents ...*agent) *typescript {
	i.t.Helper()
	p := &typescript{Cmd: exec.Command("node", filepath.Join(dir, "lib", "main.js"))}
	for _, a := range agents {
		p.Args = append(p.Args, a.id)
	}
	p.Env = i.environment()
	p.Stdout, p.Stderr = &p.out, &p.errors
	require.NoError(i.t, p.Start())
	i.t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}

// typescript is a run of the example's program.
type typescript struct {
	*exec.Cmd
	out, errors bytes.Buffer
}

// closed is what the program printed.
func (p *typescript) closed(t *testing.T) (closed []closedSession) {
	t.Helper()
	decoder := json.NewDecoder(&p.out)
	for decoder.More() {
		var session closedSession
		require.NoError(t, decoder.Decode(&session), p.errors.String())
		closed = append(closed, session)
	}
	return closed
}

func TestTypeScriptParent(t *testing.T) {
	t.Parallel()
	built := buildTypescript(t)

	t.Run("goes on when a session is kept, live, or finalized elsewhere", func(t *testing.T) {
		t.Parallel()
		i := install(t)
		i.env = []string{"UNWIND_RECONCILE_INTERVAL=1h"}
		i.worker()
		child, dirty, live, elsewhere := i.agent("child"), i.agent("dirty"), i.agent("live"), i.agent("elsewhere")
		for _, a := range []*agent{dirty, elsewhere} {
			write(t, filepath.Join(a.nested, "draft.md"), "mine\n")
		}
		for _, a := range []*agent{child, dirty, live, elsewhere} {
			i.add(a)
		}
		i.terminateOnly(child)
		i.terminateOnly(dirty)
		i.result(3, "terminate", elsewhere.id, "--wait")

		program := i.typescript(built, child, dirty, live, elsewhere)
		_ = program.Wait()
		require.Equal(t, 3, program.ProcessState.ExitCode(), program.errors.String())
		closed := program.closed(t)
		require.Len(t, closed, 4)
		for n, a := range []*agent{child, dirty, live, elsewhere} {
			require.Equal(t, a.id, closed[n].SessionID)
		}
		require.Equal(t, teardown.OutcomeFinalized, closed[0].Outcome)
		i.requireReleased(child)
		for _, kept := range []closedSession{closed[1], closed[3]} {
			require.Equal(t, teardown.OutcomePreserved, kept.Outcome)
			require.Len(t, kept.Kept, 2)
		}
		require.Equal(t, teardown.CodeSessionLive, closed[2].Error.Code)
	})

	t.Run("cancelled, cancels no finalization", func(t *testing.T) {
		t.Parallel()
		i := install(t)
		i.env = []string{"UNWIND_RECONCILE_INTERVAL=1h"}
		a := i.agent("s1")
		i.add(a)
		i.terminateOnly(a)
		// No worker of unwind yet: the child is open when its parent is cancelled.
		program := i.typescript(built, a)
		child := i.untilStarted(a)
		require.NoError(t, program.Process.Signal(os.Interrupt))
		require.Error(t, program.Wait())
		require.Contains(t, program.errors.String(), "cancelled")

		i.worker()
		i.requireFinalizedBy(child)
		i.requireReleased(a)
	})
}
