package compose

import (
	"path"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"

	"unwind/internal/config"
)

// defaultStateDir is that of unwind's image.
const defaultStateDir = "/var/lib/unwind"

// mounts looks at what a worker's container sees of the host. Git writes absolute
// paths into worktrees, and so does unwind into its facts.
func (l *look) mounts(service types.ServiceConfig, settings config.Config) {
	state := settings.StateDir
	if state == "" {
		state = defaultStateDir
	}
	if _, found := mountOf(service, state); !found {
		l.say(service.Name, "its state directory %s is not on a volume; the host's id would be another one after each start", state)
	}
	for _, volume := range service.Volumes {
		if volume.Type == types.VolumeTypeBind && within(volume.Target, settings.Roots) && volume.Source != volume.Target {
			l.say(service.Name, "%s of the host is mounted as %s, below UNWIND_ROOTS; mount it under its own name, for git worktrees hold absolute paths",
				volume.Source, volume.Target)
		}
	}
	if environment(service)("UNWIND_ROOTS") == "" {
		return
	}
	bound := false
	for _, root := range settings.Roots {
		volume, found := mountOf(service, root)
		if !found {
			l.say(service.Name, "UNWIND_ROOTS names %s, which is not mounted from the host; the worker would find nothing there", root)
		}
		bound = bound || found && volume.Type == types.VolumeTypeBind
	}
	if bound && service.Pid != "host" {
		l.say(service.Name, "it sees the host's worktrees but not its processes, which may stand in them; add `pid: host`")
	}
}

// mountOf is the mount that holds a path of the container.
func mountOf(service types.ServiceConfig, inside string) (mount types.ServiceVolumeConfig, found bool) {
	for _, volume := range service.Volumes {
		if within(inside, []string{volume.Target}) && (!found || len(volume.Target) > len(mount.Target)) {
			mount, found = volume, true
		}
	}
	return mount, found
}

// within reports whether a path is one of the directories or below one of them.
func within(inside string, directories []string) bool {
	for _, directory := range directories {
		directory = path.Clean(directory)
		if inside == directory || strings.HasPrefix(inside, strings.TrimSuffix(directory, "/")+"/") {
			return true
		}
	}
	return false
}
