package config

import (
	"strings"

	"github.com/spf13/pflag"
)

// Flags are the settings as command line flags. A flag that was given wins over
// its variable.
type Flags struct{ set *pflag.FlagSet }

// AddFlags adds a flag for each setting.
func AddFlags(set *pflag.FlagSet) Flags {
	for _, s := range settings {
		set.String(s.Flag, "", strings.ReplaceAll(s.Help+" ("+s.Variable+"; default: "+s.Default+")", "`", ""))
	}
	return Flags{set: set}
}

// Over returns a getenv for Load that looks at the flags first. Call it after
// the flags were parsed.
func (f Flags) Over(getenv func(string) string) func(string) string {
	given := map[string]string{}
	for _, s := range settings {
		if flag := f.set.Lookup(s.Flag); flag != nil && flag.Changed {
			given[s.Variable] = flag.Value.String()
		}
	}
	return func(variable string) string {
		if value, ok := given[variable]; ok {
			return value
		}
		return getenv(variable)
	}
}
