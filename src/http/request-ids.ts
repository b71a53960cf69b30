/**
 * `X-Request-Id`: the client's if it is safe in a header, in a log line and in a shell; otherwise a new UUID.
 */
import { randomUUID } from 'node:crypto'
import { HeaderKind, headerKind } from './header-names.ts'

export function isRequestId(value: string | undefined): value is string {
  return value !== undefined && /^[A-Za-z0-9._-]{1,128}$/.test(value)
}

/** The id that a head names, if it has exactly one that is valid; otherwise a new one. */
export function requestIdOf(rawHeaders: readonly string[]): string {
  const ids = rawHeaders.filter(
    (_, at) => at % 2 === 1 && headerKind(rawHeaders[at - 1] as string) === HeaderKind.requestId,
  )
  return ids.length === 1 && isRequestId(ids[0]) ? ids[0] : randomUUID()
}

export const newRequestId: () => string = randomUUID
