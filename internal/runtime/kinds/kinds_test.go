package kinds

import (
	"testing"

	"unwind/teardown"
)

func TestEveryKindOfAManifestIsWired(t *testing.T) {
	t.Parallel()
	for _, name := range []string{teardown.KindTmux, teardown.KindProcess} {
		if kind, err := All().For(teardown.Runtime{Kind: name}); kind == nil || err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "docker", "Tmux"} {
		if _, err := All().For(teardown.Runtime{Kind: name}); teardown.CodeOf(err) != teardown.CodeRuntimeUnroutable {
			t.Errorf("%q: %v", name, err)
		}
	}
}
