/**
 * `worker`: one of several processes of a sidecar. Started by `serve` and by nobody else.
 *
 * @module
 */
import { Command } from 'commander'
import { type Channel, runWorker, type WorkerOptions } from '../workers/worker.ts'
import { UsageFailure } from './command-io.ts'

/** Makes the command. */
export function workerCommand(deps: {
  readonly channel: Channel
  readonly createApp: WorkerOptions['createApp']
}): Command {
  return new Command('worker').action(async () => {
    if (deps.channel.send === undefined)
      throw new UsageFailure('workers are started by serve, with the setting workers')
    await runWorker(deps)
  })
}
