package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"unwind/internal/config"
	"unwind/teardown"
)

type serveOptions struct{ *program }

func newServeCommand(p *program) *cobra.Command {
	o := &serveOptions{program: p}
	return &cobra.Command{
		Use:   "serve",
		Short: "Show sessions on a page and as JSON, and take GitHub's webhooks",
		Long: `Serve, until Ctrl-C, on UNWIND_LISTEN (--listen, 127.0.0.1:7391):

  /                     a page of the sessions: what is kept, why, and what to do
  /api/sessions         the sessions as JSON; ?state=, host=, reason=, after=, limit=
  /api/sessions/ID      one of them, as status --json prints it
  /webhooks/github      GitHub's signed webhooks: pull_request and issues
  /healthz, /readyz     whether it runs, and whether the database answers

Page and API only show. A webhook records that a session is over and destroys nothing;
a worker does the rest. It needs the secret of the webhooks in UNWIND_WEBHOOK_SECRET_FILE
or UNWIND_WEBHOOK_SECRET.

Elsewhere than on the loopback address it only listens with a token, in
UNWIND_TOKEN_FILE or UNWIND_TOKEN, that page and API then ask for. docs/serve.md has
more, also on the webhooks.`,
		Example: `  unwind serve
  UNWIND_WEBHOOK_SECRET_FILE=/etc/unwind/webhook unwind serve --json
  unwind serve --listen 0.0.0.0:7391 --token-file /etc/unwind/token`,
		Args: noArgs,
		RunE: runs(o.run),
	}
}

// serving is what serve prints, once, when it listens.
type serving struct {
	URL      string `json:"url"`
	Webhooks bool   `json:"webhooks"`
	Token    bool   `json:"token"`
}

func (o *serveOptions) run(ctx context.Context) error {
	f, err := o.openFacts(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	s, err := o.server(f)
	if err != nil {
		return err
	}
	listener, err := listen(ctx, f.config.Listen)
	if err != nil {
		return err
	}
	if o.json {
		o.printJSON(s.serving(listener))
	} else {
		s.announce(o.program, listener)
	}
	return s.serve(ctx, listener)
}

// server is the HTTP side of unwind.
type server struct {
	facts  *facts
	log    *slog.Logger
	secret []byte // of the webhooks; empty: there are none
	token  []byte // empty: none is asked for
}

// server reads the secrets and refuses to listen openly without a token.
func (p *program) server(f *facts) (*server, error) {
	s := &server{facts: f, log: p.logger(f.config)}
	var err error
	if s.secret, err = p.secret("UNWIND_WEBHOOK_SECRET", f.config.WebhookSecretFile); err != nil {
		return nil, err
	}
	if s.token, err = p.secret("UNWIND_TOKEN", f.config.TokenFile); err != nil {
		return nil, err
	}
	if len(s.token) == 0 && !listensOnLoopback(f.config.Listen) {
		return nil, &teardown.Error{Code: teardown.CodeInvalidConfig, Message: fmt.Sprintf(
			"%s is not the loopback address, and there is no token: anybody could read the sessions; set UNWIND_TOKEN_FILE (--token-file), or listen on 127.0.0.1", f.config.Listen)}
	}
	return s, nil
}

func (p *program) logger(c config.Config) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == config.LogJSON {
		return slog.New(slog.NewJSONHandler(p.err, options))
	}
	return slog.New(slog.NewTextHandler(p.err, options))
}

// maxSecret bounds a file that holds a secret, in bytes.
const maxSecret = 4096

// secret reads one from its file, or from the environment. It is never a flag,
// which all users of the machine can see.
func (p *program) secret(variable, path string) ([]byte, error) {
	if path == "" {
		return bytes.TrimSpace([]byte(p.environment.get(variable))), nil
	}
	unusable := func(why string, cause error) error {
		return &teardown.Error{Code: teardown.CodeInvalidConfig, Cause: cause, Message: fmt.Sprintf("the file of %s_FILE, %s, %s", variable, shown(path), why)}
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, unusable("cannot be read", err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	content = bytes.TrimSpace(content)
	switch {
	case err != nil:
		return nil, unusable("cannot be read", err)
	case len(content) == 0:
		return nil, unusable("is empty; write the secret into it", nil)
	case len(content) > maxSecret:
		return nil, unusable("is too long for a secret", nil)
	}
	return content, nil
}

// listensOnLoopback reports whether only this machine can reach the address. A
// name other than localhost may lead anywhere, and an empty one is all addresses.
func listensOnLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && onLoopback(host)
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, &teardown.Error{Code: codeCannotListen, Retryable: true, Cause: err,
			Message: "cannot listen on " + address + "; end what holds it, or choose another address with --listen"}
	}
	return listener, nil
}

// codeCannotListen is the code of an address that is taken.
const codeCannotListen teardown.Code = "cannot_listen"

func (s *server) serving(listener net.Listener) serving {
	return serving{URL: "http://" + listener.Addr().String() + "/", Webhooks: len(s.secret) > 0, Token: len(s.token) > 0}
}

func (s *server) announce(p *program, listener net.Listener) {
	at := s.serving(listener)
	p.say("Sessions   %s", at.URL)
	if at.Webhooks {
		p.say("Webhooks   %swebhooks/github", at.URL)
	} else {
		p.say("Webhooks   off: there is no UNWIND_WEBHOOK_SECRET_FILE")
	}
	p.say("\nCtrl-C ends it.")
}

const (
	// stopLimit is how long requests that are under way may take when it stops.
	stopLimit = 10 * time.Second
	// deliveriesKept is how many days a delivery is remembered; GitHub sends one
	// again for 3 days.
	deliveriesKept = 90
)

// serve answers until ctx ends, and lets what is under way finish.
func (s *server) serve(ctx context.Context, listener net.Listener) error {
	hs := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	stopped := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(stopped)
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		if hs.Shutdown(limited) != nil {
			_ = hs.Close()
		}
	})
	go s.forget(ctx)
	err := hs.Serve(listener)
	if errors.Is(err, http.ErrServerClosed) {
		<-stopped
		return nil
	}
	return &teardown.Error{Code: teardown.CodeIOError, Cause: err, Message: "serving ended"}
}

// forget drops what is remembered of old deliveries, now and every day.
func (s *server) forget(ctx context.Context) {
	daily := time.NewTicker(24 * time.Hour)
	defer daily.Stop()
	for {
		if _, err := s.facts.ForgetDeliveries(ctx, deliveriesKept); err != nil && ctx.Err() == nil {
			s.log.Warn("Old deliveries could not be forgotten", "error", brief(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-daily.C:
		}
	}
}
