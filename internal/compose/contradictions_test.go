package compose_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"unwind/internal/compose"
	"unwind/teardown"
)

// sound is a project without a contradiction; each test spoils it.
const sound = `
name: sound
services:
  db:
    image: postgres:16.15
    environment: {POSTGRES_USER: unwind, POSTGRES_PASSWORD: hush}
  temporal:
    image: temporalio/server:1.32.0
    depends_on: [schema]
  schema:
    image: temporalio/admin-tools:1.32.0
  worker:
    image: registry.example:5000/team/unwind:1.2.3
    depends_on: [db, temporal]
    stop_grace_period: 1m
    environment:
      UNWIND_DATABASE_URL: postgres://unwind:hush@db/unwind?sslmode=disable
      TEMPORAL_ADDRESS: temporal:7233
    volumes: ["state:/var/lib/unwind"]
volumes: {state: {}}
`

func TestContradictions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoils string   // a second file
		want   []string // parts of the sentences, one each
	}{
		"none":         {spoils: `services: {}`},
		"other images": {`services: {schema: {image: "temporalio/admin-tools:1.31.0"}}`, []string{"give both the same tag"}},
		"a setting that does not exist": {`services: {worker: {environment: {UNWIND_ROOT: /src}}}`,
			[]string{"service worker: UNWIND_ROOT is no setting"}},
		"a value that is not understood": {`services: {worker: {environment: {UNWIND_PARALLEL: many}}}`, []string{"UNWIND_PARALLEL (--parallel) is \"many\""}},
		"a database without a service": {`services: {worker: {environment: {UNWIND_DATABASE_URL: "postgres://unwind:hush@database/unwind"}}}`,
			[]string{`UNWIND_DATABASE_URL leads to "database", and there is no such service`}},
		"another password": {`services: {worker: {environment: {UNWIND_DATABASE_URL: "postgres://unwind:other@db/unwind"}}}`,
			[]string{"is not POSTGRES_PASSWORD of service db"}},
		"the container itself": {`services: {worker: {environment: {TEMPORAL_ADDRESS: "localhost:7233"}}}`,
			[]string{"TEMPORAL_ADDRESS leads to localhost, which is the container itself"}},
		"the host's network": {spoils: `services: {worker: {network_mode: host, environment: {TEMPORAL_ADDRESS: "localhost:7233"}}}`},
		"another machine":    {spoils: `services: {worker: {environment: {TEMPORAL_ADDRESS: "temporal.example:7233"}}}`},
		"an alias":           {spoils: `{services: {temporal: {networks: {default: {aliases: [front]}}}, worker: {environment: {TEMPORAL_ADDRESS: "front:7233"}}}}`},
		"no port":            {`services: {worker: {environment: {TEMPORAL_ADDRESS: "temporal"}}}`, []string{"has to be host:port"}},
		"not waited for": {`{services: {other: {image: "postgres:16.15"}, worker: {environment: {UNWIND_DATABASE_URL: "postgres://unwind:hush@other/unwind"}}}}`,
			[]string{"leads to service other, which it does not wait for"}},
		"waited for by another": {spoils: `{services: {other: {image: "postgres:16.15"}, db: {depends_on: [other]},
			worker: {environment: {UNWIND_DATABASE_URL: "postgres://unwind:hush@other/unwind"}}}}`},
		"killed too early": {`services: {worker: {stop_grace_period: 20s}}`, []string{"stop_grace_period of 20s, before UNWIND_STOP_TIMEOUT (30s)"}},
		"long steps":       {`services: {worker: {environment: {UNWIND_STOP_TIMEOUT: 2m}}}`, []string{"stop_grace_period of 1m0s, before UNWIND_STOP_TIMEOUT (2m0s)"}},
		"two databases": {`{services: {migrate: {image: unwind:1, command: [migrate], entrypoint: [unwind], depends_on: [db],
			environment: {UNWIND_DATABASE_URL: "postgres://unwind:hush@db/other"}}}}`, []string{"its UNWIND_DATABASE_URL is not that of service migrate"}},
		"state that is lost": {`services: {worker: {environment: {UNWIND_STATE_DIR: /state}}}`, []string{"state directory /state is not on a volume"}},
		"roots that are not there": {`services: {worker: {environment: {UNWIND_ROOTS: /unwind-src}}}`,
			[]string{"names /unwind-src, which is not mounted from the host"}},
		"other paths than the host's": {`services: {worker: {pid: host, environment: {UNWIND_ROOTS: /unwind-src}, volumes: ["/home/ada:/unwind-src"]}}`,
			[]string{"/home/ada of the host is mounted as /unwind-src"}},
		"other processes than the host's": {`services: {worker: {environment: {UNWIND_ROOTS: /unwind-src}, volumes: ["/unwind-src:/unwind-src"]}}`,
			[]string{"add `pid: host`"}},
		"the host's paths and processes": {spoils: `services: {worker: {pid: host, environment: {UNWIND_ROOTS: /unwind-src/wt}, volumes: ["/unwind-src:/unwind-src"]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			project, err := compose.Load(t.Context(), nil, file(t, sound), file(t, c.spoils))
			require.NoError(t, err)
			found := compose.Contradictions(project)
			require.Len(t, found, len(c.want), found)
			for i, want := range c.want {
				require.Contains(t, found[i], want)
			}
			for _, sentence := range found {
				require.NotContains(t, sentence, "hush")
				require.NotContains(t, sentence, "other@")
			}
		})
	}
}

func TestLoadSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ content, want string }{
		{"services: {worker: {image: [1]}}", "image"},
		{"services: {worker: {image: a, depends_on: [nobody]}}", "nobody"},
		{"services: {a: {image: a, depends_on: [b]}, b: {image: b, depends_on: [a]}}", "cycle"},
		{"services: {a: {image: a, volumes: ['state:/x']}}", "state"},
	} {
		_, err := compose.Load(t.Context(), nil, file(t, c.content))
		require.ErrorContains(t, err, c.want)
		require.EqualValues(t, "invalid_config", teardown.CodeOf(err))
	}
	_, err := compose.Load(t.Context(), nil, filepath.Join(t.TempDir(), "none.yml"))
	require.ErrorContains(t, err, "none.yml")
}

func TestVariablesComeFromEnvFileAndEnvironment(t *testing.T) {
	t.Parallel()
	path := file(t, "services: {a: {image: 'a:${TAG}', hostname: '${NAME:-x}'}}")
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), ".env"), []byte("TAG=1\nNAME=file\n"), 0o600))
	project, err := compose.Load(t.Context(), []string{"NAME=given"}, path)
	require.NoError(t, err)
	require.Equal(t, "a:1", project.Services["a"].Image)
	require.Equal(t, "given", project.Services["a"].Hostname)
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "compose.yml")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}
