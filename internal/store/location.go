package store

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"unwind/teardown"
)

// Dialect is one of the two databases.
type Dialect string

// The databases.
const (
	SQLite   Dialect = "sqlite"
	Postgres Dialect = "postgres"
)

const codeInvalidConfig teardown.Code = "invalid_config"

// location is a database URL, taken apart.
type location struct {
	dialect Dialect
	path    string // of SQLite's file
	dsn     string
	secrets []string // what must never appear in a message
	// migrationPatience is how long to wait for another process that migrates
	// Postgres; 0 means defaultMigrationPatience.
	migrationPatience time.Duration
}

// locate reads "sqlite:///abs/path.db" or "postgres://…". Its errors never
// quote the URL, which may hold a password.
func locate(raw string) (location, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return location{}, invalidURL("it is not a URL (a password must be percent-encoded)")
	}
	switch u.Scheme {
	case "sqlite":
		return locateSQLite(u)
	case "postgres", "postgresql":
		return locatePostgres(u)
	}
	return location{}, invalidURL("it begins with neither")
}

func invalidURL(why string) error {
	return &teardown.Error{Code: codeInvalidConfig, Message: fmt.Sprintf(
		"The database URL cannot be used: %s; write sqlite:///absolute/path.db or postgres://user@host/database", why)}
}

func locateSQLite(u *url.URL) (location, error) {
	if u.Host != "" || u.User != nil || !filepath.IsAbs(u.Path) {
		return location{}, invalidURL("SQLite needs three slashes and an absolute path")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return location{}, invalidURL("SQLite takes no options; '?' and '#' in a path are written %3F and %23")
	}
	if strings.ContainsRune(u.Path, 0) {
		return location{}, invalidURL("the path holds a NUL")
	}
	path := filepath.Clean(u.Path)
	return location{dialect: SQLite, path: path, dsn: sqliteDSN(path, "foreign_keys(1)")}, nil
}

// sqliteDSN opens path with the settings that every connection of ours needs.
// The driver runs busy_timeout before the other pragmas, so that those wait,
// too. Synchronous is FULL because an intent must be on the disk before its
// effect. Write transactions take the write lock at once: one that reads first
// and then writes would fail without waiting when another has written since.
func sqliteDSN(path, foreignKeys string) string {
	query := strings.Join([]string{
		"_pragma=busy_timeout(20000)",
		"_pragma=journal_mode(WAL)",
		"_pragma=synchronous(FULL)",
		"_pragma=" + foreignKeys,
		"_txlock=immediate",
		"_time_format=sqlite",
	}, "&")
	return (&url.URL{Scheme: "file", Path: path, RawQuery: query}).String()
}

func locatePostgres(u *url.URL) (location, error) {
	query := u.Query()
	if query.Get("connect_timeout") == "" {
		query.Set("connect_timeout", "10")
	}
	secrets := []string{query.Get("password"), query.Get("sslpassword")}
	if password, ok := u.User.Password(); ok {
		secrets = append(secrets, password, url.QueryEscape(password), url.PathEscape(password))
	}
	withTimeout := *u
	withTimeout.RawQuery = query.Encode()
	at := location{dialect: Postgres, dsn: withTimeout.String()}
	for _, secret := range secrets {
		if secret != "" {
			at.secrets = append(at.secrets, secret)
		}
	}
	return at, nil
}

// redact returns err, or an error without its text's secrets.
func (l location) redact(err error) error {
	text := err.Error()
	for _, secret := range l.secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}
