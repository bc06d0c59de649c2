// Package version says which build of unwind this is.
package version

import "runtime/debug"

// release is set by the linker: -ldflags "-X unwind/internal/version.release=v1.2.3".
var release string

// revisionSize is how much of a commit's hash is shown.
const revisionSize = 12

// String is the release, or, for a build that is none, "dev" and the commit it
// was made from as far as Go recorded it: "dev-3fa92c01b7d4", with "+changes" if
// the files were edited since.
func String() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	name := "dev"
	if revision := settings["vcs.revision"]; revision != "" {
		name += "-" + revision[:min(len(revision), revisionSize)]
	}
	if settings["vcs.modified"] == "true" {
		name += "+changes"
	}
	return name
}
