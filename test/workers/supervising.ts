/**
 * A supervisor of two workers that the test plays, with a clock and a log that it reads.
 *
 * @module
 */
import { createLog } from '../../src/ops/log.ts'
import type { AdminSources } from '../../src/ops/sidecar-admin.ts'
import { revive } from '../../src/workers/app-of-workers.ts'
import { createSupervisor } from '../../src/workers/supervisor.ts'
import type { ForkedWorker } from '../../src/workers/worker-process.ts'
import { accepted } from '../config/support.ts'
import { address, ObedientFork } from './fake-fork.ts'

export const { config } = accepted({ yaml: 'shutdown: { lameDuckSeconds: 5, deadlineSeconds: 25 }' })

/** A supervisor of two workers that the test plays. */
export function supervising(
  prepare: (fork: ObedientFork, at: number) => void = () => {},
  sleep: () => Promise<unknown> = async () => {},
) {
  const forks: ObedientFork[] = []
  const log: Record<string, unknown>[] = []
  const slept: number[] = []
  const clock = { now: 0 }
  let sources: AdminSources | undefined
  const admin = { listening: false }
  const create = () =>
    createSupervisor({
      config,
      workers: 2,
      log: createLog('info', { write: (line: string) => void log.push(JSON.parse(line)) }),
      fork: () => {
        const fork = new ObedientFork()
        prepare(fork, forks.length)
        forks.push(fork)
        return fork as unknown as ForkedWorker
      },
      revive,
      createAdmin: (given) => {
        sources = given
        return {
          listen: async () => {
            admin.listening = true
            return { ...address, port: 8081 }
          },
          close: async () => {
            admin.listening = false
          },
        }
      },
      sleep: (ms) => {
        slept.push(ms)
        return sleep()
      },
      monotonicNow: () => clock.now,
    })
  return {
    create,
    forks,
    log,
    slept,
    clock,
    admin,
    told: () => sources as AdminSources,
    said: (at: number) => forks[at]?.said.map(({ do: what }) => what),
    lines: () => log.map(({ msg }) => msg),
  }
}
