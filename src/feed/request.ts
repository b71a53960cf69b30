/**
 * Reads a request for the feed: which version the follower has, how long it waits, and which coding it takes.
 * In: a target and header lines. Out: a `FeedRequest`, or what is wrong with the query.
 */
import type { IncomingHttpHeaders } from 'node:http'
import { failed, ok, type Result } from '../base/result.ts'
import { acceptsGzip } from '../ops/admin.ts'
import type { Encoding } from './documents.ts'

export interface FeedRequest {
  /** The versions that the follower says it has. Empty: none. */
  readonly versions: readonly string[]
  readonly waitSeconds: number
  readonly encoding: Encoding
}

const MAX_WAIT_SECONDS = 60

export function readFeedRequest(target: string, headers: IncomingHttpHeaders): Result<FeedRequest> {
  const since = sinceIn(target)
  if (!since.ok) {
    return since
  }
  return ok({
    versions: since.value === undefined ? entityTags(headers['if-none-match']) : [since.value],
    waitSeconds: waitSeconds(headers['prefer']),
    encoding: acceptsGzip(headers) ? 'gzip' : 'identity',
  })
}

/**
 * `since` of the query. Other parameters are ignored.
 * Not by `URLSearchParams`, which reads a `+` as a space.
 */
function sinceIn(target: string): Result<string | undefined> {
  const queryStart = target.indexOf('?')
  const query = queryStart === -1 ? '' : target.slice(queryStart + 1)
  const values: string[] = []
  for (const parameter of query.split('&')) {
    const [name] = parameter.split('=', 1)
    if (name === 'since') {
      values.push(parameter.slice('since='.length))
    }
  }
  const [since = '', ...more] = values
  if (more.length > 0) {
    return failed('The parameter since must be there once.')
  }
  try {
    const version = decodeURIComponent(since)
    return ok(version === '' ? undefined : version)
  } catch {
    return failed('The parameter since is not valid percent-encoding.')
  }
}

/** RFC 9110, section 13.1.2. The comparison is weak: `W/` counts for nothing. */
function entityTags(field: string | undefined): string[] {
  return Array.from((field ?? '').matchAll(/"([^"]*)"/g), ([, tag = '']) => tag)
}

/** RFC 7240, sections 2 and 4.3. 0 if there is no valid `wait`. */
function waitSeconds(field: string | string[] | undefined): number {
  const preferences = String(field ?? '').split(',')
  for (const preference of preferences) {
    const [, seconds] = /^\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:;.*)?$/i.exec(preference) ?? []
    if (seconds !== undefined) {
      return Math.min(Number(seconds), MAX_WAIT_SECONDS)
    }
  }
  return 0
}
