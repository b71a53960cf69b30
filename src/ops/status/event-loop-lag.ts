/**
 * Measures how late timers come: what a blocked event loop costs every request.
 *
 * @module
 */
import { monitorEventLoopDelay } from 'node:perf_hooks'
import type { EventLoopLag } from './sampler.ts'

/** Milliseconds between two measurements: rare enough to cost nothing. */
const RESOLUTION_MS = 50

/** A measurement that goes on. */
export interface EventLoopMeter {
  /** The lag since the last `reset`. */
  read(reset: boolean): EventLoopLag
  stop(): void
}

/** Begins to measure. Does not keep the process alive. */
export function measureEventLoop(): EventLoopMeter {
  const histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS })
  histogram.enable()
  // Node records the time from one firing to the next, the time it was to wait included.
  const late = (nanoseconds: number) => Math.max(0, nanoseconds / 1e9 - RESOLUTION_MS / 1000)
  return {
    read(reset) {
      const lag = { p99Seconds: late(histogram.percentile(99)), worstSeconds: late(histogram.max) }
      if (reset) histogram.reset()
      return lag
    },
    stop: () => void histogram.disable(),
  }
}
