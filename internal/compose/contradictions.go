package compose

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/compose-spec/compose-go/v2/types"

	"unwind/internal/config"
)

// Contradictions are what in a project cannot be meant, a sentence each: settings
// of unwind's services that it does not understand, addresses that lead nowhere,
// passwords that differ, paths that are not those of the host, Temporal's server
// and tools of different versions. None of them holds a password.
func Contradictions(project *types.Project) []string {
	l := look{project: project}
	l.versions()
	ours := l.ours()
	for _, service := range ours {
		settings := l.settings(service)
		l.addresses(service)
		if runs(service, workerProgram) {
			l.mounts(service, settings)
			l.stopping(service, settings)
		}
	}
	l.agreement(ours)
	return l.found
}

const (
	program       = "unwind"
	workerProgram = "unwind-worker"
	imageName     = "unwind"
)

// look is one call of Contradictions.
type look struct {
	project *types.Project
	found   []string
}

func (l *look) say(service, format string, args ...any) {
	sentence := fmt.Sprintf(format, args...)
	if service != "" {
		sentence = "service " + service + ": " + sentence
	}
	l.found = append(l.found, sentence)
}

// ours are the services that run unwind's programs, by name.
func (l *look) ours() []types.ServiceConfig {
	var ours []types.ServiceConfig
	for _, name := range slices.Sorted(maps.Keys(l.project.Services)) {
		service := l.project.Services[name]
		if runs(service, program) || runs(service, workerProgram) {
			ours = append(ours, service)
		}
	}
	return ours
}

// runs reports whether a service runs a program: by its entrypoint or command, or,
// for the worker, as what unwind's image does by itself.
func runs(service types.ServiceConfig, name string) bool {
	command := append(slices.Clone(service.Entrypoint), service.Command...)
	if len(service.Entrypoint) == 0 && name == workerProgram && imageOf(service) == imageName {
		return true
	}
	return len(command) > 0 && command[0][strings.LastIndex(command[0], "/")+1:] == name
}

// imageOf is the last part of an image's name, without registry and tag.
func imageOf(service types.ServiceConfig) string {
	name := service.Image[strings.LastIndex(service.Image, "/")+1:]
	name, _, _ = strings.Cut(name, "@")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// versions compares the images of Temporal's server and of its tools: those of
// another version bring the schema to another version.
func (l *look) versions() {
	server, tools := map[string]bool{}, map[string]bool{}
	for _, service := range l.project.Services {
		image, _, _ := strings.Cut(service.Image, "@")
		if tag, ok := strings.CutPrefix(image, "temporalio/server:"); ok {
			server[tag] = true
		}
		if tag, ok := strings.CutPrefix(image, "temporalio/admin-tools:"); ok {
			tools[tag] = true
		}
	}
	if len(server) > 0 && len(tools) > 0 && !maps.Equal(server, tools) {
		l.say("", "temporalio/server is of version %s and temporalio/admin-tools of version %s; give both the same tag", tags(server), tags(tools))
	}
}

func tags(of map[string]bool) string {
	return strings.Join(slices.Sorted(maps.Keys(of)), " and ")
}

// settings has unwind itself read a service's environment.
func (l *look) settings(service types.ServiceConfig) config.Config {
	for _, name := range config.Unknown(entries(service)) {
		l.say(service.Name, "%s is no setting of unwind; is it misspelt?", name)
	}
	read, problems := config.Check(environment(service))
	for _, problem := range problems {
		l.say(service.Name, "%s", problem)
	}
	return read
}

func environment(service types.ServiceConfig) func(string) string {
	return func(name string) string {
		if value := service.Environment[name]; value != nil {
			return *value
		}
		return ""
	}
}

func entries(service types.ServiceConfig) []string {
	var entries []string
	for name := range service.Environment {
		entries = append(entries, name+"=")
	}
	return entries
}

// agreement compares what all of unwind's programs have to have in common, as far
// as each of them is told.
func (l *look) agreement(ours []types.ServiceConfig) {
	for _, name := range []string{"UNWIND_DATABASE_URL", "UNWIND_TASK_QUEUE", "TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE"} {
		first, told := types.ServiceConfig{}, false
		for _, service := range ours {
			switch {
			case service.Environment[name] == nil:
			case !told:
				first, told = service, true
			case environment(service)(name) != environment(first)(name):
				l.say(service.Name, "its %s is not that of service %s; give all of unwind's programs the same", name, first.Name)
			}
		}
	}
}

// stopping compares the time that a worker gives its steps with the time that
// Docker gives the worker.
func (l *look) stopping(service types.ServiceConfig, settings config.Config) {
	grace := defaultGrace
	if service.StopGracePeriod != nil {
		grace = time.Duration(*service.StopGracePeriod)
	}
	if grace <= settings.StopTimeout {
		l.say(service.Name, "it is killed after a stop_grace_period of %s, before UNWIND_STOP_TIMEOUT (%s) is over; make the former the longer one",
			grace, settings.StopTimeout)
	}
}

// defaultGrace is Docker's.
const defaultGrace = 10 * time.Second
