/**
 * Fetches the feed from a hub (an issuing sidecar), bounded in time, size and depth. Follows no redirect.
 * In: the version that the follower has. Out: a checked update, or why there is none.
 * One connection is kept for the next request. The hub's certificate is checked only when it is opened, so
 * the connection is replaced after a change of the CAs, and at the latest after `MAX_CONNECTION_AGE_MS`.
 */
import { Agent as HttpAgent, type IncomingMessage } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import type { SecureContext } from 'node:tls'
import { failed, ok, type Result } from '../../base/result.ts'
import { readBearerToken } from '../../files/bearer-token.ts'
import { errorCode, readUpTo } from '../../files/files.ts'
import { get } from '../../http/get.ts'
import { isHttps } from '../../http/hosts.ts'
import type { FeedUpdate } from './format.ts'
import { MAX_FEED_BYTES, TOO_LARGE } from './parser.ts'
import { parseFeed } from './updates.ts'

export interface FeedSource {
  readonly url: string
  readonly tokenFile: string
  /** The CAs of the hub; default: those of Node. */
  readonly secureContext?: (() => SecureContext) | undefined
}

export interface FeedRequest {
  /** The version that the follower has. Undefined requests the whole state. */
  readonly since: string | undefined
  /** How long the hub may wait for a newer version. */
  readonly waitSeconds: number
}

export interface FeedResponse {
  /** Undefined: there is no newer version than `since`. */
  readonly update: FeedUpdate | undefined
  /** For how many seconds the hub itself has not reached its database. */
  readonly hubAgeSeconds: number
}

export interface FeedFailure {
  /** The rest of a sentence that begins with "the feed". */
  readonly problem: string
  /** The response is complete, but no valid feed: the same request would fail again. */
  readonly isUnusable: boolean
}

export type FeedResult = Result<FeedResponse, FeedFailure>

const unreachable = (problem: string) => failed<FeedFailure>({ problem, isUnusable: false })
const unusable = (problem: string) => failed<FeedFailure>({ problem, isUnusable: true })

/** For the connection, TLS and the head, beyond `waitSeconds`. */
const HEAD_MS = 5000
const BODY_MS = 60_000
const MAX_CONNECTION_AGE_MS = 300_000
/** How long a connection is silent before the first TCP probe. A vanished hub is noticed about 10 s later. */
const TCP_KEEP_ALIVE_MS = 5000

type Agent = HttpAgent | HttpsAgent

export class FeedClient {
  readonly #source: FeedSource
  readonly #random: () => number
  #agent: Agent | undefined
  #secureContext: SecureContext | undefined
  #replaceAtMonotonicMs = 0

  constructor(source: FeedSource, random: () => number) {
    this.#source = source
    this.#random = random
  }

  /** Whether the next request may use the connection of the previous one. */
  get canReuseConnection(): boolean {
    const isYoung = performance.now() < this.#replaceAtMonotonicMs
    const hasCurrentCas = this.#source.secureContext?.() === this.#secureContext
    return this.#agent !== undefined && isYoung && hasCurrentCas
  }

  /** Never rejects. The signal ends the request. */
  async fetch(request: FeedRequest, signal: AbortSignal): Promise<FeedResult> {
    const deadline = new AbortController()
    const abort = () => deadline.abort()
    let timeoutProblem = 'was not answered in time'
    let timer = setTimeout(abort, request.waitSeconds * 1000 + HEAD_MS)
    try {
      const token = await readBearerToken(this.#source.tokenFile)
      if (!token.ok) {
        return unreachable(`cannot be asked for: ${token.problems.join(', ')}`)
      }
      const response = await this.#send(request, token.value, AbortSignal.any([signal, deadline.signal]))
      clearTimeout(timer)
      timer = setTimeout(abort, BODY_MS)
      timeoutProblem = `did not arrive within ${BODY_MS / 1000} s`
      return await this.#read(response, request, signal)
    } catch (error) {
      if (deadline.signal.aborted) {
        return unreachable(timeoutProblem)
      }
      return unreachable(`cannot be fetched: ${errorCode(error)}`)
    } finally {
      clearTimeout(timer)
    }
  }

  /** The next request opens a new connection. */
  disconnect(): void {
    this.#agent?.destroy()
    this.#agent = undefined
  }

  #send({ since, waitSeconds }: FeedRequest, token: string, signal: AbortSignal): Promise<IncomingMessage> {
    const headers: Record<string, string> = {
      Accept: 'application/json',
      'Accept-Encoding': 'gzip',
      Authorization: `Bearer ${token}`,
    }
    if (waitSeconds > 0) {
      headers['Prefer'] = `wait=${waitSeconds}`
    }
    const target = new URL(this.#source.url)
    if (since !== undefined) {
      const query = target.search === '' ? '' : `${target.search}&`
      target.search = `${query}since=${encodeURIComponent(since)}`
    }
    const agent = this.#currentAgent()
    return get(target, { agent, secureContext: this.#secureContext, headers, signal })
  }

  /** Returns the agent, or a new one if its connection must not be used any more. */
  #currentAgent(): Agent {
    if (this.#agent !== undefined && this.canReuseConnection) {
      return this.#agent
    }
    this.disconnect()
    this.#secureContext = this.#source.secureContext?.()
    // At random, so that the followers of a hub do not return together.
    this.#replaceAtMonotonicMs = performance.now() + MAX_CONNECTION_AGE_MS * (0.5 + this.#random() / 2)
    const options = { keepAlive: true, maxSockets: 1 }
    // A resumed session would not check the certificate again.
    this.#agent = isHttps(this.#source.url)
      ? new HttpsAgent({ ...options, maxCachedSessions: 0 })
      : new HttpAgent(options)
    return this.#agent
  }

  async #read(response: IncomingMessage, { since }: FeedRequest, signal: AbortSignal): Promise<FeedResult> {
    const problem = headProblem(response, since !== undefined)
    if (problem !== undefined) {
      response.destroy()
      return unreachable(problem)
    }
    response.socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS)
    const hubAgeSeconds = ageIn(response)
    if (response.statusCode === 304) {
      response.resume()
      return ok({ update: undefined, hubAgeSeconds })
    }
    const bytes = await readUpTo(response, MAX_FEED_BYTES)
    if (bytes.length > MAX_FEED_BYTES) {
      response.destroy()
      return unusable(TOO_LARGE)
    }
    const isCompressed = response.headers['content-encoding'] === 'gzip'
    const update = await parseFeed({ bytes, isCompressed }, signal)
    return update.ok ? ok({ update: update.value, hubAgeSeconds }) : unusable(update.error)
  }
}

/** RFC 9111, section 5.1: a value that is no number is ignored. */
function ageIn({ headers }: IncomingMessage): number {
  const age = headers.age ?? ''
  return /^\d{1,9}$/.test(age) ? Number(age) : 0
}

/** Returns why the response cannot be used, whatever its body is. */
function headProblem({ statusCode, headers }: IncomingMessage, mayBeUnchanged: boolean): string | undefined {
  if (statusCode === 304 && mayBeUnchanged) {
    return undefined
  }
  if (statusCode === 401) {
    return 'was answered with status 401: the hub refuses the token in credentials.feed.tokenFile'
  }
  if (statusCode !== 200) {
    return `was answered with status ${statusCode}`
  }
  if (!/^application\/json *(?:;|$)/i.test(headers['content-type'] ?? '')) {
    return 'is not application/json'
  }
  const coding = headers['content-encoding'] ?? 'identity'
  return coding === 'identity' || coding === 'gzip' ? undefined : 'has an unknown Content-Encoding'
}
