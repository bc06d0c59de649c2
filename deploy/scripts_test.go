package deploy_test

import (
	"cmp"
	"crypto/rand"
	"database/sql"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"unwind/test/devserver"
	"unwind/test/pgtest"
)

func TestScriptsCanBeRun(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("*/*.sh")
	require.NoError(t, err)
	require.Len(t, scripts, 2)
	for _, script := range scripts {
		info, err := os.Stat(script)
		require.NoError(t, err)
		require.EqualValues(t, 0o111, info.Mode().Perm()&0o111, "%s has to be executable for the container's user", script)
		output, err := exec.Command("sh", "-n", script).CombinedOutput()
		require.NoError(t, err, string(output))
		content, err := os.ReadFile(script)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(content), "#!/bin/sh\n"), script)
	}
}

// run runs a script or program in an environment of its own and answers what it
// wrote.
func run(t *testing.T, env []string, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env = append([]string{"HOME=" + t.TempDir(), "LC_ALL=C"}, env...)
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", strings.Join(command, " "), output)
	return string(output)
}

func path(directories ...string) string {
	return "PATH=" + strings.Join(append(directories, os.Getenv("PATH")), ":")
}

// The script of Postgres's first start makes the application's user and database,
// leaves them when it is run again, and sets the password that is given.
func TestApplicationDatabase(t *testing.T) {
	t.Parallel()
	server := pgtest.Database(t)
	if query(t, server, "SELECT rolsuper::text FROM pg_roles WHERE rolname = current_user") != "true" {
		t.Skip("the role of UNWIND_TEST_POSTGRES_URL is not that of an administrator, as which the script runs")
	}
	user, database := "a "+unique(), unique()
	t.Cleanup(func() { statement(t, server, "DROP ROLE IF EXISTS "+pq.QuoteIdentifier(user)) })
	dropAfterwards(t, server, database)
	const last = `an"other \one`
	hashes := map[string]bool{}
	for _, password := range []string{"it's", "it's", last} {
		// As the image's entrypoint runs it.
		run(t, []string{path(postgresPrograms()...), "APPLICATION_USER=" + user, "APPLICATION_DATABASE=" + database, "APPLICATION_PASSWORD=" + password},
			"psql", "-v", "ON_ERROR_STOP=1", "--no-password", "--no-psqlrc", "--dbname", server, "--file", "postgres/application.sql")
		hashes[query(t, server, "SELECT rolpassword FROM pg_authid WHERE rolname = $1", user)] = true
	}
	require.Len(t, hashes, 3, "each time the password is set anew, with a salt of its own")

	own, err := url.Parse(server)
	require.NoError(t, err)
	own.User, own.Path = url.UserPassword(user, last), "/"+database
	statement(t, own.String(), "CREATE TABLE mine (id TEXT)")
	require.Equal(t, "false", query(t, server, "SELECT (rolsuper OR rolcreatedb OR rolcreaterole)::text FROM pg_roles WHERE rolname = $1", user))
	require.Equal(t, user, query(t, server, "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = $1", database))
	require.Equal(t, "false", query(t, server, `SELECT EXISTS (SELECT FROM pg_database, aclexplode(datacl)
		WHERE datname = $1 AND grantee = 0)::text`, database), "nobody else may connect")
}

// The script makes Temporal's databases with Temporal's own tool, again as often
// as it is run, and after it was interrupted.
func TestTemporalSchema(t *testing.T) {
	t.Parallel()
	server := pgtest.Database(t)
	tool := sqlTool(t)
	u, err := url.Parse(server)
	require.NoError(t, err)
	password, _ := u.User.Password()
	main, visibility := unique(), unique()
	dropAfterwards(t, server, main, visibility)
	address, port, err := net.SplitHostPort(tcp(t, u))
	require.NoError(t, err)
	env := []string{path(filepath.Dir(tool)), "SQL_PLUGIN=postgres12", "SQL_HOST=" + address, "SQL_PORT=" + port,
		"SQL_USER=" + u.User.Username(), "SQL_PASSWORD=" + password, "DBNAME=" + main, "VISIBILITY_DBNAME=" + visibility}

	// What an interrupted run leaves.
	run(t, env, tool, "--database", main, "create-database")
	run(t, env, tool, "--database", main, "setup-schema", "--version", "0.0")
	versions := map[string]string{}
	for range 2 {
		run(t, env, "./temporal/schema.sh")
		for _, database := range []string{main, visibility} {
			u.Path = "/" + database
			version := query(t, u.String(), "SELECT curr_version FROM schema_version")
			require.NotEqual(t, "0.0", version)
			if earlier := versions[database]; earlier != "" {
				require.Equal(t, earlier, version)
			}
			versions[database] = version
		}
	}
	u.Path = "/" + main
	require.Equal(t, "0", query(t, u.String(), "SELECT count(*) FROM executions"))
	u.Path = "/" + visibility
	require.Equal(t, "0", query(t, u.String(), "SELECT count(*) FROM executions_visibility"))
}

func TestNamespace(t *testing.T) {
	t.Parallel()
	server := devserver.Start(t)
	programs := t.TempDir()
	cli := os.Getenv("TEMPORAL_CLI")
	if cli == "" {
		cli = "../bin/temporal"
	}
	cli, err := filepath.Abs(cli)
	require.NoError(t, err)
	require.NoError(t, os.Symlink(cli, filepath.Join(programs, "temporal")))
	namespace := unique()
	env := []string{path(programs), "TEMPORAL_ADDRESS=" + server.Address, "TEMPORAL_NAMESPACE=" + namespace, "RETENTION=72h"}
	run(t, env, "./temporal/namespace.sh")
	require.Contains(t, run(t, env, "temporal/namespace.sh"), "is there.")
	require.Contains(t, run(t, env, cli, "operator", "namespace", "describe", "-n", namespace), "72h")
}

// sqlTool builds Temporal's own tool for its schemas, of the version of the
// development server.
func sqlTool(t *testing.T) string {
	t.Helper()
	tool := filepath.Join(t.TempDir(), "temporal-sql-tool")
	build(t, "..", os.Environ(), "-modfile=tools.mod", "-o", tool, "go.temporal.io/server/cmd/tools/sql")
	return tool
}

func build(t *testing.T, dir string, env []string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-buildvcs=false"}, args...)...)
	cmd.Dir, cmd.Env = dir, env
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, string(output))
}

// postgresPrograms are where Debian keeps psql if it is not on the PATH.
func postgresPrograms() []string {
	directories, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	return directories
}

// unique is a name for a database, role or namespace that nobody else has.
func unique() string { return "unwind_test_" + strings.ToLower(rand.Text()[:10]) }

// tcp is where a server is reached by TCP, which is all that Temporal's tool
// knows. A private one has a socket only, to which it leads.
func tcp(t *testing.T, server *url.URL) string {
	t.Helper()
	directory := server.Query().Get("host")
	if !strings.HasPrefix(directory, "/") {
		return net.JoinHostPort(cmp.Or(server.Hostname(), directory, "localhost"), cmp.Or(server.Port(), server.Query().Get("port"), "5432"))
	}
	socket := filepath.Join(directory, ".s.PGSQL."+cmp.Or(server.Port(), server.Query().Get("port"), "5432"))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go connect(client, socket)
		}
	}()
	return listener.Addr().String()
}

func connect(client net.Conn, socket string) {
	defer client.Close()
	server, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(client, server) }()
	_, _ = io.Copy(server, client)
}

func open(t *testing.T, server string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", server)
	require.NoError(t, err)
	return db
}

func statement(t *testing.T, server, text string) {
	t.Helper()
	db := open(t, server)
	defer db.Close()
	_, err := db.Exec(text)
	require.NoError(t, err)
}

func query(t *testing.T, server, text string, args ...any) (answer string) {
	t.Helper()
	db := open(t, server)
	defer db.Close()
	require.NoError(t, db.QueryRow(text, args...).Scan(&answer))
	return answer
}

func dropAfterwards(t *testing.T, server string, databases ...string) {
	t.Helper()
	t.Cleanup(func() {
		for _, database := range databases {
			statement(t, server, "DROP DATABASE IF EXISTS "+pq.QuoteIdentifier(database)+" WITH (FORCE)")
		}
	})
}
