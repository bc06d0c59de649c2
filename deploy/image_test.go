package deploy_test

import (
	"bufio"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The image is not built here, for want of Docker. But what is sent to Docker is
// enough to build both programs as the Dockerfile does, and they need no library of
// the image.
func TestProgramsOfTheImage(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the image is one for Linux")
	}
	sent, out := t.TempDir(), t.TempDir()
	copyContext(t, sent)
	env := append(os.Environ(), "CGO_ENABLED=0")
	for program, source := range map[string]string{"unwind": "./starter", "unwind-worker": "./worker"} {
		require.Contains(t, read(t, "../Dockerfile"), "-o /out/"+program+" "+source)
		binary := filepath.Join(out, program)
		build(t, sent, env, "-ldflags", "-s -w -X unwind/internal/version.release=v9.8.7", "-o", binary, source)
		requireStatic(t, binary)
		version, err := exec.Command(binary, versionOf[program]).Output()
		require.NoError(t, err)
		require.Contains(t, string(version), "v9.8.7")
	}
}

var versionOf = map[string]string{"unwind": "version", "unwind-worker": "--version"}

// copyContext copies what .dockerignore lets through: it shuts everything out, then
// names what comes in, then what is left out of that.
func copyContext(t *testing.T, to string) {
	t.Helper()
	lines := strings.Split(read(t, "../.dockerignore"), "\n")
	require.Contains(t, lines, "*")
	require.Contains(t, lines, "**/*_test.go")
	require.Contains(t, lines, "**/testdata")
	for _, line := range lines {
		name, in := strings.CutPrefix(line, "!")
		if !in {
			continue
		}
		source := filepath.Join("..", name)
		require.NoError(t, filepath.WalkDir(source, func(path string, entry os.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && entry.Name() == "testdata":
				return filepath.SkipDir
			case entry.IsDir() || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			inside, err := filepath.Rel("..", path)
			require.NoError(t, err)
			require.NoError(t, os.MkdirAll(filepath.Join(to, filepath.Dir(inside)), 0o755))
			return os.WriteFile(filepath.Join(to, inside), []byte(read(t, path)), 0o644)
		}))
	}
}

func requireStatic(t *testing.T, binary string) {
	t.Helper()
	file, err := elf.Open(binary)
	require.NoError(t, err)
	defer file.Close()
	libraries, err := file.ImportedLibraries()
	if err == nil {
		require.Empty(t, libraries)
	}
	for _, segment := range file.Progs {
		require.NotEqual(t, elf.PT_INTERP, segment.Type, "%s asks for a dynamic linker", binary)
	}
}

func TestImageRunsAsAnOrdinaryUserWithItsPrograms(t *testing.T) {
	t.Parallel()
	_, final, found := strings.Cut(read(t, "../Dockerfile"), "\nFROM alpine:")
	require.True(t, found)
	require.Regexp(t, `apk add --no-cache .*\bgit\b.*\btmux\b`, final)
	var user string
	for lines := bufio.NewScanner(strings.NewReader(final)); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "USER "); ok {
			user = name
		}
	}
	require.Equal(t, "unwind", user)
	require.Regexp(t, regexp.QuoteMeta(`ENTRYPOINT ["unwind-worker"]`), final)
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}
