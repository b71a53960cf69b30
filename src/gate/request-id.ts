/**
 * The request id: the client's own where it can be kept, a new one otherwise.
 *
 * @module
 */
import { HeaderKind, headerKind } from './header-names.ts'

/**
 * Whether a client's request id is kept: 1 to 128 characters of `[A-Za-z0-9._-]`, safe in a header, in a log line
 * and in a shell.
 */
export function isRequestId(value: string): boolean {
  if (value.length === 0 || value.length > 128) return false
  for (let at = 0; at < value.length; at++) {
    const code = value.charCodeAt(at)
    const plain =
      (code >= 0x61 && code <= 0x7a) ||
      (code >= 0x30 && code <= 0x39) ||
      (code >= 0x41 && code <= 0x5a) ||
      code === 0x2d ||
      code === 0x2e ||
      code === 0x5f
    if (!plain) return false
  }
  return true
}

/** The request id of a header list that was not admitted; undefined unless there is exactly one that can be kept. */
export function requestIdOf(rawHeaders: readonly string[]): string | undefined {
  const ids: string[] = []
  for (let at = 0; at < rawHeaders.length; at += 2) {
    if (headerKind(rawHeaders[at] as string) === HeaderKind.requestId) ids.push(rawHeaders[at + 1] as string)
  }
  const [id] = ids
  return ids.length === 1 && id !== undefined && isRequestId(id) ? id : undefined
}
