// unwind's contract as far as a caller needs it: names, and what goes in and
// comes out, as plain JSON. Fields are only ever added, so ignore unknown ones.

export const FINALIZE_SESSION = 'FinalizeSession';
export const AWAIT_FINALIZATION = 'AwaitFinalization';
export const DEFAULT_TASK_QUEUE = 'unwind';

/** The workflow id of a session's finalization. */
export const finalizeSessionId = (sessionId: string): string => `finalize-session-${sessionId}`;

export interface FinalizeSessionInput {
  session_id: string;
  /** `return` answers `preserved` or `failed` where `wait`, the default, waits for a person. */
  on_parked?: 'wait' | 'return';
  /** The generation that the caller terminated; see finalize.ts. */
  generation?: number;
}

export interface AwaitFinalizationInput {
  session_id: string;
  on_parked?: 'wait' | 'return';
}

export type Outcome = 'finalized' | 'preserved' | 'failed' | 'restored' | 'deferred' | 'superseded';

export type Disposition = 'pending' | 'removed' | 'already_gone' | 'retained' | 'preserved' | 'refused' | 'failed' | 'not_applicable';

export interface RuntimeResult {
  id?: string;
  kind: string;
  role: string;
  outcome: 'pending' | 'released' | 'already_gone' | 'refused' | 'failed';
  /** Why it is refused or failed, else empty. */
  code: string;
  details?: string[];
  /** File that holds the scrollback. */
  snapshot?: string;
}

export interface WorktreeResult {
  id?: string;
  path: string;
  disposition: Disposition;
  /** Why it stays, such as `untracked`, else empty. */
  code: string;
  retryable: boolean;
  /** What was found; at most 20 entries and one that counts the rest. */
  details: string[] | null;
  /** What it holds on disk, if it stays. */
  bytes: number;
  saved_ref: string;
}

export interface Result {
  session_id: string;
  generation: number;
  outcome: Outcome;
  runtimes: RuntimeResult[] | null;
  worktrees: WorktreeResult[] | null;
  /** Counts all of them when worktrees lists only the first 50. */
  worktrees_total?: number;
  resources: { cleared: number; kept: number };
  /** Why it is parked or failed. */
  failure: { code: string; message: string };
  attempts: number;
  /** RFC 3339. */
  started_at: string | null;
  finished_at: string | null;
}
