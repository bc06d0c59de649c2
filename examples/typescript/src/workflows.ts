import { ActivityFailure, ApplicationFailure, ChildWorkflowFailure, isCancellation } from '@temporalio/workflow';
import { finalizeSession } from './finalize';
import { type Outcome, type WorktreeResult } from './unwind';

export interface CloseProjectInput {
  sessions: string[];
  unwind_queue?: string;
}

/** What became of one session: an outcome, or why there is none. */
export interface ClosedSession {
  session_id: string;
  outcome?: Outcome;
  /** The worktrees that stay, each with its reason and what was found. */
  kept?: WorktreeResult[];
  error?: { code: string; message: string };
}

/**
 * Has what the sessions of a project held released, and answers what became of
 * each, in the order of the input. One that is kept, or fails, stops none of the
 * others.
 */
export async function closeProject({ sessions, unwind_queue }: CloseProjectInput): Promise<ClosedSession[]> {
  return Promise.all(sessions.map((id) => closeSession(id, unwind_queue)));
}

async function closeSession(session_id: string, unwindQueue?: string): Promise<ClosedSession> {
  try {
    const result = await finalizeSession({ session_id, on_parked: 'return' }, unwindQueue);
    const kept = (result.worktrees ?? []).filter((w) => !['removed', 'already_gone', 'retained'].includes(w.disposition));
    return { session_id, outcome: result.outcome, kept };
  } catch (err) {
    if (isCancellation(err)) {
      throw err;
    }
    return { session_id, error: failureOf(err) };
  }
}

/** unwind's code, such as `session_live`, is the type of the application failure. */
function failureOf(err: unknown): { code: string; message: string } {
  const cause = err instanceof ChildWorkflowFailure || err instanceof ActivityFailure ? err.cause : err;
  if (cause instanceof ApplicationFailure) {
    return { code: cause.type ?? '', message: cause.message };
  }
  return { code: '', message: String(cause) };
}
