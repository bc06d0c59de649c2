package main

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"unwind/internal/config"
	"unwind/internal/store"
)

// part is a part of a Postgres URL, with the driver's variable for it, which
// counts where the URL leaves it out.
type part struct {
	what, variable, value, otherwise string
}

func partsOf(u *url.URL) []part {
	query := u.Query()
	given := func(inURL, option string) string {
		if query.Get(option) != "" {
			return query.Get(option)
		}
		return inURL
	}
	return []part{
		{"host", "PGHOST", given(u.Hostname(), "host"), "localhost"},
		{"port", "PGPORT", given(u.Port(), "port"), ""},
		{"user", "PGUSER", given(u.User.Username(), "user"), "the name of whoever runs the program"},
		{"database", "PGDATABASE", given(strings.TrimPrefix(u.Path, "/"), "dbname"), "the user's name"},
		{"sslmode", "PGSSLMODE", query.Get("sslmode"), ""},
	}
}

// databaseURL warns of variables that look like the database's and are not
// heeded, and of what the database's URL leaves to chance.
func (e *examination) databaseURL(c config.Config, here place) {
	if other := e.environment.get("DATABASE_URL"); other != "" && other != c.DatabaseURL {
		e.warn("database", "DATABASE_URL is set, but not read: the database is %s; set UNWIND_DATABASE_URL if it is meant to be the other", c.Database())
	}
	u, err := url.Parse(c.DatabaseURL)
	if err != nil {
		return
	}
	parts := partsOf(u)
	if u.Scheme == "sqlite" {
		e.postgresForSQLite(c, parts)
		return
	}
	for _, p := range parts {
		e.partOfURL(p)
	}
	e.encryption(parts, here)
}

func (e *examination) postgresForSQLite(c config.Config, parts []part) {
	var set []string
	for _, p := range parts {
		if e.environment.get(p.variable) != "" {
			set = append(set, p.variable)
		}
	}
	if len(set) > 0 {
		e.warn("database", "the variables of Postgres (%s) are not heeded: the database is %s; set UNWIND_DATABASE_URL to a postgres:// address if Postgres is meant",
			strings.Join(set, ", "), c.Database())
	}
}

func (e *examination) partOfURL(p part) {
	variable := e.environment.get(p.variable)
	switch {
	case p.value != "" && variable != "" && variable != p.value:
		e.warn("database", "%s is not heeded, for UNWIND_DATABASE_URL has another %s; unset one of them", p.variable, p.what)
	case p.value == "" && variable != "":
		e.warn("database", "UNWIND_DATABASE_URL has no %s, so %s decides, for programs that have it; write it into the URL", p.what, p.variable)
	case p.value == "" && p.otherwise != "":
		e.warn("database", "UNWIND_DATABASE_URL has no %s, so it is %s; write it into the URL", p.what, p.otherwise)
	}
}

// encryption warns of a way to another machine on which others can read along, or
// answer in the server's place.
func (e *examination) encryption(parts []part, here place) {
	value := map[string]string{}
	for _, p := range parts {
		value[p.what] = p.value
		if p.value == "" {
			value[p.what] = e.environment.get(p.variable)
		}
	}
	host := value["host"]
	if !elsewhere(host, here) {
		return
	}
	switch mode := value["sslmode"]; {
	case mode == "":
		e.warn("database", "UNWIND_DATABASE_URL has no sslmode, so the way to %s is encrypted, but anybody may answer there; write sslmode=verify-full, "+
			"or sslmode=disable on a network of your own", host)
	case slices.Contains([]string{"disable", "allow", "prefer"}, mode):
		e.warn("database", "the way to %s is not encrypted for certain (sslmode=%s); write sslmode=verify-full unless the network is your own", host, mode)
	}
}

// elsewhere reports whether a host is another machine. In a container a name
// without a dot is another container beside it.
func elsewhere(host string, here place) bool {
	return host != "" && !strings.HasPrefix(host, "/") && !strings.HasPrefix(host, "@") && !onLoopback(host) &&
		!(here.container && !strings.Contains(host, ".") && net.ParseIP(host) == nil)
}

func onLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// lately is how long a host that was replaced by another is remembered.
const lately = 24 * time.Hour

// severalHosts warns of a SQLite file that more than one host works with: its
// locks do not hold across machines.
func (e *examination) severalHosts(ctx context.Context, opened *store.Store, c config.Config) {
	hosts, err := opened.Hosts(ctx)
	if err != nil {
		e.fail("database", databaseExit(err), "%s", sentence(err.Error()))
		return
	}
	var others []string
	for _, host := range hosts {
		if host.ID != c.Host && now().Sub(host.LastSeen) < lately {
			others = append(others, host.ID)
		}
	}
	if len(others) > 0 {
		e.warn("database", "a SQLite file serves one host, and workers of %s use it beside %s; set UNWIND_DATABASE_URL to the same postgres:// address on all of them",
			strings.Join(others, ", "), c.Host)
	}
}
