/**
 * Reads a `Range` header for one representation (RFC 9110, section 14).
 *
 * In: the header's value and the representation's size. Out: the one range to send, that it cannot be
 * satisfied, or nothing: then the whole representation is sent, which is always allowed. Several ranges and
 * other units are answered with the whole.
 *
 * @module
 */

/** Offsets of the first and the last byte, both inclusive and both inside the representation. */
export interface ByteRange {
  readonly first: number
  readonly last: number
}

/**
 * Says which bytes a `Range` header asks for.
 *
 * @param header - the value of `Range`, if there is one
 * @param size - length of the representation in bytes
 * @returns the range, `unsatisfiable` (416), or `undefined` when the header is to be ignored
 */
export function byteRange(header: string | undefined, size: number): ByteRange | 'unsatisfiable' | undefined {
  const match = /^bytes=[ \t]*([0-9]*)-([0-9]*)[ \t]*$/i.exec(header ?? '')
  if (match === null) return undefined
  const [, from = '', to = ''] = match
  if (from === '') {
    if (to === '') return undefined
    const length = Math.min(Number(to), size)
    return length === 0 ? 'unsatisfiable' : { first: size - length, last: size - 1 }
  }
  const first = Number(from)
  const last = to === '' ? size - 1 : Math.min(Number(to), size - 1)
  if (to !== '' && Number(to) < first) return undefined // not a range at all, so no 416 either
  return first >= size ? 'unsatisfiable' : { first, last }
}
