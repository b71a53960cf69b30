/**
 * The life of a sidecar: starting, running, stopping, and never back.
 *
 * In: what listens and what is waited for. Out: a start and a stop, each of which happens once however often it is
 * asked for. Nobody is let in before everything that decides who gets in is there; once stopped, nothing is left
 * that would keep the process alive.
 *
 * @module
 */
import type { AddressInfo } from 'node:net'
import type { Deadlines } from '../http/deadlines.ts'
import { type Drainable, type DrainReport, drain, sleep } from './drain.ts'

/** It was told to stop while it waited for another issuer or a database. */
export class StoppedWhileStarting extends Error {
  override readonly name = 'StoppedWhileStarting'
}

/** The parts that are started and stopped. */
export interface LifeCycleOptions {
  readonly listener: Drainable & { listen(): Promise<AddressInfo> }
  readonly admin: { listen(): Promise<AddressInfo>; close(): Promise<void> }
  /** `whenComplete` resolves with false if it was stopped before it had everything. */
  readonly trust: { whenComplete(): Promise<boolean>; stop(): Promise<void> }
  readonly forwarder: { close(): void }
  readonly deadlines: Pick<Deadlines, 'monotonicNow' | 'stop'>
  readonly shutdown: { readonly lameDuckSeconds: number; readonly deadlineSeconds: number }
  /** Told once, when both listen. */
  readonly onListening: (where: Addresses) => void
  /** Told once, when nothing is left. */
  readonly onStopped: (report: DrainReport) => void
}

/** Where a sidecar listens. */
export interface Addresses {
  readonly data: AddressInfo
  readonly admin: AddressInfo
}

/** The life of one sidecar. */
export interface LifeCycle {
  /** Whether requests are let in, and will be for a while. */
  isRunning(): boolean
  /** Whether each connection ends with its next answer. */
  isStopping(): boolean
  /** Whether the time to drain is over: what is still in flight is being cut. */
  isCutting(): boolean
  /** Rejects when a port cannot be had, and listens on neither. */
  start(): Promise<Addresses>
  /** `lameDuck`: goes on accepting for a while first, if it ever accepted. */
  stop(how?: { readonly lameDuck: boolean }): Promise<DrainReport>
}

/** Makes a life that has not begun. */
export function createLifeCycle(options: LifeCycleOptions): LifeCycle {
  const { listener, admin, trust, deadlines } = options
  let phase: 'starting' | 'running' | 'stopping' = 'starting'
  let cutting = false
  let started: Promise<Addresses> | undefined
  let stopped: Promise<DrainReport> | undefined

  const draining: Drainable = {
    get inFlight() {
      return listener.inFlight
    },
    close: listener.close,
    closeUnused: listener.closeUnused,
    closeTunnels: listener.closeTunnels,
    cut() {
      cutting = true
      return listener.cut()
    },
  }

  /** The data listener last: nobody is let in who would be thrown out again if the other port cannot be had. */
  const start = async (): Promise<Addresses> => {
    try {
      const adminAddress = await admin.listen()
      if (!(await trust.whenComplete())) throw new StoppedWhileStarting('stopped before anything was let in')
      const data = await listener.listen()
      if (phase === 'starting') phase = 'running'
      const where = { data, admin: adminAddress }
      options.onListening(where)
      return where
    } catch (error) {
      await admin.close()
      await trust.stop()
      throw error
    }
  }

  const stop = async (lameDuck: boolean): Promise<DrainReport> => {
    const wasStarting = phase === 'starting'
    phase = 'stopping'
    if (wasStarting) {
      // What a start under way opens is closed below. A start that waits waits no longer.
      await trust.stop()
      await started?.catch(() => {})
    }
    const report = await drain(draining, {
      lameDuckMs: lameDuck ? options.shutdown.lameDuckSeconds * 1000 : 0,
      deadlineMs: options.shutdown.deadlineSeconds * 1000,
      sleep,
      monotonicNow: deadlines.monotonicNow,
    })
    options.forwarder.close()
    await trust.stop()
    await admin.close()
    deadlines.stop()
    options.onStopped(report)
    return report
  }

  return {
    isRunning: () => phase === 'running',
    isStopping: () => phase === 'stopping',
    isCutting: () => cutting,
    start() {
      started ??= start()
      return started
    },
    stop({ lameDuck } = { lameDuck: false }) {
      stopped ??= stop(lameDuck && phase === 'running')
      return stopped
    },
  }
}
