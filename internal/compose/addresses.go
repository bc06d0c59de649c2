package compose

import (
	"net"
	"net/url"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
)

// addresses looks at where a service of unwind's is told to find the database and
// Temporal.
func (l *look) addresses(service types.ServiceConfig) {
	get := environment(service)
	if host, _, err := net.SplitHostPort(get("TEMPORAL_ADDRESS")); err == nil {
		l.leadsSomewhere(service, "TEMPORAL_ADDRESS", host)
	} else if runs(service, workerProgram) {
		l.say(service.Name, "TEMPORAL_ADDRESS has to be host:port; unset, it is localhost:7233, which is the container itself")
	}
	database, err := url.Parse(get("UNWIND_DATABASE_URL"))
	if err != nil || !strings.HasPrefix(database.Scheme, "postgres") {
		return
	}
	l.leadsSomewhere(service, "UNWIND_DATABASE_URL", database.Hostname())
	if server, found := l.project.Services[database.Hostname()]; found {
		l.password(service, database, server)
	}
}

func (l *look) leadsSomewhere(service types.ServiceConfig, variable, host string) {
	if _, found := l.project.Services[host]; found {
		if !l.waitsFor(service.Name, host, map[string]bool{}) {
			l.say(service.Name, "%s leads to service %s, which it does not wait for; add it to depends_on", variable, host)
		}
		return
	}
	ip := net.ParseIP(host)
	switch {
	case service.NetworkMode == "host":
	case host == "localhost" || ip != nil && ip.IsLoopback():
		l.say(service.Name, "%s leads to %s, which is the container itself; name the service, or host.docker.internal", variable, host)
	case ip == nil && host != "" && !strings.Contains(host, ".") && len(service.ExtraHosts[host]) == 0 && !l.alias(host):
		l.say(service.Name, "%s leads to %q, and there is no such service", variable, host)
	}
}

// waitsFor reports whether a service starts after another one, or by itself or by
// those it waits for.
func (l *look) waitsFor(name, other string, seen map[string]bool) bool {
	if seen[name] {
		return false
	}
	seen[name] = true
	for dependency := range l.project.Services[name].DependsOn {
		if dependency == other || l.waitsFor(dependency, other, seen) {
			return true
		}
	}
	return false
}

// alias reports whether a service has another name in a network.
func (l *look) alias(host string) bool {
	for _, service := range l.project.Services {
		if service.Hostname == host || service.ContainerName == host {
			return true
		}
		for _, network := range service.Networks {
			if network == nil {
				continue
			}
			for _, alias := range network.Aliases {
				if alias == host {
					return true
				}
			}
		}
	}
	return false
}

// password compares that of a database URL with the one that the server's service
// gives to the same user.
func (l *look) password(service types.ServiceConfig, database *url.URL, server types.ServiceConfig) {
	get := environment(server)
	given, _ := database.User.Password()
	for _, prefix := range []string{"APPLICATION", "POSTGRES"} {
		if get(prefix+"_USER") != database.User.Username() || get(prefix+"_PASSWORD") == "" {
			continue
		}
		if get(prefix+"_PASSWORD") != given {
			l.say(service.Name, "the password in UNWIND_DATABASE_URL is not %s_PASSWORD of service %s; set both from one variable, "+
				"of letters and digits only", prefix, server.Name)
		}
		return
	}
}
