/**
 * The load: 50 connections that ask for the same object as fast as they are answered, from the second core.
 *
 * @module
 */
import { spawn } from 'node:child_process'
import { onCore } from './pin.ts'

/** Whoever is asked. */
export interface Target {
  readonly url: string
  /** Sent as `Authorization: Bearer`. */
  readonly token: string
}

/** Loads a target for some seconds; resolves with how many requests it answered with 200. */
export async function loadOf({ url, token }: Target, seconds: number): Promise<number> {
  const args = ['-t1', '-c50', `-d${seconds}s`, '-H', `Authorization: Bearer ${token}`, url]
  const child = spawn(...onCore(1, 'wrk', args), { stdio: ['ignore', 'pipe', 'inherit'] })
  let output = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text
  })
  await new Promise((resolve, reject) => child.once('close', resolve).once('error', reject))
  const failed = /Non-2xx or 3xx responses: (\d+)|Socket errors: (.*)/.exec(output)
  if (failed !== null) throw new Error(`${url}: ${failed[0]}`)
  const requests = Number(/(\d+) requests in/.exec(output)?.[1])
  if (!(requests > 0)) throw new Error(`no result from wrk: ${output}`)
  return requests
}
