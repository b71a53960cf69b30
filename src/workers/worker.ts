/**
 * A worker: a sidecar without an admin listener, controlled by the primary process.
 * It ends when it has stopped. When the primary dies, `node:cluster` ends it.
 */
import type { AddressInfo } from 'node:net'
import type { ServingApp } from '../app.ts'
import type { Config } from '../config/schema.ts'
import type { DrainReport } from '../ops/life-cycle.ts'
import { type RegisteredFamily, statusMetrics } from '../ops/samples.ts'
import type { ReadyCheck } from '../ops/status.ts'

/** What the admin listener shows of a worker. */
export interface WorkerState {
  readonly checks: readonly ReadyCheck[]
  readonly jwks: unknown
  readonly metrics: readonly RegisteredFamily[]
}

/** Which metrics are sent: all, or those of the status page, which cost less. */
export type MetricsExtent = 'all' | 'status'

export type ToWorker =
  | { readonly type: 'start'; readonly config: Config }
  | { readonly type: 'reload' }
  | { readonly type: 'state'; readonly id: number; readonly extent: MetricsExtent }
  | { readonly type: 'stop'; readonly lameDuck: boolean }

/** `ready`: the worker receives messages from now on. `failed`: with the fields that explain a failed start. */
export type FromWorker =
  | { readonly type: 'ready' }
  | { readonly type: 'listening'; readonly address: AddressInfo }
  | { readonly type: 'failed'; readonly error: { readonly name: string; readonly message: string } }
  | { readonly type: 'state'; readonly id: number; readonly state: WorkerState }
  | { readonly type: 'stopped'; readonly report: DrainReport }

/** Serves until the primary stops it. `createApp` creates the sidecar from its settings. */
export function runWorker(createApp: (config: Config) => Promise<ServingApp>): Promise<void> {
  let app: ServingApp | undefined
  // A response that is framed by the end of its connection must not look whole.
  process.on('exit', () => app?.abort())
  return new Promise((resolve) => {
    const handle = async (message: ToWorker): Promise<void> => {
      if (message.type === 'start') {
        app = await createApp(message.config)
        send({ type: 'listening', address: (await app.start()).data })
      } else if (message.type === 'reload') await app?.reload()
      else if (message.type === 'stop') {
        const report = (await app?.stop({ lameDuck: message.lameDuck })) ?? { drained: 0, cut: 0 }
        send({ type: 'stopped', report }, resolve)
      } else if (app !== undefined) {
        const { sources, registry } = app
        const metrics = message.extent === 'all' ? registry.getMetricsAsJSON() : statusMetrics(registry)
        const state = { checks: await sources.ready(), jwks: await sources.jwks(), metrics: await metrics }
        send({ type: 'state', id: message.id, state })
      }
    }
    process.on('message', (message: ToWorker) => {
      // Spread: Node's own fields, such as `code` and `port` of a listener that could not be created.
      handle(message).catch((error: Error) =>
        send({ type: 'failed', error: { ...error, name: error.name, message: error.message } }),
      )
    })
    send({ type: 'ready' })
  })
}

/** Sends to the primary; where it is gone, nothing is left to do. */
function send(message: FromWorker, sent = () => {}): void {
  process.send?.(message, undefined, undefined, sent)
}
