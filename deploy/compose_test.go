// Package deploy_test checks what unwind is deployed with. There is no Docker
// where it runs: the Compose files are loaded by the Compose specification's own
// library, and what the containers would run is run on its own, on a real
// Postgres and a real Temporal. No image is built or started.
package deploy_test

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"

	"unwind/internal/compose"
	"unwind/internal/config"
)

const composeFile = "../docker-compose.yml"

func load(t *testing.T, environ []string, files ...string) *types.Project {
	t.Helper()
	project, err := compose.Load(t.Context(), environ, append([]string{composeFile}, files...)...)
	require.NoError(t, err)
	return project
}

// expected is what a service of docker-compose.yml has to be.
type expected struct {
	image     string
	ports     []string
	health    []string // the beginning of its test; none for what only runs once
	restart   string
	after     map[string]string // condition by service
	mounts    map[string]string // source, below the repository or a volume's name, by target
	ownImage  bool
	variables []string // that it cannot do without
}

const (
	healthy   = types.ServiceConditionHealthy
	completed = types.ServiceConditionCompletedSuccessfully
	keep      = types.RestartPolicyUnlessStopped
	once      = "on-failure:10"
)

var services = map[string]expected{
	"postgres": {image: "postgres:16.15", ports: []string{"5432"}, health: []string{"CMD", "pg_isready", "-h", "127.0.0.1"}, restart: keep,
		mounts:    map[string]string{"/var/lib/postgresql/data": "postgres-data", "/docker-entrypoint-initdb.d": "deploy/postgres"},
		variables: []string{"POSTGRES_USER", "POSTGRES_PASSWORD", "APPLICATION_USER", "APPLICATION_DATABASE", "APPLICATION_PASSWORD"}},
	"temporal-schema": {image: "temporalio/admin-tools:1.32.0", restart: once, after: map[string]string{"postgres": healthy},
		mounts:    map[string]string{"/scripts": "deploy/temporal"},
		variables: []string{"SQL_PLUGIN", "SQL_HOST", "SQL_PORT", "SQL_USER", "SQL_PASSWORD"}},
	"temporal": {image: "temporalio/server:1.32.0", ports: []string{"7233"}, health: []string{"CMD", "nc", "-z"}, restart: keep,
		after:     map[string]string{"postgres": healthy, "temporal-schema": completed},
		mounts:    map[string]string{"/etc/temporal/config/dynamicconfig/unwind.yaml": "deploy/temporal/dynamicconfig.yaml"},
		variables: []string{"DB", "DB_PORT", "POSTGRES_SEEDS", "POSTGRES_USER", "POSTGRES_PWD", "BIND_ON_IP", "NUM_HISTORY_SHARDS", "DYNAMIC_CONFIG_FILE_PATH"}},
	"temporal-namespace": {image: "temporalio/admin-tools:1.32.0", restart: once, after: map[string]string{"temporal": healthy},
		mounts: map[string]string{"/scripts": "deploy/temporal"}, variables: []string{"TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "RETENTION"}},
	"temporal-ui": {image: "temporalio/ui:2.54.1", ports: []string{"8080"}, health: []string{"CMD", "wget", "-q"}, restart: keep,
		after: map[string]string{"temporal": healthy}, variables: []string{"TEMPORAL_ADDRESS"}},
	"migrate": {image: "unwind:local", ownImage: true, restart: once, after: map[string]string{"postgres": healthy},
		variables: []string{"UNWIND_DATABASE_URL"}},
	"worker": {image: "unwind:local", ownImage: true, health: []string{"CMD", "wget", "-q"}, restart: keep,
		after:     map[string]string{"migrate": completed, "temporal-namespace": completed},
		mounts:    map[string]string{"/var/lib/unwind": "worker-state"},
		variables: []string{"UNWIND_DATABASE_URL", "UNWIND_STATE_DIR", "TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE"}},
	"serve": {image: "unwind:local", ownImage: true, ports: []string{"7391"}, health: []string{"CMD", "wget", "-q"}, restart: keep,
		after: map[string]string{"migrate": completed}, variables: []string{"UNWIND_DATABASE_URL", "UNWIND_LISTEN"}},
}

func TestServices(t *testing.T) {
	t.Parallel()
	project := load(t, nil)
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	require.Equal(t, slices.Sorted(maps.Keys(services)), slices.Sorted(maps.Keys(project.Services)))
	require.ElementsMatch(t, []string{"postgres-data", "worker-state"}, slices.Collect(maps.Keys(project.Volumes)))
	for name, want := range services {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := project.Services[name]
			require.Equal(t, want.image, service.Image)
			require.Equal(t, want.ownImage, service.Build != nil)
			require.Equal(t, want.restart, service.Restart)
			requireLoopback(t, want.ports, service.Ports)
			requireHealth(t, want.health, service.HealthCheck)

			after := map[string]string{}
			for dependency, how := range service.DependsOn {
				require.True(t, how.Required)
				after[dependency] = how.Condition
			}
			require.Len(t, after, len(want.after))
			for dependency, condition := range want.after {
				require.Equal(t, condition, after[dependency], dependency)
				// A condition that the other one cannot meet would hang.
				if condition == healthy {
					require.NotEmpty(t, services[dependency].health)
				}
			}

			mounts := map[string]string{}
			for _, volume := range service.Volumes {
				source := volume.Source
				if volume.Type == types.VolumeTypeBind {
					require.True(t, volume.ReadOnly, volume.Target)
					require.FileExists(t, firstFile(t, source))
					source, err = filepath.Rel(root, source)
					require.NoError(t, err)
				} else {
					require.Contains(t, project.Volumes, source)
				}
				mounts[volume.Target] = source
			}
			require.Len(t, mounts, len(want.mounts))
			for target, source := range want.mounts {
				require.Equal(t, source, mounts[target])
			}
			for _, variable := range want.variables {
				require.NotNil(t, service.Environment[variable], variable)
				require.NotEmpty(t, *service.Environment[variable], variable)
			}
		})
	}
}

var exactTag = regexp.MustCompile(`^[a-z/-]+:\d+\.\d+(\.\d+)?(-[a-z0-9.]+)?$`)

// Every image that is pulled has an exact version, also those of the Dockerfile.
func TestImagesAreExact(t *testing.T) {
	t.Parallel()
	var images []string
	for _, service := range load(t, nil).Services {
		if service.Build == nil {
			images = append(images, service.Image)
		}
	}
	dockerfile, err := os.ReadFile("../Dockerfile")
	require.NoError(t, err)
	for _, from := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(string(dockerfile), -1) {
		images = append(images, from[1])
	}
	require.Len(t, images, 7)
	for _, image := range images {
		require.Regexp(t, exactTag, image)
	}
}

// firstFile is the path itself, or a file in that directory.
func firstFile(t *testing.T, path string) string {
	t.Helper()
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		entries, err := os.ReadDir(path)
		require.NoError(t, err)
		require.NotEmpty(t, entries, path)
		return filepath.Join(path, entries[0].Name())
	}
	return path
}

func requireLoopback(t *testing.T, want []string, ports []types.ServicePortConfig) {
	t.Helper()
	var published []string
	for _, port := range ports {
		require.Equal(t, "127.0.0.1", port.HostIP)
		published = append(published, port.Published)
	}
	require.Equal(t, want, published)
}

func requireHealth(t *testing.T, want []string, check *types.HealthCheckConfig) {
	t.Helper()
	if want == nil {
		require.Nil(t, check)
		return
	}
	require.NotNil(t, check)
	require.False(t, check.Disable)
	require.GreaterOrEqual(t, len(check.Test), len(want))
	require.Equal(t, want, []string(check.Test[:len(want)]))
	for what, duration := range map[string]*types.Duration{"interval": check.Interval, "timeout": check.Timeout, "start_period": check.StartPeriod} {
		require.NotNil(t, duration, what)
		require.Positive(t, time.Duration(*duration), what)
	}
	require.NotNil(t, check.Retries)
}

// What a health check asks has to be where the service serves it.
func TestHealthChecksAskTheRightPort(t *testing.T) {
	t.Parallel()
	project := load(t, nil)
	metrics := *project.Services["worker"].Environment["UNWIND_METRICS_ADDRESS"]
	_, port, err := net.SplitHostPort(*project.Services["serve"].Environment["UNWIND_LISTEN"])
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(int(project.Services["serve"].Ports[0].Target)), port)
	for name, address := range map[string]string{"worker": metrics, "temporal-ui": "127.0.0.1:8080", "serve": "127.0.0.1:" + port} {
		test := project.Services[name].HealthCheck.Test
		require.Contains(t, test[len(test)-1], "http://"+address+"/")
	}
}

// sdkVariables are those of the SDK's envconfig, as far as they are used here.
var sdkVariables = []string{"TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "TEMPORAL_API_KEY", "TEMPORAL_PROFILE", "TEMPORAL_CONFIG_FILE", "TEMPORAL_TLS"}

// secretVariables hold secrets, which are no flags.
var secretVariables = []string{"UNWIND_TOKEN", "UNWIND_WEBHOOK_SECRET"}

// Every variable of unwind's own services exists, and their values are allowed.
func TestVariablesOfOurServicesExist(t *testing.T) {
	t.Parallel()
	for _, project := range []*types.Project{load(t, nil), load(t, host, "compose.host.yml")} {
		for _, name := range []string{"migrate", "worker", "serve"} {
			for variable := range project.Services[name].Environment {
				known := slices.Contains(sdkVariables, variable) || variable == "HOME" || slices.Contains(secretVariables, variable) ||
					slices.ContainsFunc(config.Settings(), func(s config.Setting) bool { return s.Variable == variable })
				require.True(t, known, "%s of service %s", variable, name)
			}
		}
		require.Empty(t, compose.Contradictions(project))
	}
}

// Passwords that are given reach all who need them; nothing else changes.
func TestPasswords(t *testing.T) {
	t.Parallel()
	project := load(t, []string{"POSTGRES_PASSWORD=first1", "APPLICATION_PASSWORD=second2"})
	require.Empty(t, compose.Contradictions(project))
	value := func(service, variable string) string { return *project.Services[service].Environment[variable] }
	for service, variable := range map[string]string{"postgres": "POSTGRES_PASSWORD", "temporal-schema": "SQL_PASSWORD", "temporal": "POSTGRES_PWD"} {
		require.Equal(t, "first1", value(service, variable))
	}
	require.Equal(t, "second2", value("postgres", "APPLICATION_PASSWORD"))
	for _, service := range []string{"migrate", "worker", "serve"} {
		require.Contains(t, value(service, "UNWIND_DATABASE_URL"), "postgres://unwind:second2@postgres:5432/unwind")
	}
}

// The page and the webhooks run on request only, and what they are guarded by comes
// from outside. Without a token serve refuses to listen openly.
func TestServeRunsOnRequest(t *testing.T) {
	t.Parallel()
	project := load(t, []string{"UNWIND_TOKEN=t0ken", "UNWIND_WEBHOOK_SECRET=hush"})
	serve := project.Services["serve"]
	require.Equal(t, []string{"serve"}, serve.Profiles)
	require.Equal(t, []string{"unwind", "serve"}, []string(serve.Entrypoint))
	require.Equal(t, "t0ken", *serve.Environment["UNWIND_TOKEN"])
	require.Equal(t, "hush", *serve.Environment["UNWIND_WEBHOOK_SECRET"])
	require.Empty(t, compose.Contradictions(project))
	for name, service := range project.Services {
		require.Equal(t, name == "serve", len(service.Profiles) > 0, name)
	}
	require.Empty(t, *load(t, nil).Services["serve"].Environment["UNWIND_TOKEN"], "none is made up")
}

var host = []string{"HOME=/home/ada", "HOST_UID=1000", "HOST_GID=1000"}

// With deploy/compose.host.yml the worker is the owner of the sessions, and sees
// what is theirs under the same names.
func TestWorkerForThisHost(t *testing.T) {
	t.Parallel()
	worker := load(t, host, "compose.host.yml").Services["worker"]
	require.Equal(t, "1000:1000", worker.User)
	require.Equal(t, "host", worker.Pid)
	require.Equal(t, "host", worker.Cgroup)
	for _, root := range strings.Split(*worker.Environment["UNWIND_ROOTS"], ":") {
		require.True(t, slices.ContainsFunc(worker.Volumes, func(v types.ServiceVolumeConfig) bool {
			return v.Type == types.VolumeTypeBind && v.Source == root && v.Target == root && !v.ReadOnly
		}), root)
	}
	require.Equal(t, "/home/ada/.local/state/unwind", *worker.Environment["UNWIND_STATE_DIR"])

	_, err := compose.Load(t.Context(), []string{"HOME=/home/ada"}, composeFile, "compose.host.yml")
	require.ErrorContains(t, err, "the owner of the sessions")
}
