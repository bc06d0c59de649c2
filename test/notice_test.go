package test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"unwind/test/pgtest"
)

// hourly makes the passes so rare that only a notification explains what is found.
const hourly = "UNWIND_RECONCILE_INTERVAL=1h"

func (i *installation) untilLogged(w *worker, words string) {
	i.t.Helper()
	i.until("logged: "+words, func() bool { return strings.Contains(w.log.String(), words) })
}

// upAndQuiet waits until the worker's first pass is done.
func (i *installation) upAndQuiet(w *worker) {
	i.t.Helper()
	i.untilLogged(w, i.queue+"-host-"+i.host+" WorkerID")
}

// What was missed while no worker ran comes before what a host is asked to do.
func TestFirstPassGoesBeforeTheHostsWork(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, i *installation) {
		i.env = []string{hourly}
		a := i.agent("s1")
		i.add(a)
		i.sql("UPDATE sessions SET terminated_at = '2026-01-02 03:04:05+00:00'")
		w := i.worker()
		i.upAndQuiet(w)
		log := w.log.String()
		require.Contains(t, log, "started=1")
		require.Less(t, strings.Index(log, "started=1"), strings.Index(log, i.queue+"-host-"+i.host+" WorkerID"))
		i.untilFinished(i.store(), a.id)
		i.requireReleased(a)
	})
}

func TestPlainSQLUpdateIsFoundAtOnce(t *testing.T) {
	onBothDatabases(t, func(_ *testing.T, i *installation) {
		i.env = []string{hourly}
		a := i.agent("s1")
		i.add(a)
		i.upAndQuiet(i.worker())
		i.sql("UPDATE sessions SET terminated_at = '2026-01-02 03:04:05+00:00', termination_source = 'a program'")
		i.untilFinished(i.store(), a.id)
		i.requireReleased(a)
	})
}

func TestListenerConnectionCutThenScansWhenItIsBack(t *testing.T) {
	t.Parallel()
	i := install(t)
	direct := pgtest.Database(t)
	i.database = direct
	i.must("migrate")
	i.env = []string{hourly}
	a := i.agent("s1")
	i.add(a)
	wire := newWire(t, direct)
	i.database = wire.url
	w := i.worker()
	i.upAndQuiet(w)
	wire.cut()
	i.until("asked in vain", func() bool { return wire.refusals() > 0 })
	i.database = direct
	i.sql("UPDATE sessions SET terminated_at = now()")
	wire.mend()
	i.untilFinished(i.store(), a.id)
	i.requireReleased(a)
}

func TestWithTheListenerDeadFoundWithinOnePeriod(t *testing.T) {
	onBothDatabases(t, func(_ *testing.T, i *installation) {
		i.env = []string{"UNWIND_RECONCILE_INTERVAL=2s"}
		a := i.agent("s1")
		i.add(a)
		if strings.HasPrefix(i.database, "sqlite:") {
			i.sql("DROP TRIGGER sessions_updated_terminated")
		} else {
			i.sql("DROP TRIGGER sessions_updated_terminated ON sessions")
		}
		i.upAndQuiet(i.worker())
		i.sql("UPDATE sessions SET terminated_at = '2026-01-02 03:04:05+00:00'")
		i.untilFinished(i.store(), a.id)
		i.requireReleased(a)
	})
}

func TestSQLiteFileDeletedOrReplacedUnderARunningWorker(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(t *testing.T, path string){
		"deleted": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"replaced": func(t *testing.T, path string) {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path+".new", content, 0o600))
			require.NoError(t, os.Rename(path+".new", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := install(t)
			w := i.worker()
			i.upAndQuiet(w)
			path := strings.TrimPrefix(i.database, "sqlite://")
			disturb(t, path)
			select {
			case <-w.done:
			case <-time.After(patience):
				t.Fatal("the worker goes on with a file that nobody else sees")
			}
			require.Equal(t, 69, w.cmd.ProcessState.ExitCode())
			require.Contains(t, w.log.String(), "The database file "+path+" was "+name+" while it was open")
		})
	}
}
