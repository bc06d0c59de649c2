package main

import "strings"

// environment is a process's environment as a value ("NAME=value" each), so that
// it can be passed along.
type environment []string

// Environ and LookupEnv are what the SDK's envconfig asks for.
func (e environment) Environ() []string { return e }

func (e environment) LookupEnv(name string) (string, bool) {
	for _, entry := range e {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

func (e environment) get(name string) string {
	value, _ := e.LookupEnv(name)
	return value
}
