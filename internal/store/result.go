package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"unwind/teardown"
)

// maxDetailBytes bounds what all details of one result hold together, so that
// the result stays far below Temporal's payload limit whatever the paths are.
const maxDetailBytes = 128 << 10

// Result answers what is known about the finalization of a session at one
// generation, whether or not it has begun. Lists are bounded by
// teardown.MaxListed; worktrees are ordered by path, parents first. Outcome is
// empty while steps run. session_not_found if neither the session nor a
// finalization of that generation is known.
func (s *Store) Result(ctx context.Context, sessionID string, generation int64) (result teardown.Result, err error) {
	err = s.read(ctx, func(q queries) error {
		result, err = resultOfHolder(ctx, q, Holder{Kind: HolderSession, ID: sessionID, Generation: generation})
		return err
	})
	return result, err
}

// TaskResult is Result for a task; task_not_found.
func (s *Store) TaskResult(ctx context.Context, taskID string, generation int64) (result teardown.Result, err error) {
	err = s.read(ctx, func(q queries) error {
		result, err = resultOfHolder(ctx, q, Holder{Kind: HolderTask, ID: taskID, Generation: generation})
		return err
	})
	return result, err
}

// generationOf reads the holder's row, if there is one.
func generationOf(ctx context.Context, q queries, me Holder) (generation int64, known bool, err error) {
	table := "sessions"
	if me.Kind == HolderTask {
		table = "tasks"
	}
	known, err = q.one(ctx, &generation, "SELECT generation FROM "+table+" WHERE id = ?", me.ID)
	return generation, known, err
}

func resultOfHolder(ctx context.Context, q queries, me Holder) (teardown.Result, error) {
	newest, known, err := generationOf(ctx, q, me)
	if err != nil {
		return teardown.Result{}, err
	}
	f, begun, err := finalizationOf(ctx, q, me)
	if err != nil {
		return teardown.Result{}, err
	}
	if !known && !begun {
		return teardown.Result{}, notFound(me)
	}
	result := teardown.Result{
		Generation: me.Generation, Outcome: f.Outcome,
		Failure:   teardown.Failure{Code: f.FailureCode, Message: f.FailureMessage},
		Attempts:  f.AttemptCount,
		StartedAt: f.StartedAt, FinishedAt: f.FinishedAt,
	}
	if known && newest > me.Generation && f.FinishedAt == nil {
		result.Outcome = teardown.OutcomeRestored
	}
	if result.Worktrees, err = worktreeResults(ctx, q, me); err != nil {
		return teardown.Result{}, err
	}
	if me.Kind == HolderTask {
		result.TaskID, result.Runtimes = me.ID, []teardown.RuntimeResult{}
		if err := addSessionResults(ctx, q, &result); err != nil {
			return teardown.Result{}, err
		}
	} else {
		result.SessionID = me.ID
		if result.Runtimes, err = runtimeResults(ctx, q, me); err != nil {
			return teardown.Result{}, err
		}
		if result.Resources, err = resourceCounts(ctx, q, me); err != nil {
			return teardown.Result{}, err
		}
	}
	if f.ParkedReason == teardown.ReasonRefused && !slices.ContainsFunc(result.Worktrees, wasRefused) {
		// Else every one is tried, so what was not cleared was refused.
		result.Resources.Refused = result.Resources.Kept
	}
	if result.Attempts == 0 && (f.FinishedAt != nil || somethingDecided(result)) {
		result.Attempts = 1
	}
	return shortened(result), nil
}

func wasRefused(w teardown.WorktreeResult) bool { return w.Disposition == teardown.DispositionRefused }

func somethingDecided(r teardown.Result) bool {
	return slices.ContainsFunc(r.Runtimes, func(rt teardown.RuntimeResult) bool { return rt.Outcome != teardown.RuntimePending }) ||
		slices.ContainsFunc(r.Worktrees, func(w teardown.WorktreeResult) bool { return w.Disposition != teardown.DispositionPending })
}

// runtimeResults lists the runtimes of the generation, and those of earlier ones
// that were left over.
func runtimeResults(ctx context.Context, q queries, me Holder) ([]teardown.RuntimeResult, error) {
	var runtimes []Runtime
	if err := q.all(ctx, &runtimes, "SELECT "+runtimeColumns+` FROM runtimes
		WHERE session_id = ? AND (generation = ? OR (generation < ? AND released_at IS NULL)) ORDER BY generation, id`,
		me.ID, me.Generation, me.Generation); err != nil {
		return nil, err
	}
	results := make([]teardown.RuntimeResult, len(runtimes))
	for i, r := range runtimes {
		results[i] = teardown.RuntimeResult{ID: r.ID, Kind: r.Kind, Role: r.Role,
			Outcome: r.Outcome, Code: r.Code, Details: r.Details.V, Snapshot: r.SnapshotPath}
	}
	return results, nil
}

func worktreeResults(ctx context.Context, q queries, me Holder) ([]teardown.WorktreeResult, error) {
	var leases []Lease
	if err := q.all(ctx, &leases, "SELECT "+leaseColumns+" FROM leases"+ofHolder, me.key()...); err != nil {
		return nil, err
	}
	leased, err := withWorktrees(ctx, q, leases)
	if err != nil {
		return nil, err
	}
	results := make([]teardown.WorktreeResult, len(leased))
	for i, l := range leased {
		results[i] = resultOf(l.Worktree, l.Lease)
	}
	return results, nil
}

// withWorktrees adds the worktrees to their leases, ordered by generation, then
// by path, then by id: a path that was used again is listed once for each use.
func withWorktrees(ctx context.Context, q queries, leases []Lease) ([]LeasedWorktree, error) {
	wanted := make([]string, len(leases))
	for i, l := range leases {
		wanted[i] = l.WorktreeID
	}
	byID := make(map[string]Worktree, len(leases))
	for page := range slices.Chunk(wanted, 500) { // both databases bound the number of parameters
		var worktrees []Worktree
		if err := q.among(ctx, &worktrees, "SELECT "+worktreeColumns+" FROM worktrees WHERE id IN (?)", page); err != nil {
			return nil, err
		}
		for _, w := range worktrees {
			byID[w.ID] = w
		}
	}
	out := make([]LeasedWorktree, len(leases))
	for i, l := range leases {
		out[i] = LeasedWorktree{Worktree: byID[l.WorktreeID], Lease: l}
	}
	slices.SortFunc(out, func(a, b LeasedWorktree) int {
		return cmp.Or(cmp.Compare(a.Lease.Generation, b.Lease.Generation),
			cmp.Compare(a.Worktree.Path, b.Worktree.Path), cmp.Compare(a.Worktree.ID, b.Worktree.ID))
	})
	return out, nil
}

// resultOf is what the lease says about the worktree.
func resultOf(w Worktree, lease Lease) teardown.WorktreeResult {
	unsettled := lease.Disposition == teardown.DispositionPending && lease.Code != ""
	return described(w, teardown.WorktreeResult{
		Disposition: lease.Disposition, Code: lease.Code, Details: lease.Details.V,
		Retryable: lease.Disposition == teardown.DispositionFailed || unsettled,
		Bytes:     lease.Bytes, SavedRef: lease.SavedRef,
	})
}

func resourceCounts(ctx context.Context, q queries, me Holder) (counts teardown.ResourcesResult, err error) {
	var resources []Resource
	err = q.all(ctx, &resources, "SELECT "+resourceColumns+` FROM resources
		WHERE session_id = ? AND generation = ?`, me.ID, me.Generation)
	for _, r := range resources {
		if r.ClearedAt != nil {
			counts.Cleared++
		} else {
			counts.Kept++
		}
	}
	return counts, err
}

// shortened bounds the lists and the details of a result.
func shortened(r teardown.Result) teardown.Result {
	if len(r.Runtimes) > teardown.MaxListed {
		r.Runtimes = r.Runtimes[:teardown.MaxListed]
	}
	if len(r.Worktrees) > teardown.MaxListed {
		r.WorktreesTotal, r.Worktrees = len(r.Worktrees), r.Worktrees[:teardown.MaxListed]
	}
	left := maxDetailBytes
	for i := range r.Runtimes {
		r.Runtimes[i].Details = withinBytes(r.Runtimes[i].Details, &left)
	}
	for i := range r.Worktrees {
		r.Worktrees[i].Details = withinBytes(r.Worktrees[i].Details, &left)
	}
	return r
}

// withinBytes keeps as many details as fit, and counts the rest.
func withinBytes(details []string, left *int) []string {
	for i, detail := range details {
		if *left -= len(detail); *left < 0 {
			*left = 0
			return append(slices.Clone(details[:i]), more(len(details)-i))
		}
	}
	return details
}

// bounded makes details fit to be stored and shown: never nil, at most
// teardown.MaxDetails entries and one that counts the rest.
func bounded(details []string) []string {
	kept := make([]string, 0, min(len(details), teardown.MaxDetails+1))
	for i, detail := range details {
		if i == teardown.MaxDetails && len(details) > teardown.MaxDetails+1 {
			return append(kept, more(len(details)-i))
		}
		kept = append(kept, readable(detail, maxText))
	}
	return kept
}

func more(n int) string { return fmt.Sprintf("and %d more", n) }
