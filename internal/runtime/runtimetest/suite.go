//go:build linux

package runtimetest

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unwind/internal/runtime"
	"unwind/internal/runtime/proctable"
	"unwind/teardown"
)

// Harness lets the suite run on one kind.
type Harness struct {
	Kind runtime.Kind
	// Start starts a runtime on the stage that runs a shell script in the
	// worktree, its processes tagged, and returns it as a manifest names it: the
	// worktree is all that its identity says.
	Start func(t *testing.T, s *Stage, script string) teardown.Runtime
	// Contradict changes a pinned record so that it contradicts what is there.
	Contradict func(rt *teardown.Runtime)
	// Obscure makes it impossible to tell whether a runtime lives, until the test
	// ends or undo is called; nil for a kind of which that can always be told.
	Obscure func(t *testing.T, rt teardown.Runtime) (undo func())
	// Shows: the kind has something to take a snapshot of.
	Shows bool
}

// Scripts of agents. Each writes its process number to $STAGE/agent.
const (
	Plain    = `echo $$ >$STAGE/agent; exec sleep 900`
	Saving   = `trap 'sleep .5 && echo saved >$STAGE/saved; exit 0' TERM HUP INT; echo $$ >$STAGE/agent; while :; do sleep .1; done`
	Deaf     = `trap '' TERM HUP INT; echo $$ >$STAGE/agent; while :; do sleep .1; done`
	Daemon   = `setsid sh -c 'echo $$ >$STAGE/daemon; exec sleep 900' & echo $$ >$STAGE/agent; exec sleep 900`
	Nameless = `trap '' HUP; env -i STAGE=$STAGE sh -c 'trap "" HUP; echo $$ >$STAGE/daemon; exec sleep 900' & echo $$ >$STAGE/agent; exec sleep 900`
	// Hidden starts what nothing but its parent proves to be the runtime's.
	Hidden = `env -i STAGE=$STAGE setsid sh -c 'trap "" HUP; echo $$ >$STAGE/daemon; cd /; exec sleep 900' & echo $$ >$STAGE/agent; exec sleep 900`
	// HiddenSession is a Hidden that leads a kernel session with an orphan in it, and
	// when there is $STAGE/go starts another one and ends.
	HiddenSession = `env -i STAGE=$STAGE setsid sh -c 'trap "" HUP TERM; cd /; (sleep 900 & echo $! >$STAGE/orphan); echo $$ >$STAGE/daemon
		while [ ! -e $STAGE/go ]; do sleep .05; done; sleep 900 & echo $! >$STAGE/late' & echo $$ >$STAGE/agent; exec sleep 900`
	// Chain leaves behind a process that ignores what it is asked and hands itself
	// on to a new one all the time, until there is $STAGE/stop.
	Chain = `printf '%s\n' 'trap "" TERM HUP INT' ': >$STAGE/hopping' 'cd /' 'sleep .004' '[ -e $STAGE/stop ] || exec sh $STAGE/hop.sh &' >$STAGE/hop.sh
		sh $STAGE/hop.sh 2>&- & ` + Plain
)

// running is one started and pinned runtime.
type running struct {
	*Stage
	Harness
	rt    teardown.Runtime
	agent int
	undo  func()
}

func (h Harness) start(t *testing.T, script string) *running {
	t.Helper()
	r := &running{Stage: NewStage(t), Harness: h}
	bare := h.Start(t, r.Stage, script)
	r.agent = r.PID(t, "agent")
	pinned, err := h.Kind.Pin(t.Context(), bare)
	if err != nil {
		t.Fatalf("Pin: %v", err)
	}
	r.rt = pinned
	return r
}

// obscured is a runtime of which it cannot be told whether it lives, until undo.
func (h Harness) obscured(t *testing.T) *running {
	t.Helper()
	if h.Obscure == nil {
		t.Skip("it can always be told")
	}
	r := h.start(t, Plain)
	r.undo = h.Obscure(t, r.rt)
	t.Cleanup(r.undo)
	return r
}

// chained is a runtime that leaves a chain behind.
func (h Harness) chained(t *testing.T) *running {
	t.Helper()
	r := h.start(t, Chain)
	t.Cleanup(func() { r.stop(t) })
	Eventually(t, "the chain", func() bool { return r.Has("hopping") })
	return r
}

// stop ends a chain.
func (r *running) stop(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.Dir, "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (r *running) destroy(t *testing.T, options runtime.Options) runtime.Outcome {
	t.Helper()
	outcome, err := r.Kind.Destroy(t.Context(), r.rt, options)
	if err != nil {
		t.Fatalf("Destroy: %v %v", err, details(err))
	}
	return outcome
}

// fail is a call of Destroy that is to be an error, in time.
func (r *running) fail(t *testing.T, options runtime.Options) error {
	t.Helper()
	var err error
	InTime(t, options, func() { _, err = r.Kind.Destroy(t.Context(), r.rt, options) })
	return err
}

// slack is what a call may take beyond its limit. It is generous, for the machine
// may be busy: what matters is that the call ends.
const slack = 10 * time.Second

// InTime makes one call of Destroy and sees to it that it keeps its limit.
func InTime(t *testing.T, options runtime.Options, call func()) {
	t.Helper()
	limit := cmp.Or(options.Limit, runtime.DefaultLimit)
	begun := time.Now()
	call()
	if took := time.Since(begun); took > limit+slack {
		t.Errorf("the call took %v, its limit is %v", took, limit)
	}
}

// Run asserts the sentences of runtime.Kind.
func Run(t *testing.T, h Harness) {
	for _, group := range []struct {
		name      string
		sentences map[string]func(*testing.T, Harness)
	}{
		{"Probe", probeSentences},
		{"Snapshot", snapshotSentences},
		{"Destroy", destroySentences},
		{"Pin", pinSentences},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for name, assert := range group.sentences {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					assert(t, h)
				})
			}
		})
	}
}

var probeSentences = map[string]func(*testing.T, Harness){
	"a registered runtime that runs is alive": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		wantState(t, r, runtime.Alive)
		if !Alive(r.agent) {
			t.Error("the probe ended the agent")
		}
	},
	"one that ended is gone": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		Kill(t, r.agent)
		Eventually(t, "gone", func() bool { state, _ := h.Kind.Probe(t.Context(), r.rt); return state == runtime.Gone })
	},
	"processes that outlived it do not make it alive": func(t *testing.T, h Harness) {
		r := h.start(t, Daemon)
		daemon := r.PID(t, "daemon")
		Kill(t, r.agent)
		Eventually(t, "gone", func() bool { state, _ := h.Kind.Probe(t.Context(), r.rt); return state == runtime.Gone })
		if !Alive(daemon) {
			t.Error("the probe ended the daemon")
		}
	},
	"a record without identity is unroutable": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		r.rt.Identity = nil
		_, err := h.Kind.Probe(t.Context(), r.rt)
		wantCode(t, err, teardown.CodeRuntimeUnroutable)
	},
	"a record that contradicts what is there is an error": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		h.Contradict(&r.rt)
		_, err := h.Kind.Probe(t.Context(), r.rt)
		wantCode(t, err, teardown.CodeRuntimeIdentity)
	},
	"one of an earlier boot is gone": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		r.rt.Identity.BootID = "00000000-0000-4000-8000-000000000000"
		wantState(t, r, runtime.Gone)
	},
	"one marked gone is gone": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		r.rt.Gone = true
		wantState(t, r, runtime.Gone)
	},
	"what could not be told is unreachable, which is retryable": func(t *testing.T, h Harness) {
		r := h.obscured(t)
		state, err := h.Kind.Probe(t.Context(), r.rt)
		wantCode(t, err, teardown.CodeRuntimeUnreachable)
		if state != 0 || !runtime.Retryable(err) {
			t.Errorf("%v %v", state, err)
		}
		r.undo()
		wantState(t, r, runtime.Alive)
	},
	"a survey answers as single probes do": func(t *testing.T, h Harness) {
		alive, gone, broken := h.start(t, Plain), h.start(t, Plain), h.start(t, Plain)
		Kill(t, gone.agent)
		Eventually(t, "gone", func() bool { state, _ := h.Kind.Probe(t.Context(), gone.rt); return state == runtime.Gone })
		broken.rt.Identity = nil
		set := runtime.Set{alive.rt.Kind: h.Kind}
		survey := set.Survey()
		for i, asked := range []struct {
			rt   teardown.Runtime
			want runtime.State
		}{{alive.rt, runtime.Alive}, {gone.rt, runtime.Gone}, {broken.rt, 0}, {alive.rt, runtime.Alive}} {
			if state, err := survey(t.Context(), asked.rt); state != asked.want || (err != nil) != (asked.want == 0) {
				t.Errorf("runtime %d: %v %v, want %v", i, state, err, asked.want)
			}
		}
		_, err := survey(t.Context(), teardown.Runtime{Kind: "docker"})
		wantCode(t, err, teardown.CodeRuntimeUnroutable)
	},
}

var snapshotSentences = map[string]func(*testing.T, Harness){
	"the file is the owner's only": func(t *testing.T, h Harness) {
		r := h.start(t, `echo to be seen; `+Plain)
		path := r.snapshot(t)
		if !h.Shows {
			if path != "" {
				t.Errorf("a snapshot of nothing: %s", path)
			}
			return
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 || filepath.Dir(path) != filepath.Join(r.Dir, "shots") {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		if content, _ := os.ReadFile(path); !strings.Contains(string(content), "to be seen") {
			t.Errorf("the snapshot shows %q", content)
		}
		if !Alive(r.agent) {
			t.Error("the snapshot ended the agent")
		}
	},
	"a directory inside the worktree is an error": func(t *testing.T, h Harness) {
		if !h.Shows {
			t.Skip("shows nothing")
		}
		r := h.start(t, Plain)
		if path, err := h.Kind.Snapshot(t.Context(), r.rt, filepath.Join(r.Worktree, "shots")); err == nil {
			t.Errorf("wrote %s", path)
		}
	},
	"what Probe answers with an error is the same error, and shows nothing": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		h.Contradict(&r.rt)
		path, err := h.Kind.Snapshot(t.Context(), r.rt, filepath.Join(r.Dir, "shots"))
		wantCode(t, err, teardown.CodeRuntimeIdentity)
		r.rt.Identity = nil
		_, err = h.Kind.Snapshot(t.Context(), r.rt, filepath.Join(r.Dir, "shots"))
		wantCode(t, err, teardown.CodeRuntimeUnroutable)
		if path != "" || r.Has("shots") {
			t.Errorf("it shows somebody else's: %q", path)
		}
	},
	"one that is gone shows nothing": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		r.destroy(t, runtime.Options{})
		if path := r.snapshot(t); path != "" {
			t.Errorf("wrote %s", path)
		}
	},
	"that it fails does not stop Destroy": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		file := filepath.Join(r.Dir, "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		outcome := r.destroy(t, runtime.Options{Snapshot: file})
		wantOutcome(t, outcome, teardown.RuntimeReleased)
		if h.Shows && len(outcome.Notes) == 0 {
			t.Error("the failure was not noted")
		}
	},
	"Record is told of it before anything is ended": func(t *testing.T, h Harness) {
		r := h.start(t, `echo to be seen; `+Plain)
		var told []string
		outcome := r.destroy(t, runtime.Options{Snapshot: filepath.Join(r.Dir, "shots"), Record: func(_ context.Context, known teardown.Runtime, path string) error {
			wantAlive(t, r.agent)
			if content, _ := os.ReadFile(path); !strings.Contains(string(content), "to be seen") || !reflect.DeepEqual(known, r.rt) {
				t.Errorf("%+v is recorded with %q, which shows %q", known, path, content)
			}
			told = append(told, path)
			return nil
		}})
		wantOutcome(t, outcome, teardown.RuntimeReleased)
		if h.Shows != slices.Equal(told, []string{outcome.Runtime.Snapshot}) {
			t.Errorf("told of %q, the outcome says %q", told, outcome.Runtime.Snapshot)
		}
	},
	"what only its parent proves to be the runtime's is recorded before that ends": func(t *testing.T, h Harness) {
		r := h.start(t, Hidden)
		daemon := r.PID(t, "daemon")
		known := r.cutOff(t)
		wantAlive(t, daemon)
		r.rt = known
		wantOutcome(t, r.destroy(t, runtime.Options{}), teardown.RuntimeReleased)
		wantDead(t, daemon)
	},
	"so is what is in the kernel session of such a one, or comes into it later": func(t *testing.T, h Harness) {
		r := h.start(t, HiddenSession)
		daemon, orphan := r.PID(t, "daemon"), r.PID(t, "orphan")
		Eventually(t, "orphaned", func() bool { return !slices.Contains([]int{r.agent, daemon}, parentOf(t, orphan)) })
		known := r.cutOff(t)
		if err := os.WriteFile(filepath.Join(r.Dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		late := r.PID(t, "late")
		Eventually(t, "end of the leader", func() bool { return !Alive(daemon) })
		wantAlive(t, orphan, late)
		r.rt = known
		wantOutcome(t, r.destroy(t, runtime.Options{}), teardown.RuntimeReleased)
		wantDead(t, orphan, late)
	},
	"many without an environment do not use up the time": func(t *testing.T, h Harness) {
		r := h.start(t, `i=0; while [ $i -lt 40 ]; do env -i setsid sleep 900 & i=$((i+1)); done; `+Plain)
		wantOutcome(t, r.destroy(t, runtime.Options{Record: func(ctx context.Context, _ teardown.Runtime, _ string) error { return ctx.Err() }}), teardown.RuntimeReleased)
	},
	"an error of Record is returned as it is, and nothing is touched": func(t *testing.T, h Harness) {
		if !h.Shows {
			t.Skip("shows nothing")
		}
		r := h.start(t, Plain)
		lost := &teardown.Error{Code: teardown.CodeInternal, Message: "no refusal, although it is not retryable"}
		_, err := h.Kind.Destroy(t.Context(), r.rt, runtime.Options{Snapshot: filepath.Join(r.Dir, "shots"),
			Record: func(context.Context, teardown.Runtime, string) error { return lost }})
		if !errors.Is(err, lost) {
			t.Errorf("%v", err)
		}
		wantState(t, r, runtime.Alive)
		wantAlive(t, r.agent)
	},
	"Destroy takes it before it ends anything": func(t *testing.T, h Harness) {
		r := h.start(t, `echo to be seen; `+Plain)
		outcome := r.destroy(t, runtime.Options{Snapshot: filepath.Join(r.Dir, "shots")})
		content, _ := os.ReadFile(outcome.Runtime.Snapshot)
		if h.Shows && !strings.Contains(string(content), "to be seen") {
			t.Errorf("the snapshot %q shows %q", outcome.Runtime.Snapshot, content)
		}
	},
}

// cutOff is a destroyer that ends right after it has recorded what it knows; then
// the agent is killed by somebody else.
func (r *running) cutOff(t *testing.T) (known teardown.Runtime) {
	t.Helper()
	cut := errors.New("cut off")
	_, err := r.Kind.Destroy(t.Context(), r.rt, runtime.Options{Record: func(_ context.Context, more teardown.Runtime, _ string) error {
		known = more
		return cut
	}})
	if !errors.Is(err, cut) {
		t.Fatalf("%v", err)
	}
	Kill(t, r.agent)
	Eventually(t, "gone", func() bool { state, _ := r.Kind.Probe(t.Context(), r.rt); return state == runtime.Gone })
	return known
}

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	p, err := proctable.Read(pid)
	if err != nil {
		t.Fatal(err)
	}
	return p.Parent
}

func (r *running) snapshot(t *testing.T) string {
	t.Helper()
	path, err := r.Kind.Snapshot(t.Context(), r.rt, filepath.Join(r.Dir, "shots"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var destroySentences = map[string]func(*testing.T, Harness){
	"released: it was there and is gone": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		wantOutcome(t, r.destroy(t, runtime.Options{}), teardown.RuntimeReleased)
		wantDead(t, r.agent)
		wantState(t, r, runtime.Gone)
	},
	"again is harmless and answers already_gone": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		r.destroy(t, runtime.Options{})
		wantOutcome(t, r.destroy(t, runtime.Options{}), teardown.RuntimeAlreadyGone)
	},
	"already_gone: it ended by itself": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		Kill(t, r.agent)
		Eventually(t, "gone", func() bool { state, _ := h.Kind.Probe(t.Context(), r.rt); return state == runtime.Gone })
		wantOutcome(t, r.destroy(t, runtime.Options{}), teardown.RuntimeAlreadyGone)
	},
	"it gets time to save": func(t *testing.T, h Harness) {
		r := h.start(t, Saving)
		wantOutcome(t, r.destroy(t, runtime.Options{}), teardown.RuntimeReleased)
		wantDead(t, r.agent)
		if !r.Has("saved") {
			t.Error("it could not save")
		}
	},
	"one that is stopped is woken to save": func(t *testing.T, h Harness) {
		r := h.start(t, Saving)
		Signal(Ref(t, r.agent), unix.SIGSTOP)
		r.destroy(t, runtime.Options{})
		wantDead(t, r.agent)
		if !r.Has("saved") {
			t.Error("it could not save")
		}
	},
	"what does not listen is killed": func(t *testing.T, h Harness) {
		r := h.start(t, Deaf)
		wantOutcome(t, r.destroy(t, runtime.Options{}), teardown.RuntimeReleased)
		wantDead(t, r.agent)
	},
	"a process of its own in another kernel session is ended": func(t *testing.T, h Harness) {
		r := h.start(t, Daemon)
		daemon := r.PID(t, "daemon")
		wantOutcome(t, r.destroy(t, runtime.Options{}), teardown.RuntimeReleased)
		wantDead(t, r.agent, daemon)
	},
	"a process of its own without the tag is ended": func(t *testing.T, h Harness) {
		r := h.start(t, Nameless)
		daemon := r.PID(t, "daemon")
		wantOutcome(t, r.destroy(t, runtime.Options{}), teardown.RuntimeReleased)
		wantDead(t, r.agent, daemon)
	},
	"what outlived it is ended: released": func(t *testing.T, h Harness) {
		r := h.start(t, Daemon)
		daemon := r.PID(t, "daemon")
		Kill(t, r.agent)
		wantOutcome(t, r.destroy(t, runtime.Options{}), teardown.RuntimeReleased)
		wantDead(t, daemon)
	},
	"what outlived it without the tag is ended": func(t *testing.T, h Harness) {
		r := h.start(t, Nameless)
		daemon := r.PID(t, "daemon")
		Kill(t, r.agent)
		wantOutcome(t, r.destroy(t, runtime.Options{}), teardown.RuntimeReleased)
		wantDead(t, daemon)
	},
	"names, arguments and parts of the tag are no evidence": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		mention := r.Stage.Start(t, "/", `: `+r.Worktree+` `+r.RunID+` agent; while :; do sleep 1; done`)
		longer := r.Stage.Start(t, "/", `exec sleep 900`, r.EnvTag()+"-2")
		other := r.Stage.Start(t, "/", `exec sleep 900`, "X_"+r.EnvTag())
		beside := r.Stage.Start(t, mkdir(t, r.Worktree+"2"), `exec sleep 900`)
		wantOutcome(t, r.destroy(t, runtime.Options{}), teardown.RuntimeReleased)
		wantAlive(t, mention, longer, other, beside)
	},
	"a child that belongs to another run is left": func(t *testing.T, h Harness) {
		r := h.start(t, `UNWIND_RUN_ID=another-run setsid sh -c 'cd /; echo $$ >$STAGE/daemon; exec sleep 900' & `+Plain)
		other := r.PID(t, "daemon")
		wantOutcome(t, r.destroy(t, runtime.Options{}), teardown.RuntimeReleased)
		wantAlive(t, other)
	},
	"somebody in the worktree: refused, listed and left": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		occupant := r.Stage.Start(t, mkdir(t, r.Worktree+"/sub"), `exec sleep 900`)
		outcome := r.destroy(t, runtime.Options{})
		wantOutcome(t, outcome, teardown.RuntimeRefused)
		want := []string{process(t, occupant)}
		if outcome.Runtime.Code != teardown.CodeRuntimeOccupied || !reflect.DeepEqual(outcome.Runtime.Details, want) ||
			!reflect.DeepEqual(outcome.Occupants, want) || outcome.Message == "" {
			t.Errorf("%+v, want %v", outcome, want)
		}
		wantAlive(t, occupant)
		wantDead(t, r.agent)
		Kill(t, occupant)
		wantOutcome(t, r.destroy(t, runtime.Options{}), teardown.RuntimeAlreadyGone)
	},
	"somebody in the worktree, when allowed: released and noted": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		occupant := r.Stage.Start(t, r.Worktree, `exec sleep 900`)
		outcome := r.destroy(t, runtime.Options{AllowOccupants: true})
		wantOutcome(t, outcome, teardown.RuntimeReleased)
		if want := []string{process(t, occupant)}; !reflect.DeepEqual(outcome.Occupants, want) {
			t.Errorf("occupants %q, want %q", outcome.Occupants, want)
		}
		wantAlive(t, occupant)
	},
	"a record without identity is refused and not touched": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		r.rt.Identity = nil
		wantRefused(t, r, teardown.CodeRuntimeUnroutable)
	},
	"a record without boot id is refused and not touched": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		r.rt.Identity.BootID = ""
		wantRefused(t, r, teardown.CodeRuntimeUnroutable)
	},
	"a record that contradicts what is there is refused and not touched": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		h.Contradict(&r.rt)
		wantRefused(t, r, teardown.CodeRuntimeIdentity)
	},
	"a record of an earlier boot: already_gone, nothing is signalled": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		r.rt.Identity.BootID = "00000000-0000-4000-8000-000000000000"
		wantOutcome(t, r.destroy(t, runtime.Options{}), teardown.RuntimeAlreadyGone)
		wantAlive(t, r.agent)
	},
	"marked gone: already_gone, survivors are ended all the same": func(t *testing.T, h Harness) {
		r := h.start(t, Daemon)
		daemon := r.PID(t, "daemon")
		Kill(t, r.agent)
		bare := teardown.Runtime{Kind: r.rt.Kind, Gone: true}
		outcome, err := h.Kind.Destroy(t.Context(), bare, runtime.Options{})
		if err != nil {
			t.Fatal(err)
		}
		wantOutcome(t, outcome, teardown.RuntimeAlreadyGone)
		wantAlive(t, daemon)
		bare.Identity = &teardown.RuntimeIdentity{EnvTag: r.EnvTag()}
		if _, err := h.Kind.Destroy(t.Context(), bare, runtime.Options{}); err != nil {
			t.Fatal(err)
		}
		wantDead(t, daemon)
	},
	"confirmed gone: no probe, survivors are ended all the same": func(t *testing.T, h Harness) {
		r := h.start(t, Daemon)
		daemon := r.PID(t, "daemon")
		Kill(t, r.agent)
		r.rt.Socket, r.rt.PID, r.rt.StartTime = "", 0, 0
		wantOutcome(t, r.destroy(t, runtime.Options{ConfirmedGoneBy: "somebody"}), teardown.RuntimeReleased)
		wantDead(t, daemon)
	},
	"the caller is never signalled, not even with the run's tag": func(t *testing.T, h Harness) {
		r := h.start(t, Daemon)
		daemon := r.PID(t, "daemon")
		Elsewhere(t, r.rt, r.EnvTag()).want(t, teardown.RuntimeReleased)
		wantDead(t, r.agent, daemon)
	},
	"a control group that holds others too is a contradiction": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		r.rt.Identity.Cgroup = ownCgroup(t)
		wantRefused(t, r, teardown.CodeRuntimeIdentity)
	},
	"what could not be told is an error, and nothing is touched": func(t *testing.T, h Harness) {
		r := h.obscured(t)
		err := r.fail(t, runtime.Options{})
		wantCode(t, err, teardown.CodeRuntimeUnreachable)
		if !runtime.Retryable(err) {
			t.Errorf("%v", err)
		}
		wantAlive(t, r.agent)
		r.undo()
		wantOutcome(t, r.destroy(t, runtime.Options{}), teardown.RuntimeReleased)
	},
	"what outlived it and does not end in time is an error that lists it": func(t *testing.T, h Harness) {
		r := h.start(t, `setsid sh -c 'trap "" TERM HUP; echo $$ >$STAGE/daemon; while :; do sleep .1; done' & `+Plain)
		daemon := r.PID(t, "daemon")
		Kill(t, r.agent)
		Eventually(t, "gone", func() bool { state, _ := h.Kind.Probe(t.Context(), r.rt); return state == runtime.Gone })
		err := r.fail(t, runtime.Options{Limit: time.Second / 2})
		wantCode(t, err, teardown.CodeRuntimeSurvivors)
		if !runtime.Retryable(err) || !slices.Contains(details(err), process(t, daemon)) {
			t.Errorf("%v lists %q", err, details(err))
		}
		wantOutcome(t, r.destroy(t, runtime.Options{}), teardown.RuntimeReleased)
		wantDead(t, daemon)
	},
	"what hands itself on faster than it can be ended is never taken for gone": func(t *testing.T, h Harness) {
		r := h.chained(t)
		// More than patience and all that may shorten it.
		err := r.fail(t, runtime.Options{Limit: 6 * time.Second})
		wantSurvivors(t, err)
		r.stop(t)
		r.destroy(t, runtime.Options{})
	},
	"nor when the call is cut short": func(t *testing.T, h Harness) {
		r := h.chained(t)
		Kill(t, r.agent)
		Eventually(t, "gone", func() bool { state, _ := h.Kind.Probe(t.Context(), r.rt); return state == runtime.Gone })
		// Often, as it depends on the moment; and another error may come first.
		for i := range 20 {
			err := r.fail(t, runtime.Options{Limit: time.Duration(20+10*i) * time.Millisecond})
			if teardown.CodeOf(err) == teardown.CodeRuntimeUnreachable && runtime.Retryable(err) {
				continue
			}
			wantSurvivors(t, err)
		}
		r.stop(t)
		r.destroy(t, runtime.Options{})
	},
	"an error when time is over, and the runtime counts as alive": func(t *testing.T, h Harness) {
		r := h.start(t, Deaf)
		err := r.fail(t, runtime.Options{Limit: time.Second / 2})
		if !runtime.Retryable(err) {
			t.Fatalf("%v", err)
		}
		wantOutcome(t, r.destroy(t, runtime.Options{}), teardown.RuntimeReleased)
		wantDead(t, r.agent)
	},
	"a cancelled call says so": func(t *testing.T, h Harness) {
		r := h.start(t, Deaf)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := h.Kind.Destroy(ctx, r.rt, runtime.Options{}); !runtime.Retryable(err) {
			t.Errorf("%v", err)
		}
	},
	"progress is told": func(t *testing.T, h Harness) {
		r := h.start(t, Deaf)
		told := 0
		r.destroy(t, runtime.Options{Progress: func(string) { told++ }})
		if told < 5 {
			t.Errorf("told %d times", told)
		}
	},
}

var pinSentences = map[string]func(*testing.T, Harness){
	"what is left out is looked up": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		if r.rt.Identity.BootID == "" || r.rt.Identity.EnvTag != r.EnvTag() || r.rt.Identity.Worktree != r.Worktree {
			t.Errorf("%+v", r.rt.Identity)
		}
	},
	"pinning a pinned runtime changes nothing": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		again, err := h.Kind.Pin(t.Context(), r.rt)
		if err != nil || !reflect.DeepEqual(again, r.rt) {
			t.Errorf("%+v %v, want %+v", again.Identity, err, r.rt.Identity)
		}
	},
	"a given value that contradicts what is there is an error": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		for name, change := range map[string]func(*teardown.Runtime){
			"kind's own": h.Contradict,
			"env_tag":    func(rt *teardown.Runtime) { rt.Identity.EnvTag += "x" },
		} {
			rt := r.rt
			identity := *rt.Identity
			rt.Identity = &identity
			change(&rt)
			_, err := h.Kind.Pin(t.Context(), rt)
			if teardown.CodeOf(err) != teardown.CodeRuntimeIdentity {
				t.Errorf("%s: %v", name, err)
			}
		}
	},
	"one that is not there is unroutable": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		r.destroy(t, runtime.Options{})
		_, err := h.Kind.Pin(t.Context(), r.rt)
		wantCode(t, err, teardown.CodeRuntimeUnroutable)
	},
	"one of an earlier boot is unroutable": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		r.rt.Identity.BootID = "00000000-0000-4000-8000-000000000000"
		_, err := h.Kind.Pin(t.Context(), r.rt)
		wantCode(t, err, teardown.CodeRuntimeUnroutable)
	},
	"one marked gone that lives is a contradiction": func(t *testing.T, h Harness) {
		r := h.start(t, Plain)
		r.rt.Gone = true
		_, err := h.Kind.Pin(t.Context(), r.rt)
		wantCode(t, err, teardown.CodeRuntimeIdentity)
		bare := r.rt
		bare.Identity, bare.StartTime = nil, 0
		_, err = h.Kind.Pin(t.Context(), bare)
		wantCode(t, err, teardown.CodeRuntimeIdentity)
		r.rt.Gone = false
		r.destroy(t, runtime.Options{})
		r.rt.Gone = true
		if _, err := h.Kind.Pin(t.Context(), r.rt); err != nil {
			t.Errorf("it is gone by now: %v", err)
		}
	},
	"one marked gone is returned as it is": func(t *testing.T, h Harness) {
		bare := teardown.Runtime{Kind: "any", Gone: true, Session: "was"}
		rt, err := h.Kind.Pin(t.Context(), bare)
		if err != nil || !reflect.DeepEqual(rt, bare) {
			t.Errorf("%+v %v", rt, err)
		}
	},
}

func wantState(t *testing.T, r *running, want runtime.State) {
	t.Helper()
	if state, err := r.Kind.Probe(t.Context(), r.rt); state != want || err != nil {
		t.Errorf("Probe: %v %v, want %v", state, err, want)
	}
}

func wantOutcome(t *testing.T, outcome runtime.Outcome, want teardown.RuntimeOutcome) {
	t.Helper()
	if outcome.Runtime.Outcome != want {
		t.Errorf("outcome %+v, want %s", outcome, want)
	}
}

func wantRefused(t *testing.T, r *running, code teardown.Code) {
	t.Helper()
	outcome := r.destroy(t, runtime.Options{})
	if outcome.Runtime.Outcome != teardown.RuntimeRefused || outcome.Runtime.Code != code || outcome.Message == "" {
		t.Errorf("outcome %+v, want refused %s", outcome, code)
	}
	wantAlive(t, r.agent)
}

func wantCode(t *testing.T, err error, code teardown.Code) {
	t.Helper()
	if teardown.CodeOf(err) != code {
		t.Errorf("%v, want %s", err, code)
	}
}

func wantSurvivors(t *testing.T, err error) {
	t.Helper()
	wantCode(t, err, teardown.CodeRuntimeSurvivors)
	if !runtime.Retryable(err) || len(details(err)) == 0 {
		t.Errorf("%v lists %q", err, details(err))
	}
}

func wantDead(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if Alive(pid) {
			t.Errorf("process %d lives", pid)
		}
	}
}

func wantAlive(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if !Alive(pid) {
			t.Errorf("process %d is dead", pid)
		}
	}
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func process(t *testing.T, pid int) string {
	t.Helper()
	p, err := proctable.Read(pid)
	if err != nil {
		t.Fatal(err)
	}
	return p.String()
}

func details(err error) []string {
	var e *teardown.Error
	if errors.As(err, &e) {
		return e.Details
	}
	return nil
}
