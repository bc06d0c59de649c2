package pgtest

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The shell outlives the test process by as long as it takes to stop the server:
// its standard input ends when the process does, however it dies. So nothing is
// orphaned, and no test needs a TestMain. It says when the server has ended. A
// cluster that was started again has had several guardians, each for its server.
const guardian = `
exec 3<&0
"$1" -D "$2/data" -k "$2" >>"$2/log" 2>&1 </dev/null 3<&- &
server=$!
(while read -r _; do :; done; [ -e "$2/ended.$server" ] || kill -QUIT "$server") <&3 >/dev/null 2>&1 &
reader=$!
trap '' PIPE
wait "$server"
: >"$2/ended.$server"
echo ended
wait "$reader"
cd / && rm -rf "$2"
`

// Durability is of no use to a test; a time zone far from UTC is: it shows what
// forgot to convert.
const configuration = `
listen_addresses = ''
fsync = off
synchronous_commit = off
full_page_writes = off
wal_level = minimal
max_wal_senders = 0
max_connections = 300
shared_buffers = 32MB
autovacuum = off
timezone = 'America/St_Johns'
`

// cluster is a private one below the temporary directory.
type cluster struct {
	postgres, dir string
	owner         *syscall.Credential
	guards        []guard // of the servers that it has had
}

// makeCluster makes one and starts it.
func makeCluster() (*cluster, error) {
	initdb, postgres, err := binaries()
	if err != nil {
		return nil, err
	}
	owner, err := clusterOwner()
	if err != nil {
		return nil, err
	}
	dir, err := clusterDirectory(owner)
	if err != nil {
		return nil, err
	}
	if err := initialize(initdb, dir, owner); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	c := &cluster{postgres: postgres, dir: dir, owner: owner}
	return c, c.start()
}

// url is that of a database that is always there.
func (c *cluster) url() *url.URL {
	return &url.URL{Scheme: "postgres", User: url.User("unwind"), Path: "/postgres",
		RawQuery: url.Values{"host": {c.dir}, "sslmode": {"disable"}}.Encode()}
}

func (c *cluster) start() error {
	guard, err := launch(c.postgres, c.dir, c.owner)
	if err != nil {
		_ = os.RemoveAll(c.dir)
		return err
	}
	c.guards = append(c.guards, guard)
	if err := awaitAnswer(c.url(), guard.ended); err != nil {
		log, _ := os.ReadFile(filepath.Join(c.dir, "log"))
		c.remove()
		return fmt.Errorf("the private Postgres did not start: %w\n%s", err, log)
	}
	return nil
}

// stop ends the server by a signal of Postgres's own and waits until it has ended.
func (c *cluster) stop(how syscall.Signal) error {
	content, err := os.ReadFile(filepath.Join(c.dir, "data", "postmaster.pid"))
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, how); err != nil {
		return err
	}
	select {
	case <-c.guards[len(c.guards)-1].ended:
		return nil
	case <-time.After(patience):
		return errors.New("the private Postgres did not stop")
	}
}

// remove stops what runs and removes the directory; the guardians do so a moment
// later.
func (c *cluster) remove() {
	for _, guard := range c.guards {
		_ = guard.stdin.Close()
	}
}

// binaries finds initdb and postgres of one installation.
func binaries() (initdb, postgres string, err error) {
	for _, name := range []string{"initdb", "postgres"} {
		if found, err := exec.LookPath(name); err == nil {
			if real, err := filepath.EvalSymlinks(found); err == nil {
				if initdb, postgres, ok := bothIn(filepath.Dir(real)); ok {
					return initdb, postgres, nil
				}
			}
		}
	}
	// Debian keeps them off the PATH; any version will do.
	directories, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	for i := len(directories) - 1; i >= 0; i-- {
		if initdb, postgres, ok := bothIn(directories[i]); ok {
			return initdb, postgres, nil
		}
	}
	return "", "", errors.New("no Postgres server is installed: install the package postgresql (initdb and postgres on PATH or below " +
		"/usr/lib/postgresql), or set UNWIND_TEST_POSTGRES_URL to a server where databases may be created")
}

func bothIn(dir string) (initdb, postgres string, ok bool) {
	initdb, postgres = filepath.Join(dir, "initdb"), filepath.Join(dir, "postgres")
	for _, file := range []string{initdb, postgres} {
		if info, err := os.Stat(file); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return "", "", false
		}
	}
	return initdb, postgres, true
}

// clusterOwner is who the server runs as: it refuses to run as root.
func clusterOwner() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if errUID == nil && errGID == nil && uid != 0 {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("there is no user postgres or nobody to run Postgres as, which refuses to run as root: run the tests as another user")
}

// clusterDirectory makes a directory that the owner can reach and whose name is
// short enough for a socket's path (107 bytes).
func clusterDirectory(owner *syscall.Credential) (string, error) {
	parents := []string{os.TempDir(), "/tmp"}
	for _, parent := range parents {
		if len(parent) > 60 || (owner != nil && !openToAll(parent)) {
			continue
		}
		dir, err := os.MkdirTemp(parent, "unwind-pg-")
		if err != nil {
			continue
		}
		if owner != nil {
			if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
				_ = os.Remove(dir)
				return "", err
			}
		}
		return dir, nil
	}
	return "", fmt.Errorf("no directory for a private Postgres: none of %s can be used", strings.Join(parents, ", "))
}

// openToAll reports whether every user may enter the directory.
func openToAll(dir string) bool {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for {
		info, err := os.Stat(real)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if real == "/" {
			return true
		}
		real = filepath.Dir(real)
	}
}

func initialize(initdb, dir string, owner *syscall.Credential) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, initdb, "-D", filepath.Join(dir, "data"), "-U", "unwind",
		"--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions")
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: owner}
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, bytes.TrimSpace(output))
	}
	config, err := os.OpenFile(filepath.Join(dir, "data", "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := config.WriteString(configuration); err != nil {
		_ = config.Close()
		return err
	}
	return config.Close()
}

// guard is the test process's end of the guardian.
type guard struct {
	stdin io.Closer       // closing it stops the server and removes its directory
	ended <-chan struct{} // closed when the server has ended
}

// launch starts the server under its guardian.
func launch(postgres, dir string, owner *syscall.Credential) (guard, error) {
	cmd := exec.Command("/bin/sh", "-c", guardian, "unwind-pgtest", postgres, dir)
	cmd.Dir = dir
	// Of its own process group: an interrupt from the keyboard is for the test;
	// the server is stopped in order once that is gone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner, Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return guard{}, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return guard{}, err
	}
	if err := cmd.Start(); err != nil {
		return guard{}, err
	}
	ended := make(chan struct{})
	// It lasts as long as the server, and so keeps cmd, and with it stdin, from
	// the garbage collector, which would close the file.
	go func() {
		_, _ = bufio.NewReader(stdout).ReadString('\n')
		close(ended)
		_ = cmd.Wait()
	}()
	return guard{stdin: stdin, ended: ended}, nil
}

func awaitAnswer(u *url.URL, ended <-chan struct{}) error {
	db, err := sql.Open("postgres", u.String())
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("it ended: %w", err)
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}
