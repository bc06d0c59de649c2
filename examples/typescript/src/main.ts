// Worker and starter in one: closes a project's sessions and prints what became
// of each as JSON, one object a line.

import { randomUUID } from 'node:crypto';
import { Client, Connection } from '@temporalio/client';
import { DefaultLogger, NativeConnection, Runtime, Worker, makeTelemetryFilterString } from '@temporalio/worker';
import { closeProject } from './workflows';

const usage = `usage: npm start -- SESSION…

Has what terminated sessions held released by unwind, as children of workflow
closeProject. Ctrl-C cancels that workflow; what is being released already is
released nonetheless.

TEMPORAL_ADDRESS     Temporal's frontend (localhost:7233)
TEMPORAL_NAMESPACE   its namespace (default)
UNWIND_TASK_QUEUE    workflow queue of the unwind installation (unwind)
`;

async function main(sessions: string[]): Promise<number> {
  if (sessions.length === 0 || sessions[0].startsWith('-')) {
    process.stderr.write(usage);
    return sessions[0] === '--help' ? 0 : 2;
  }
  const address = process.env.TEMPORAL_ADDRESS ?? 'localhost:7233';
  const namespace = process.env.TEMPORAL_NAMESPACE ?? 'default';
  const workflowId = `close-project-${randomUUID()}`;
  const taskQueue = workflowId;

  Runtime.install({
    logger: new DefaultLogger('ERROR'),
    // Without it the native part of the SDK logs to standard output.
    telemetryOptions: { logging: { forward: {}, filter: makeTelemetryFilterString({ core: 'ERROR' }) } },
    // The worker is needed until the workflow has been seen cancelled.
    shutdownSignals: [],
  });
  const connection = await Connection.connect({ address });
  const client = new Client({ connection, namespace });
  const worker = await Worker.create({
    connection: await NativeConnection.connect({ address }),
    namespace,
    taskQueue,
    workflowsPath: require.resolve('./workflows'),
  });

  const closed = await worker.runUntil(async () => {
    const project = await client.workflow.start(closeProject, {
      workflowId,
      taskQueue,
      args: [{ sessions, unwind_queue: process.env.UNWIND_TASK_QUEUE }],
    });
    for (const signal of ['SIGINT', 'SIGTERM'] as const) {
      process.once(signal, () => void project.cancel());
    }
    return project.result();
  });
  for (const session of closed) {
    console.log(JSON.stringify(session));
  }
  return closed.every((session) => session.outcome === 'finalized') ? 0 : 3;
}

main(process.argv.slice(2)).then(
  (code) => process.exit(code),
  (err) => {
    console.error(err instanceof Error ? `${err.message}: ${String(err.cause ?? '')}` : err);
    process.exit(1);
  }
);
