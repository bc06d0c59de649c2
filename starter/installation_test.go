package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/internal/lock"
	"unwind/internal/store"
	"unwind/teardown"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.run("migrate", "--status", "--json")
	require.Equal(t, exitRefused, r.code)
	before := object[migration](t, r.stdout)
	require.Zero(t, before.Have)
	require.Contains(t, r.stderr, "run `unwind migrate`")
	require.NoFileExists(t, filepath.Join(b.state, "unwind.db"))

	require.Contains(t, b.must("migrate"), "The database went from schema version 0 to ")
	require.Contains(t, b.must("migrate"), "nothing to do")
	after := object[migration](t, b.must("migrate", "--status", "--json"))
	require.Equal(t, before.Want, after.Have)
}

// A database of another version is refused by every command, and left alone.
func TestDatabaseOfAnotherVersion(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must("migrate")
	newerSchema(t, filepath.Join(b.state, "unwind.db"))
	for _, args := range [][]string{{"list"}, {"status", "s1"}, {"terminate", "s1"}, {"migrate"}, {"reconcile"}} {
		r := b.run(append(args, "--json")...)
		require.Equal(t, exitRefused, r.code, args)
		require.Equal(t, teardown.CodeSchemaVersion, object[printedError](t, r.stdout).Error.Code, args)
	}
	r := b.run("doctor")
	require.Contains(t, r.stdout, "use a newer unwind")
}

func TestDatabaseThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.environment = b.environment.with("UNWIND_DATABASE_URL=postgres://u:hush@127.0.0.1:1/unwind?sslmode=disable")
	for _, args := range [][]string{{"list"}, {"status", "s1"}, {"terminate", "s1"}, {"hosts"}, {"migrate"}} {
		r := b.run(append(args, "--json")...)
		require.Equal(t, exitUnavailable, r.code, args)
		require.Equal(t, teardown.CodeDatabaseUnavailable, object[printedError](t, r.stdout).Error.Code, args)
		require.NotContains(t, r.stdout+r.stderr, "hush")
	}
}

// A database is made only where it belongs: a misspelt directory is not.
func TestDatabaseInADirectoryThatDoesNotExist(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dir := filepath.Join(b.root, "misspelt")
	b.environment = b.environment.with("UNWIND_DATABASE_URL=sqlite://" + dir + "/unwind.db")
	for _, line := range []string{"list", "status s1", "watch s1", "terminate s1", "retry s1", "hold s1", "plan s1", "hosts", "migrate", "reconcile"} {
		r := b.run(append(strings.Fields(line), "--json")...)
		require.Equal(t, exitUnavailable, r.code, line)
		require.Contains(t, r.stderr, "there is no directory "+dir+" for the database; correct UNWIND_DATABASE_URL", line)
		require.NoDirExists(t, dir, line)
	}
	r := b.run("doctor")
	require.Contains(t, r.stdout, "fail\tdatabase\tthere is no directory "+dir)
	require.NoDirExists(t, dir)
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.Empty(t, b.must("list"))
	require.FileExists(t, filepath.Join(dir, "unwind.db"))
}

func TestTemporalThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.run("reconcile", "--json")
	require.Equal(t, exitUnavailable, r.code)
	require.Equal(t, teardown.CodeTemporalUnavailable, object[printedError](t, r.stdout).Error.Code)
	require.Contains(t, r.stderr, "cannot be reached; start one with")
}

func TestHosts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Empty(t, b.must("hosts"))
	require.NoError(t, b.store().SeeHost(t.Context(), store.Host{ID: "h1", Name: "build", Version: "v1"}))
	fields := strings.Split(strings.TrimSpace(b.must("hosts")), "\t")
	require.Equal(t, []string{"h1", "build", "v1"}, fields[:3])
	require.True(t, object[hostReport](t, b.must("hosts", "--json")).This)

	// One that was never seen and has sessions is what an operator looks for.
	_, err := b.store().AddSession(t.Context(), store.NewSession{ID: "s1", Host: "h2", ManifestHash: "m"})
	require.NoError(t, err)
	_, _, err = b.store().Terminate(t.Context(), "s1", "test")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(b.must("hosts")), "\n")
	require.Equal(t, "h2\t\t\tnever\t0\t1\t0\t0", lines[1])
	reports := objects[hostReport](t, b.must("hosts", "--json"))
	require.Equal(t, hostReport{ID: "h2", UnderWay: 1}, reports[1])
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.environment = b.environment.with("UNWIND_ROOT=/x")
	r := b.run("doctor", "--json")
	require.Equal(t, exitUnavailable, r.code)
	results := map[string]string{}
	for _, c := range objects[check](t, r.stdout) {
		results[c.Check] += c.Result + " "
		require.NotEmpty(t, c.Message)
	}
	require.Equal(t, "ok ", results["git"])
	require.Equal(t, "warn ok ", results["settings"])
	require.Equal(t, "ok ", results["state directory"])
	require.Equal(t, "ok ", results["host"])
	require.Equal(t, "ok ", results["roots"])
	require.Equal(t, "ok ", results["database"])
	require.Equal(t, "fail ", results["temporal"])
	require.NoFileExists(t, filepath.Join(b.state, "unwind.db"), "looking makes no database")

	b.must("migrate")
	require.NoError(t, os.Chmod(filepath.Join(b.state, "unwind.db"), 0o666))
	r = b.run("doctor")
	require.Contains(t, r.stdout, "warn\tdatabase\tothers can write")
	require.Contains(t, r.stdout, "no worker of this host was ever seen")

	b.environment = b.environment.with("UNWIND_PARALLEL=many")
	r = b.run("doctor")
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.stdout, "fail\tsettings\tUNWIND_PARALLEL")
}

func TestVersion(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Contains(t, b.must("version"), "unwind ")
	require.NotEmpty(t, object[build](t, b.must("version", "--json")).Version)
}

func TestDevSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.environment = b.environment.with("PATH=", "TEMPORAL_ADDRESS=")
	r := b.run("dev", "--port", "0")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "unwind-worker is neither beside this program nor in the PATH")

	require.NoError(t, os.WriteFile(filepath.Join(b.root, "unwind-worker"), []byte("#!/bin/sh\nexit 0\n"), 0o700))
	r = b.run("dev", "--port", "0")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "make bin/temporal")

	b.environment = b.environment.with("TEMPORAL_ADDRESS=temporal.example:7233")
	r = b.run("dev")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "which is not on this machine")
	require.Equal(t, exitUsage, b.run("dev", "--port", "70000").code)
}

// A port that something else holds is named, with what holds it.
func TestDevSaysWhoHoldsThePort(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, os.WriteFile(filepath.Join(b.root, "unwind-worker"), []byte("#!/bin/sh\nexit 0\n"), 0o700))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_ = connection.Close()
		}
	}()
	port := listener.Addr().(*net.TCPAddr).Port
	r := b.run("dev", "--port", strconv.Itoa(port))
	require.Equal(t, exitUnavailable, r.code)
	require.Contains(t, r.stderr, fmt.Sprintf("port %d is held by ", port))
	require.Contains(t, r.stderr, fmt.Sprintf("(pid %d)", os.Getpid()))
}

func TestDevRunsOnceForAStateDirectory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, os.WriteFile(filepath.Join(b.root, "unwind-worker"), []byte("#!/bin/sh\nexit 0\n"), 0o700))
	held, err := lock.Dir(filepath.Join(b.state, "locks")).Host(t.Context(), "dev", lock.Wait{Limit: time.Second})
	require.NoError(t, err)
	defer held.Release()
	r := b.run("dev", "--port", "0")
	require.Equal(t, exitRefused, r.code)
	require.Contains(t, r.stderr, "`unwind dev` is already running with the state directory")
}
