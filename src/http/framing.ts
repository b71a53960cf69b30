/**
 * What the header lines of a message say about its body (RFC 9112,
 * section 6), for requests and for responses.
 */
import { failed, ok, type Result } from '../base/result.ts'
import type { HeaderLines } from './headers.ts'

export interface Framing {
  /** Decimal digits. */
  readonly contentLength: string | undefined
  readonly isChunked: boolean
}

/** The header whose lines are ambiguous. */
export type FramingFault = 'Content-Length' | 'Transfer-Encoding'

/** At most 15 digits: a `number` holds them exactly. */
const CONTENT_LENGTH = /^[0-9]{1,15}$/
const CANONICAL_CONTENT_LENGTH = /^(?:0|[1-9][0-9]{0,14})$/

/**
 * Lists of codings are ambiguous, because parsers disagree on them. HTTP/1.0 has no chunks.
 * A client must send one length in its shortest form.
 * An upstream may repeat its length (RFC 9110, section 8.6).
 */
export function readFraming(
  lines: HeaderLines,
  { isHttp10, sender }: { readonly isHttp10: boolean; readonly sender: 'client' | 'upstream' },
): Result<Framing, FramingFault> {
  const coding = lines.joined('transferEncoding')
  const isChunked = coding !== undefined
  if (isChunked && (isHttp10 || coding.toLowerCase() !== 'chunked')) {
    return failed('Transfer-Encoding')
  }
  const joined = lines.joined('contentLength')
  if (joined === undefined) {
    return ok({ contentLength: undefined, isChunked })
  }
  const contentLength = sender === 'upstream' ? withoutRepeats(joined) : joined
  const form = sender === 'upstream' ? CONTENT_LENGTH : CANONICAL_CONTENT_LENGTH
  if (!form.test(contentLength)) {
    return failed('Content-Length')
  }
  return ok({ contentLength, isChunked })
}

/** Returns the member of the list if all members are the same, else the list. */
function withoutRepeats(list: string): string {
  const [first = '', ...rest] = list.split(',').map((member) => member.trim())
  return rest.every((member) => member === first) ? first : list
}
