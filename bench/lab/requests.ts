/**
 * The requests of a load, as the bytes that are sent, in files that every load generator reads.
 *
 * @module
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Lab } from './lab.ts'

/** What stands between two requests in the file: no request holds it. */
export const SEPARATOR = '\0'

/** What is asked, over and over. */
export interface Requests {
  readonly file: string
  /** Names the request for each turn, one number a line; without it they take turns. */
  readonly orderFile?: string
  /** How the answers must be: the load fails on any other. */
  readonly expect: 'forwarded' | 'refused'
}

/** One request. */
export interface RequestOptions {
  readonly token?: string | undefined
  readonly method?: string
  readonly path?: string
  /** JSON. */
  readonly body?: string
  /** Asks for the connection to be closed after the answer. */
  readonly close?: boolean
}

/** The bytes of a request. */
export function requestText(options: RequestOptions): string {
  const { token, method = 'GET', path = '/bucket/object', body, close = false } = options
  const lines = [`${method} ${path} HTTP/1.1`, 'Host: storage.example', 'User-Agent: bench', 'Accept: */*']
  if (token !== undefined) lines.push(`Authorization: Bearer ${token}`)
  if (body !== undefined) {
    lines.push('Content-Type: application/json', `Content-Length: ${Buffer.byteLength(body)}`)
  }
  if (close) lines.push('Connection: close')
  return `${lines.join('\r\n')}\r\n\r\n${body ?? ''}`
}

/** Writes requests where a load finds them. */
export function writeRequests(
  { directory }: Pick<Lab, 'directory'>,
  name: string,
  requests: readonly string[],
  { order, expect = 'forwarded' }: { order?: Iterable<number>; expect?: Requests['expect'] } = {},
): Requests {
  const file = join(directory, `${name}.requests`)
  writeFileSync(file, requests.join(SEPARATOR))
  if (order === undefined) return { file, expect }
  const orderFile = join(directory, `${name}.order`)
  writeFileSync(orderFile, [...order].join('\n'))
  return { file, orderFile, expect }
}
