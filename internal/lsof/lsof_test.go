package lsof

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFilesOfThisProcess(t *testing.T) {
	if _, err := exec.LookPath("lsof"); err != nil && runtime.GOOS == "linux" {
		t.Skip("lsof is not installed, and on Linux it is not needed")
	}
	directory, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	t.Chdir(directory)
	t.Setenv("LC_ALL", "C")
	name := filepath.Join(directory, "with a space, ä and \\x41\t")
	file, err := os.Create(name)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()

	all, err := Files(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, own(all, name).Descriptor)
	require.NotEmpty(t, own(all, name).Command)

	standing, err := Files(t.Context(), "cwd")
	require.NoError(t, err)
	require.Equal(t, "cwd", own(standing, directory).Descriptor)
	for _, file := range standing {
		require.Equal(t, "cwd", file.Descriptor)
	}
}

func own(files []File, name string) File {
	for _, file := range files {
		if file.PID == os.Getpid() && file.Name == name {
			return file
		}
	}
	return File{}
}

func TestWithoutTheProgramNobodyCanTell(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Files(t.Context())
	require.ErrorIs(t, err, ErrMissing)
}

func TestAProgramThatFailsIsAnError(t *testing.T) {
	bin := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "lsof"), []byte("#!/bin/sh\nexit 1\n"), 0o700))
	t.Setenv("PATH", bin)
	_, err := Files(t.Context())
	require.ErrorContains(t, err, "lsof failed")
}

func FuzzParse(f *testing.F) {
	f.Add("p1\x00cinit\x00\nfcwd\x00n/\x00\nf3\x00n/a b\x00\np22\x00csh\x00\nfcwd\x00n/tmp\x00\n")
	f.Add("p\x00n\x00")
	f.Add("\x00\n\x00")
	f.Fuzz(func(t *testing.T, out string) {
		for _, file := range parse(out) {
			if len(file.Name) > len(out) {
				t.Errorf("%+v", file)
			}
		}
	})
}
