/** Asks the feed of a sidecar as a follower does, and applies what it says. */
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { request as requestTls } from 'node:https'
import { gunzipSync } from 'node:zlib'
import type { FeedDocument, FeedUpdate } from '../../src/credentials/feed/format.ts'
import { FollowedState } from '../../src/credentials/feed/state.ts'
import { parseFeed } from '../../src/credentials/feed/updates.ts'

export interface FeedAsk {
  readonly token?: string | undefined
  readonly since?: string | undefined
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  /** The target, in place of `/feed` with `since`. */
  readonly target?: string
  /** The CA of a hub with TLS. */
  readonly ca?: string
}

/** One request on a connection of its own. */
export async function askFeed(
  port: number,
  { token, since, method = 'GET', headers = {}, target, ca }: FeedAsk,
) {
  const query = since === undefined ? '' : `?since=${encodeURIComponent(since)}`
  const bearer = token === undefined ? {} : { authorization: `Bearer ${token}` }
  const path = target ?? `/feed${query}`
  const options = { port, host: '127.0.0.1', path, method, agent: false, headers: { ...bearer, ...headers } }
  const asked = ca === undefined ? request(options) : requestTls({ ...options, ca })
  asked.end()
  const [response]: IncomingMessage[] = await once(asked, 'response')
  if (response === undefined) {
    throw new Error('no response')
  }
  const bytes = Buffer.concat(await response.toArray())
  const text = String(response.headers['content-encoding'] === 'gzip' ? gunzipSync(bytes) : bytes)
  return {
    status: response.statusCode,
    headers: response.headers,
    bytes,
    text,
    document: () => documentIn(text),
  }
}

export type FeedAnswer = Awaited<ReturnType<typeof askFeed>>

export function documentIn(text: string): FeedDocument {
  const parsed: FeedDocument = JSON.parse(text)
  return parsed
}

/** A follower without the pauses of a real one: `ask` brings its state up to date. */
export function testFollower(port: number, token: string) {
  let state: FollowedState | undefined
  const applied: FeedUpdate[] = []
  return {
    applied,
    state: () => state,
    version: () => state?.version,
    /** Which credentials and revocations it has, in one order. */
    entries() {
      const { credentials = [], revocations = [] } = state?.entries() ?? {}
      const names = credentials.map(({ accountId, accessKey }) => `${accountId}/${accessKey}`)
      return { credentials: names.sort(), revocations: revocations.toSorted() }
    },
    async ask(from = port, headers: Readonly<Record<string, string>> = {}) {
      const answer = await askFeed(from, { token, since: state?.version, headers })
      if (answer.status === 200) {
        const update = await parseFeed({ bytes: Buffer.from(answer.text), isCompressed: false })
        if (!update.ok) {
          throw new Error(`the feed ${update.error}`)
        }
        applied.push(update.value)
        if (update.value.from === null) {
          state = await FollowedState.of(update.value)
        } else {
          state?.apply(update.value)
        }
      }
      return answer
    },
  }
}
