package onepass_test

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"unwind/internal/onepass"
)

func TestWhoAsksAloneGetsAnAnswerOfItsOwn(t *testing.T) {
	t.Parallel()
	made := 0
	p := onepass.Pass[int]{Make: func() (int, error) { made++; return made, nil }}
	for want := range 3 {
		got, err := p.Do()
		require.NoError(t, err)
		assert.Equal(t, want+1, got)
	}
}

// While one answer is made, a hundred ask: none of them may be given that one,
// and all of them share the next.
func TestWhoAskMeanwhileShareTheNextAnswer(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan struct{}), make(chan struct{})
	var made atomic.Int64
	p := onepass.Pass[int64]{Make: func() (int64, error) {
		n := made.Add(1)
		if n == 1 {
			close(begun)
			<-goOn
		}
		return n, nil
	}}
	var all sync.WaitGroup
	all.Go(func() {
		if first, err := p.Do(); err != nil || first != 1 {
			t.Errorf("%d %v", first, err)
		}
	})
	<-begun
	var asked atomic.Int64
	for range 100 {
		all.Go(func() {
			asked.Add(1)
			if got, err := p.Do(); err != nil || got <= 1 {
				t.Errorf("%d %v: an answer that was under way before the question", got, err)
			}
		})
	}
	for asked.Load() < 100 {
		runtime.Gosched()
	}
	close(goOn)
	all.Wait()
	assert.Less(t, made.Load(), int64(100), "nobody shared")
}

func TestEveryCallerHearsOfAFailure(t *testing.T) {
	t.Parallel()
	failure := errors.New("cannot be read")
	p := onepass.Pass[int]{Make: func() (int, error) { return 0, failure }}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			_, err := p.Do()
			assert.ErrorIs(t, err, failure)
		})
	}
	all.Wait()
}
