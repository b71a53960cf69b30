/**
 * Puts load on a port from core 1: by wrk where it is installed, by `load-client.ts` otherwise
 * and at a constant rate, which wrk does not have. A load with an unexpected answer is an error.
 */
import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { type Lab, PREFERRED, pinned } from './lab.ts'
import { hasProgram } from './peers.ts'
import { ISSUER, type Trust } from './trust.ts'

/** Separates the requests in a file. */
export const SEPARATOR = '\0'

export interface Requests {
  readonly file: string
  readonly expect: 'success' | 'refusal'
}

export interface LoadOptions {
  readonly port: number
  readonly requests: Requests
  readonly connections: number
  readonly seconds: number
  /** Requests a second; without it, as many as are answered. */
  readonly rate?: number
  /**
   * Seconds before those that count; default 0. Needs a rate.
   * Meanwhile, the load client compiles its code.
   */
  readonly settleSeconds?: number
  /** Its latencies are the figure, so it has priority over the other load of its core. Needs a rate. */
  readonly isPreferred?: boolean
  /**
   * Divides the time into so many parts; default 1. `p99` is then the median of those of the parts, so that
   * one pause of the machine does not decide it. Needs a rate.
   */
  readonly parts?: number
  /** The request to begin with; default 0. */
  readonly first?: number
}

export interface LoadReport {
  readonly requests: number
  readonly seconds: number
  /** Latency in milliseconds. */
  readonly p99: number
  /** Requests that were answered within a second. */
  readonly inTime: number
  /** Answers with a status from 400 on. */
  readonly refused: number
  /** Requests without an answer. */
  readonly failed: number
}

export const generator = hasProgram('wrk') ? 'wrk' : 'own client'

const REQUEST = ['GET /bucket/object HTTP/1.1', 'Host: storage.example', 'User-Agent: bench', 'Accept: */*']

/** The bytes of a request; `more` are header lines. */
export function requestText(token: string | undefined, ...more: readonly string[]): string {
  const authorization = token === undefined ? [] : [`Authorization: Bearer ${token}`]
  return [...REQUEST, ...authorization, ...more, '\r\n'].join('\r\n')
}

/** The bytes of the same request with HTTP Basic. */
export function basicText(accessKey: string, secret: string): string {
  const value = Buffer.from(`${accessKey}:${secret}`).toString('base64')
  return requestText(undefined, `Authorization: Basic ${value}`)
}

/** The bytes of the same request with a link. */
export function linkText({ mint }: Trust): string {
  const [start = '', ...lines] = REQUEST
  const [method = '', target = ''] = start.split(' ')
  const parent = { parent_jti: 'parent', parent_iat: 1, parent_iss: ISSUER }
  const link = mint({ ...parent, method, target }, { typ: 'link+jwt' })
  return [start.replace(target, `${target}?link_token=${link}`), ...lines, '\r\n'].join('\r\n')
}

/** The bytes of an upload. */
export function uploadText(token: string, bytes: number): string {
  const request = requestText(token, `Content-Length: ${bytes}`).replace('GET', 'PUT')
  return request + 'x'.repeat(bytes)
}

/** The bytes of a login. */
export function loginText(login: Trust['login']): string {
  const body = JSON.stringify(login)
  const headers = `Host: s\r\nContent-Type: application/json\r\nContent-Length: ${body.length}`
  return `POST /v2/auth/token HTTP/1.1\r\n${headers}\r\n\r\n${body}`
}

/** The bytes of a login by OAuth 2.0, as most clients send it. */
export function oauthLoginText({ accountId, accessKey, secret }: Trust['login']): string {
  const body = 'grant_type=client_credentials'
  const client = Buffer.from(`${accountId}~${accessKey}:${secret}`).toString('base64')
  const headers = [
    'Host: s',
    `Authorization: Basic ${client}`,
    'Content-Type: application/x-www-form-urlencoded',
    `Content-Length: ${body.length}`,
  ]
  return ['POST /v2/oauth/token HTTP/1.1', ...headers, '', body].join('\r\n')
}

let files = 0

/** Writes requests to a file from which every generator reads. */
export function writeRequests(
  { directory }: Lab,
  texts: readonly string[],
  expect: Requests['expect'] = 'success',
): Requests {
  const file = join(directory, `${files++}.requests`)
  writeFileSync(file, texts.join(SEPARATOR))
  return { file, expect }
}

/** Loads a port for some seconds. */
export async function load(lab: Lab, options: LoadOptions): Promise<LoadReport> {
  const report = await loadWithAnyAnswers(lab, options)
  const unexpected = options.requests.expect === 'success' ? report.refused : report.requests - report.refused
  if (report.failed > 0 || unexpected > 0 || report.requests === 0) {
    throw new Error(`not as expected (${options.requests.expect}): ${JSON.stringify(report)}`)
  }
  return report
}

/** Loads a port, for overload: some requests may be refused, or get no answer. */
export async function loadWithAnyAnswers(lab: Lab, options: LoadOptions): Promise<LoadReport> {
  const byWrk = options.rate === undefined && generator === 'wrk'
  if (byWrk) {
    return await runWrk(options)
  }
  const prefix = options.isPreferred ? PREFERRED : []
  return (await lab.ask('load-client.ts', options, prefix)) as LoadReport
}

async function runWrk({ port, requests, connections, seconds, first = 0 }: LoadOptions): Promise<LoadReport> {
  const script = join(import.meta.dirname, 'requests.lua')
  const args = ['-t1', `-c${connections}`, `-d${seconds}s`, '-s', script, `http://127.0.0.1:${port}/`]
  const [taskset, ...core] = pinned(1)
  const all = [...core, 'wrk', ...args, '--', requests.file, String(first)]
  const { stdout } = await promisify(execFile)(taskset, all)
  return JSON.parse(stdout.slice(stdout.indexOf('{')))
}
