/**
 * A worker: a sidecar without an admin listener, which does what its supervisor says.
 *
 * In: messages. Out: messages. It ends when it has stopped. When its supervisor is gone, `node:cluster` ends it, and
 * what is under way is cut.
 *
 * @module
 */
import type { ServingApp } from '../app.ts'
import type { Config } from '../config/schema.ts'
import { type Extent, type FromWorker, plainError, type ToWorker, type WorkerState } from './messages.ts'

/** The channel to the supervisor: the part of `process` that is used. */
export interface Channel {
  send?(message: FromWorker, handle: undefined, options: undefined, done: () => void): boolean
  on(event: 'message', listener: (message: ToWorker) => void): unknown
  on(event: 'exit', listener: () => void): unknown
}

/** What a worker works with. */
export interface WorkerOptions {
  readonly channel: Channel
  readonly createApp: (config: Config) => Promise<ServingApp>
}

/** Obeys until the sidecar has stopped. */
export function runWorker({ channel, createApp }: WorkerOptions): Promise<void> {
  return new Promise((resolve) => {
    let app: ServingApp | undefined
    const say = (message: FromWorker): void => {
      // Whoever is gone need not hear it.
      channel.send?.(message, undefined, undefined, () => {})
    }
    const stop = async (lameDuck: boolean): Promise<void> => {
      const report = await app?.stop({ lameDuck })
      channel.send?.({ did: 'stop', report: report ?? { drained: 0, cut: 0 } }, undefined, undefined, resolve)
    }
    const obey = async (message: ToWorker): Promise<void> => {
      switch (message.do) {
        case 'make':
          app = await createApp(message.config)
          say({ did: 'make' })
          break
        case 'listen':
          if (app !== undefined) say({ did: 'listen', address: (await app.start()).data })
          break
        case 'reload':
          await app?.reload()
          say({ did: 'reload' })
          break
        case 'tell':
          if (app !== undefined)
            say({ did: 'tell', question: message.question, state: await stateOf(app, message.extent) })
          break
        case 'stop':
          await stop(message.lameDuck)
          break
      }
    }
    channel.on('message', (message) => {
      obey(message).catch((error: unknown) => {
        // What nobody waits for is not told.
        const { do: what } = message
        if (what !== 'tell') say({ did: 'fail', what, error: plainError(error) })
      })
    })
    // When its supervisor is gone `node:cluster` ends the process; that must not look like the end of a response which
    // has no other end than that of its connection. Once stopped there is nothing left to cut.
    channel.on('exit', () => app?.cut())
    say({ did: 'begin' })
  })
}

async function stateOf({ sources, metrics }: ServingApp, extent: Extent): Promise<WorkerState> {
  return {
    checks: await sources.ready(),
    jwks: await sources.jwks(),
    metrics: await metrics[extent](),
  }
}
