package main

import (
	"context"
	"net"

	"unwind/teardown"
)

// devPage is what `unwind serve` does, inside of `unwind dev`.
type devPage struct {
	url   string
	facts *facts
	end   context.CancelFunc
	ended chan struct{}
}

// startPage serves the page and the API. An address that is taken is no reason to
// have nothing at all: another installation on the machine may have it.
func (d *development) startPage(ctx context.Context) error {
	f, err := d.openFacts(ctx)
	if err != nil {
		return err
	}
	s, err := d.program.server(f)
	if err != nil {
		f.close()
		return err
	}
	listener, err := listen(ctx, d.config.Listen)
	if teardown.CodeOf(err) == codeCannotListen && listensOnLoopback(d.config.Listen) {
		d.note("%s is taken; the sessions' page gets a free port.", d.config.Listen)
		listener, err = listen(ctx, net.JoinHostPort(loopback, "0"))
	}
	if err != nil {
		f.close()
		return err
	}
	// It ends before the others do, when it is told to.
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	d.page = &devPage{url: s.serving(listener).URL, facts: f, end: end, ended: make(chan struct{})}
	go func() {
		defer close(d.page.ended)
		if err := s.serve(serving, listener); err != nil {
			d.note("%s: %s", name, sentence(err.Error()))
		}
	}()
	return nil
}

func (p *devPage) stop() {
	if p == nil {
		return
	}
	p.end()
	<-p.ended
	p.facts.close()
}
