/**
 * A sidecar of several processes, wired from its settings.
 *
 * @module
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { App } from '../app.ts'
import type { Config } from '../config/schema.ts'
import { createAdminListener } from '../ops/admin.ts'
import { StoppedWhileStarting } from '../ops/life-cycle.ts'
import { type Logger, listenerFaults } from '../ops/log.ts'
import { UnusableTrust } from '../reload/trust.ts'
import { createFork } from './fork.ts'
import type { PlainError } from './messages.ts'
import { createSupervisor } from './supervisor.ts'

/** What it is made of. */
export interface AppOfWorkersOptions {
  readonly config: Config
  readonly log: Logger
  /** How many processes serve. */
  readonly workers: number
  /** The path of the program's entry, which knows the `worker` command. */
  readonly program: string
}

/**
 * Makes a sidecar of several processes.
 *
 * @throws UnusableTrust with every problem of keys, credentials and certificates
 */
export function createAppOfWorkers({ config, log, workers, program }: AppOfWorkersOptions): Promise<App> {
  return createSupervisor({
    config,
    workers,
    log,
    fork: createFork(program),
    revive,
    createAdmin: (sources) =>
      createAdminListener(config, sources, {
        now: Date.now,
        onFault: listenerFaults(log),
        processes: workers,
      }),
    sleep,
    monotonicNow: () => performance.now(),
  })
}

/** The error that a worker met, as whoever starts a sidecar knows it. */
export function revive({ name, message, ...facts }: PlainError): Error {
  if (name === UnusableTrust.name) return new UnusableTrust(message)
  if (name === StoppedWhileStarting.name) return new StoppedWhileStarting(message)
  return Object.assign(new Error(message), facts)
}
