/** A worker: a sidecar without an admin listener. `node:cluster` ends a worker when its primary ends. */
import cluster from 'node:cluster'
import type { ServingApp } from '../app.ts'
import type { Config, Problem } from '../config/config.ts'
import type { DrainReport } from '../life-cycle.ts'
import type { AdminData } from '../ops/admin.ts'
import type { AccountCounts } from '../ops/busiest-accounts.ts'
import { storedFamilies } from '../ops/exposition.ts'
import type { MetricGroup, StoredFamily } from '../ops/metrics.ts'
import type { ReadyCondition } from '../ops/status.ts'

/** What the primary shows of a worker on its admin listener. */
export interface WorkerState {
  readonly conditions: readonly ReadyCondition[]
  readonly jwks: object | undefined
  readonly signingKid: string | undefined
  /** Those of the group that the primary has asked for. */
  readonly metrics: readonly StoredFamily[]
  readonly accounts: AccountCounts
}

export type ToWorker =
  | { readonly type: 'config'; readonly config: Config }
  | { readonly type: 'reload' }
  | { readonly type: 'verbose'; readonly isOn: boolean }
  | { readonly type: 'report'; readonly group: MetricGroup }
  | { readonly type: 'stop'; readonly lameDuck: boolean }

export type FromWorker =
  | { readonly type: 'awaitsConfig' }
  | { readonly type: 'startFailed'; readonly error: SerializedError }
  | { readonly type: 'state'; readonly group: MetricGroup; readonly state: WorkerState }
  | { readonly type: 'stopped'; readonly report: DrainReport }

/** An error with Node's own fields, such as `code` and `port`. `InvalidAuthData` has `problems`. */
export type SerializedError = Pick<Error, 'name' | 'message'> & { readonly problems?: readonly Problem[] }

/** Serves until the primary stops it. `createApp` creates the sidecar from its settings. */
export async function runWorker(createApp: (config: Config) => Promise<ServingApp>): Promise<void> {
  try {
    const config = new Promise<Config>((resolve) => {
      process.on('message', (message: ToWorker) => message.type === 'config' && resolve(message.config))
    })
    await sendToPrimary({ type: 'awaitsConfig' })
    await serve(await createApp(await config))
  } catch (error) {
    if (!(error instanceof Error)) {
      throw error
    }
    const { name, message } = error
    await sendToPrimary({ type: 'startFailed', error: { ...error, name, message } })
  }
}

async function serve(app: ServingApp): Promise<void> {
  // Without the abort, a close-delimited response would look complete when the process ends.
  process.on('exit', app.abort)
  const stopRequested = new Promise<{ readonly lameDuck: boolean }>((resolve) => {
    process.on('message', async (message: ToWorker) => {
      if (message.type === 'stop') {
        resolve(message)
      } else if (message.type === 'reload') {
        await app.reload()
      } else if (message.type === 'verbose') {
        app.verboseLog.set(message.isOn)
      } else if (message.type === 'report') {
        await report(app.adminData, message.group)
      }
    })
  })
  await app.start()
  await sendToPrimary({ type: 'stopped', report: await app.stop(await stopRequested) })
}

async function report(data: AdminData, group: MetricGroup): Promise<void> {
  const [families, signingKid] = await Promise.all([data.metrics(group), data.signingKid()])
  const metrics = await storedFamilies(families)
  const [conditions, jwks, accounts] = await Promise.all([data.conditions(), data.jwks(), data.accounts()])
  await sendToPrimary({ type: 'state', group, state: { conditions, jwks, signingKid, metrics, accounts } })
}

const sendToPrimary = (message: FromWorker): Promise<void> =>
  new Promise((resolve) => {
    cluster.worker?.send(message, () => resolve())
  })
