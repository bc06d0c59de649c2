package store_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"unwind/internal/store"
	"unwind/teardown"
	"unwind/test/pgtest"
)

// promise is one sentence about the store, and the code that asserts it.
type promise struct {
	says string
	test func(*testing.T, *bundle)
}

// TestConformance runs every promise on both databases.
func TestConformance(t *testing.T) {
	t.Parallel()
	suite := slices.Concat(addPromises, attachPromises, attemptPromises, beginPromises, choicePromises, claimPromises, deletePromises,
		detailPromises, faultPromises, finishPromises, forgePromises, forkPromises, hostPromises, leasePromises, listPromises, observePromises,
		parkPromises, releasePromises, resourcePromises, restorePromises, resultPromises, retryPromises, runtimePromises,
		sessionPromises, snapshotPromises, startPromises, strayPromises, taskPromises, treePromises, turnPromises, unboundPromises,
		unreadablePromises, vanishedPromises, watchPromises, worktreePromises)
	for _, dialect := range dialects {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			for _, p := range suite {
				t.Run(p.says, func(t *testing.T) {
					t.Parallel()
					p.test(t, setup(t, dialect))
				})
			}
		})
	}
}

var dialects = []store.Dialect{store.SQLite, store.Postgres}

// bundle is a fresh database, and the short words of the tests.
type bundle struct {
	*store.Store
	t   testing.TB
	url string
}

func setup(t testing.TB, dialect store.Dialect) *bundle {
	t.Helper()
	url := "sqlite://" + filepath.Join(t.TempDir(), "unwind.db")
	if dialect == store.Postgres {
		url = migratedPostgres(t)
	}
	return &bundle{Store: open(t, url), t: t, url: url}
}

func migratedPostgres(t testing.TB) string {
	t.Helper()
	return pgtest.Copy(t, "migrated", func(ctx context.Context, url string) error {
		_, err := store.Migrate(ctx, url)
		return err
	})
}

func open(t testing.TB, url string) *store.Store {
	t.Helper()
	s, err := store.Open(context.Background(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

const host = "host1"

var ctx = context.Background()

// session registers a live session that holds worktrees at these paths; those
// inside others have them as parents. Worktree ids are made from the paths.
func (b *bundle) session(id string, paths ...string) {
	b.t.Helper()
	b.add(b.manifest(id, paths...))
}

func (b *bundle) manifest(id string, paths ...string) store.NewSession {
	n := store.NewSession{ID: id, Host: host, ManifestHash: "hash of " + id}
	for _, path := range paths {
		n.Worktrees = append(n.Worktrees, store.NewWorktree{
			ID: idOf(path), Repository: "/src/app", Path: path, Branch: "agent/" + id, Nonce: "nonce " + path, ParentID: parentOf(path, paths)})
	}
	return n
}

func (b *bundle) add(n store.NewSession) {
	b.t.Helper()
	added, err := b.AddSession(ctx, n)
	require.NoError(b.t, err)
	require.True(b.t, added)
}

// idOf is the id of the first worktree at a path.
func idOf(path string) string {
	id := "w"
	for _, r := range path {
		switch {
		case r == '/':
			id += "-"
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-':
			id += string(r)
		default:
			id += fmt.Sprintf("_%x", r)
		}
	}
	return id
}

func parentOf(path string, among []string) string {
	parent := ""
	for _, other := range among {
		if strings.HasPrefix(path, other+"/") && len(other) > len(parent) {
			parent = other
		}
	}
	if parent == "" {
		return ""
	}
	return idOf(parent)
}

func (b *bundle) terminate(id string) {
	b.t.Helper()
	_, _, err := b.Terminate(ctx, id, "test")
	require.NoError(b.t, err)
}

// begin is a first run of the finalization.
func (b *bundle) begin(id string) teardown.Step {
	b.t.Helper()
	begun, err := b.Begin(ctx, teardown.BeginInput{SessionID: id, WorkflowID: teardown.FinalizeSessionID(id)})
	require.NoError(b.t, err)
	require.Empty(b.t, begun.Outcome)
	return begun.Step
}

// terminated registers, terminates and begins.
func (b *bundle) terminated(id string, paths ...string) teardown.Step {
	b.t.Helper()
	b.session(id, paths...)
	b.terminate(id)
	return b.begin(id)
}

// release answers the paths' ids of the plan, in its order.
func (b *bundle) release(step teardown.Step) []string {
	b.t.Helper()
	plan, err := b.ReleaseLeases(ctx, step)
	require.NoError(b.t, err)
	require.False(b.t, plan.Superseded)
	require.False(b.t, plan.Parked)
	return planned(plan)
}

func planned(plan teardown.ReleaseLeasesResult) []string {
	ids := []string{}
	for _, removal := range plan.Removals {
		ids = append(ids, removal.WorktreeID)
	}
	return ids
}

// released is terminated, and its leases given up.
func (b *bundle) released(id string, paths ...string) teardown.Step {
	b.t.Helper()
	step := b.terminated(id, paths...)
	b.release(step)
	return step
}

func (b *bundle) claim(step teardown.Step, path string) store.Claim {
	b.t.Helper()
	claim, err := b.Claim(ctx, step, idOf(path))
	require.NoError(b.t, err)
	return claim
}

func (b *bundle) mustClaim(step teardown.Step, path string) {
	b.t.Helper()
	claim := b.claim(step, path)
	require.True(b.t, claim.Go, "claim of %s answered %q", path, claim.Result.Disposition)
}

// remove is claim … removed.
func (b *bundle) remove(step teardown.Step, path string) (reopened []string) {
	b.t.Helper()
	b.mustClaim(step, path)
	reopened, err := b.Removed(ctx, step, idOf(path), teardown.WorktreeResult{Disposition: teardown.DispositionRemoved})
	require.NoError(b.t, err)
	return reopened
}

// preserve is claim … preserved as modified.
func (b *bundle) preserve(step teardown.Step, path string) {
	b.t.Helper()
	b.mustClaim(step, path)
	written, err := b.Preserved(ctx, step, idOf(path), modified, false)
	require.NoError(b.t, err)
	require.True(b.t, written)
}

var modified = teardown.WorktreeResult{Disposition: teardown.DispositionPreserved, Code: teardown.CodeModified,
	Details: []string{"main.go"}, Bytes: 4096}

func (b *bundle) park(step teardown.Step, reason string) {
	b.t.Helper()
	parked, err := b.Park(ctx, teardown.ParkInput{Step: step, Reason: reason, Failure: teardown.Failure{Code: "modified", Message: "Work is left."}})
	require.NoError(b.t, err)
	require.False(b.t, parked.Superseded)
}

// retry records a round and answers its step.
func (b *bundle) retry(step teardown.Step) teardown.Step {
	b.t.Helper()
	round, recorded, err := b.Retry(ctx, step.SessionID, store.RetryOptions{})
	require.NoError(b.t, err)
	require.True(b.t, recorded)
	step.Round = round
	return step
}

// lease gives a live session a claim on a worktree, as a fork does.
func (b *bundle) lease(sessionID, path string) {
	b.t.Helper()
	require.NoError(b.t, b.Lease(ctx, store.Holder{Kind: store.HolderSession, ID: sessionID, Generation: 1}, idOf(path)))
}

// restored is what a restore leaves behind for a session without worktrees.
func (b *bundle) restored(id string) {
	b.t.Helper()
	b.exec("UPDATE sessions SET terminated_at = NULL, generation = generation + 1 WHERE id = ?", id)
}

func (b *bundle) exec(statement string, args ...any) {
	b.t.Helper()
	db := b.DB()
	_, err := db.ExecContext(ctx, db.Rebind(statement), args...)
	require.NoError(b.t, err)
}

func (b *bundle) state(path string) string {
	b.t.Helper()
	return b.worktree(path).State
}

func (b *bundle) worktree(path string) store.Worktree {
	b.t.Helper()
	w, err := b.Worktree(ctx, idOf(path))
	require.NoError(b.t, err)
	return w
}

// result is what is known of one worktree of the step's session.
func (b *bundle) result(step teardown.Step, path string) teardown.WorktreeResult {
	b.t.Helper()
	result, err := b.Result(ctx, step.SessionID, step.Generation)
	require.NoError(b.t, err)
	for _, w := range result.Worktrees {
		if w.ID == idOf(path) {
			return w
		}
	}
	b.t.Fatalf("session %s has no result for %s", step.SessionID, path)
	return teardown.WorktreeResult{}
}

func (b *bundle) disposition(step teardown.Step, path string) teardown.Disposition {
	b.t.Helper()
	return b.result(step, path).Disposition
}

func (b *bundle) finalization(step teardown.Step) store.Finalization {
	b.t.Helper()
	detail, err := b.SessionDetail(ctx, step.SessionID)
	require.NoError(b.t, err)
	for _, f := range detail.Finalizations {
		if f.Generation == step.Generation {
			return f
		}
	}
	b.t.Fatalf("no finalization of %s at generation %d", step.SessionID, step.Generation)
	return store.Finalization{}
}

func requireCode(t testing.TB, code teardown.Code, retryable bool, err error) {
	t.Helper()
	require.Error(t, err)
	var ours *teardown.Error
	require.ErrorAs(t, err, &ours)
	require.Equal(t, code, ours.Code, "%v", err)
	require.Equal(t, retryable, ours.Retryable, "%v", err)
	require.NotEmpty(t, ours.Message)
}

func soon() *time.Time { at := time.Now().Add(time.Hour); return &at }
func past() *time.Time { at := time.Now().Add(-time.Hour); return &at }
