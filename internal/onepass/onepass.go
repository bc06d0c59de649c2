// Package onepass lets callers who ask the same question of the machine at the
// same time share one answer. What hundreds of steps read of the process table
// is the same table.
package onepass

import (
	"errors"
	"sync"
)

// Pass makes one kind of answer. The zero value of Make is not usable.
type Pass[T any] struct {
	// Make makes an answer. It is never called twice at a time, and its answer is
	// given to several callers, who must not change it.
	Make func() (T, error)

	running sync.Mutex
	waiting sync.Mutex
	next    *pass[T]
}

type pass[T any] struct {
	ended  chan struct{}
	answer T
	err    error
}

// Do returns an answer that began to be made after Do was called: one that was
// already under way may have missed what the caller wants to know of.
func (p *Pass[T]) Do() (T, error) {
	p.waiting.Lock()
	joined := p.next
	if joined != nil {
		p.waiting.Unlock()
		<-joined.ended
		return joined.answer, joined.err
	}
	// Whoever shares an answer that was never made, after a panic, is told so.
	mine := &pass[T]{ended: make(chan struct{}), err: errors.New("the pass did not end")}
	p.next = mine
	p.waiting.Unlock()

	p.running.Lock()
	defer p.running.Unlock()
	p.waiting.Lock()
	p.next = nil
	p.waiting.Unlock()
	defer close(mine.ended)
	mine.answer, mine.err = p.Make()
	return mine.answer, mine.err
}
