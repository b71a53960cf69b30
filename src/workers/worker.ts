/**
 * A worker: a sidecar without an admin listener, controlled by the primary process.
 * Its process ends after the stop. If the primary dies, `node:cluster` ends it.
 */
import cluster from 'node:cluster'
import { once } from 'node:events'
import type { ServingApp } from '../app.ts'
import type { Config } from '../config/config.ts'
import type { DrainReport } from '../life-cycle.ts'
import type { AdminData } from '../ops/admin.ts'
import { type MetricsScope, statusMetrics } from '../ops/samples.ts'
import type { Problem } from '../values/problem.ts'

export type WorkerState = Awaited<ReturnType<typeof stateOf>>

export type ToWorker =
  | { readonly type: 'init'; readonly config: Config }
  | { readonly type: MetricsScope | 'reload' }
  | { readonly type: 'stop'; readonly lameDuck: boolean }

/** An error with Node's own fields, such as `code` and `port` of a listener. `InvalidAuthData` has problems. */
export type SerializedError = Pick<Error, 'name' | 'message'> & { readonly problems?: readonly Problem[] }

/** `init`: asks for the settings. `failed`: the start has failed. */
export type FromWorker =
  | { readonly type: 'init'; readonly value?: undefined }
  | { readonly type: 'failed'; readonly value: SerializedError }
  | { readonly type: MetricsScope; readonly value: WorkerState }
  | { readonly type: 'stopped'; readonly value: DrainReport }

/** Serves until the primary stops it. `createApp` creates the sidecar from its settings. */
export async function runWorker(createApp: (config: Config) => Promise<ServingApp>): Promise<void> {
  try {
    const [[{ config }]] = await Promise.all([once(process, 'message'), sendToPrimary({ type: 'init' })])
    await serve(await createApp(config))
  } catch (error) {
    if (!(error instanceof Error)) throw error
    await sendToPrimary({ type: 'failed', value: { ...error, name: error.name, message: error.message } })
  }
}

async function serve(app: ServingApp): Promise<void> {
  // A response that is framed by the end of its connection must not look complete.
  process.on('exit', app.abort)
  const stopRequested = new Promise<{ readonly lameDuck: boolean }>((resolve) => {
    process.on('message', async (message: ToWorker) => {
      const { type } = message
      if (type === 'stop') resolve(message)
      else if (type === 'reload') await app.reload()
      else if (type !== 'init') await sendToPrimary({ type, value: await stateOf(app.adminData, type) })
    })
  })
  await app.start()
  await sendToPrimary({ type: 'stopped', value: await app.stop(await stopRequested) })
}

async function stateOf(data: AdminData, scope: MetricsScope) {
  const registry = await data.registry(scope)
  const metrics = scope === 'all' ? registry.getMetricsAsJSON() : statusMetrics(registry)
  return { checks: await data.checks(), jwks: data.jwks(), metrics: await metrics }
}

function sendToPrimary(message: FromWorker): Promise<void> {
  return new Promise((resolve) => {
    cluster.worker?.send(message, () => resolve())
  })
}
