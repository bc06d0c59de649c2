// Workflow code: has a session finalized by unwind, from any workflow. Copy this
// file and unwind.ts.

import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import {
  CancellationScope,
  ParentClosePolicy,
  WorkflowIdReusePolicy,
  proxyActivities,
  startChild,
} from '@temporalio/workflow';
import {
  AWAIT_FINALIZATION,
  DEFAULT_TASK_QUEUE,
  FINALIZE_SESSION,
  type AwaitFinalizationInput,
  type FinalizeSessionInput,
  type Result,
  finalizeSessionId,
} from './unwind';

/**
 * Finalizes a session that is terminated, and waits for the result. Cancelling
 * the caller ends the waiting only: the finalization goes on.
 */
export async function finalizeSession(input: FinalizeSessionInput, taskQueue = DEFAULT_TASK_QUEUE): Promise<Result> {
  for (;;) {
    const result = await finalizeOnce(input, taskQueue);
    // A run that was under way may have been that of an older generation.
    if (result.generation >= (input.generation ?? 0)) {
      return result;
    }
  }
}

async function finalizeOnce(input: FinalizeSessionInput, taskQueue: string): Promise<Result> {
  let child;
  try {
    // Abandon protects the child from the parent's end, the scope of its own from
    // the parent's cancellation. That it has started is awaited: a parent that
    // returns before never starts it.
    child = await CancellationScope.nonCancellable(() =>
      startChild<(input: FinalizeSessionInput) => Promise<Result>>(FINALIZE_SESSION, {
        args: [input],
        workflowId: finalizeSessionId(input.session_id),
        taskQueue,
        parentClosePolicy: ParentClosePolicy.ABANDON,
        workflowIdReusePolicy: WorkflowIdReusePolicy.ALLOW_DUPLICATE,
        staticSummary: `Release what session ${input.session_id} held`,
      })
    );
  } catch (err) {
    if (err instanceof WorkflowExecutionAlreadyStartedError) {
      return awaitElsewhere(input, taskQueue);
    }
    throw err;
  }
  return Promise.race([child.result(), CancellationScope.current().cancelRequested]);
}

/**
 * Waits for a run that somebody else started, by an activity of unwind's, because
 * a workflow cannot wait for a workflow that is not its child.
 */
function awaitElsewhere({ session_id, on_parked }: FinalizeSessionInput, taskQueue: string): Promise<Result> {
  const unwind = proxyActivities<{ [AWAIT_FINALIZATION](input: AwaitFinalizationInput): Promise<Result> }>({
    taskQueue,
    startToCloseTimeout: '24 hours',
    heartbeatTimeout: '1 minute',
  });
  return unwind[AWAIT_FINALIZATION]({ session_id, on_parked });
}
