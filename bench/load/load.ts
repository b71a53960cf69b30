/**
 * Puts load on a port, from the second core.
 *
 * As fast as answers come: by wrk where it is installed, by the suite's own client otherwise. At a constant rate: by
 * the own client, as wrk has no rate. Every answer must be as expected, or the load is an error and no figure.
 *
 * @module
 */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Lab } from '../lab/lab.ts'
import { hasProgram } from '../lab/machine.ts'
import { onCore } from '../lab/pin.ts'
import type { Requests } from '../lab/requests.ts'

/** What is asked of whom. */
export interface LoadOptions {
  readonly port: number
  readonly requests: Requests
  readonly connections: number
  readonly seconds: number
  /** Requests a second; without it, as many as are answered. */
  readonly rate?: number
  /** The turn to begin with; default 0. */
  readonly start?: number
  /** How long a connection waits after an answer from 400 on; own client without a rate only. Default 0. */
  readonly pauseMs?: number
}

/** What came of it. */
export interface LoadResult {
  /** Complete answers. */
  readonly requests: number
  readonly seconds: number
  /** Bytes received. */
  readonly bytes: number
  /** Microseconds from request to answer: the median, and what 99 of 100 stay below. */
  readonly p50: number
  readonly p99: number
}

/** What a generator reports. */
export interface LoadReport extends LoadResult {
  /** Answers with another status than 2xx or 3xx. */
  readonly refused: number
  /** Connections that failed, and answers that did not come. */
  readonly failed: number
  /** How many answers had which status; the own client only. */
  readonly statuses?: Readonly<Record<string, number>>
}

/** The generator used as fast as answers come. */
export const generator = hasProgram('wrk') ? 'wrk' : 'own client'

/** Loads a port for some seconds. */
export async function load(lab: Lab, options: LoadOptions): Promise<LoadResult> {
  const byWrk = options.rate === undefined && generator === 'wrk'
  const report = byWrk ? await runWrk(options) : await runClient(lab, options)
  const unexpected =
    options.requests.expect === 'forwarded' ? report.refused : report.requests - report.refused
  if (report.failed > 0 || unexpected > 0 || report.requests === 0) {
    throw new Error(`not as expected (${options.requests.expect}): ${JSON.stringify(report)}`)
  }
  return report
}

/** Loads a port with the suite's own client, whatever the answers are. */
export async function runClient(lab: Lab, options: LoadOptions): Promise<LoadReport> {
  return (await lab.ask(join(import.meta.dirname, 'client-process.ts'), options)) as LoadReport
}

async function runWrk({ port, requests, connections, seconds, start = 0 }: LoadOptions): Promise<LoadReport> {
  const script = join(import.meta.dirname, 'requests.lua')
  const load = ['-t1', `-c${connections}`, `-d${seconds}s`, '-s', script, `http://127.0.0.1:${port}/`]
  const args = [...load, '--', requests.file, requests.orderFile ?? '', String(start)]
  const { stdout } = await promisify(execFile)(...onCore(1, 'wrk', args))
  return JSON.parse(stdout.slice(stdout.indexOf('{')))
}
