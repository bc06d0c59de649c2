package worktree

import (
	"crypto/sha256"
	"fmt"

	"unwind/teardown"
)

type progressOf = teardown.Progress

func lfsPointerText(content string) string {
	return fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%x\nsize %d\n", sha256.Sum256([]byte(content)), len(content))
}

func runChild(string) int { return 0 }
