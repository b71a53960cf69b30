/**
 * What an upstream's bytes are as a response, by the letter: the oracle of the fuzz run for responses.
 *
 * In: the bytes an upstream sends, how it ends them, and the request's method. Out: the response in them, or that
 * they are none. Written from RFC 9112 and shares no code with the sidecar.
 *
 * @module
 */
import { isLookAlike } from './expected-requests.ts'
import { type Field, isFieldText, listed, readChunks, readFields, single } from './http-grammar.ts'

/** How an upstream ends what it sends: it waits for the next request, closes, or resets the connection. */
export type Ending = 'keep' | 'close' | 'reset'

/** A response, or what the client must be told instead. */
export type ExpectedResponse =
  | {
      /** `whole`: the client must get it. `either`: it may get a fault instead. */
      readonly kind: 'whole' | 'either'
      readonly status: number
      readonly fields: readonly Field[]
      readonly body: string
      readonly trailers: readonly Field[]
      /** How its end is told. */
      readonly framing: 'none' | 'length' | 'chunked' | 'close'
    }
  /** No whole response: a fault before the head has gone to the client, a cut connection after. */
  | { readonly kind: 'fault' }

const FAULT = { kind: 'fault' } as const

/** Reads the response to a request. */
export function expectedResponse(bytes: string, ending: Ending, method: string): ExpectedResponse {
  let at = 0
  let either = false
  for (let informational = 0; ; informational++) {
    const lineEnd = bytes.indexOf('\r\n', at)
    const line = /^HTTP\/1\.([01]) ([1-9][0-9]{2})( .*)?$/s.exec(bytes.slice(at, Math.max(lineEnd, at)))
    if (lineEnd < 0 || line === null || !isFieldText(line[3] ?? '')) return FAULT
    const status = Number(line[2])
    const read = readFields(bytes, lineEnd + 2)
    if (typeof read !== 'object') return FAULT
    const { fields, end } = read
    if (end - at > 16_384 || fields.length > 200) return FAULT
    if (end - at > 16_000 || line[3] === undefined || status > 599) either = true
    if (status === 101 || informational > 20) return FAULT
    if (status < 200) {
      if (fields.some(({ name }) => /content-length|transfer-encoding/i.test(name))) either = true
      if (informational > 10) either = true
      at = end
      continue
    }
    const length = single(fields, 'content-length')
    const coding = single(fields, 'transfer-encoding')
    const http10 = line[1] === '0'
    if (length === 'twice' || coding === 'twice') return FAULT
    if (length !== undefined && !/^[0-9]{1,15}$/.test(length.value)) return FAULT
    if (coding !== undefined && (coding.value.toLowerCase() !== 'chunked' || http10)) return FAULT
    const bodyless = method === 'HEAD' || status === 204 || status === 304
    if (coding !== undefined && length !== undefined) {
      if (!bodyless) return FAULT
      either = true
    }
    // A name that reads as a framing one leaves readers in doubt, and so does nominating the framing itself.
    if (fields.some(({ name }) => isLookAlike(name))) either = true
    if (listed(fields, 'connection').some((option) => /length|encoding/.test(option))) either = true
    const head = { status, fields, trailers: [], kind: either ? 'either' : 'whole' } as const
    if (bodyless) return { ...head, body: '', framing: 'none' }
    if (coding !== undefined) {
      const chunks = readChunks(bytes, end)
      if (typeof chunks !== 'object') return FAULT
      const kind = chunks.plain ? head.kind : 'either'
      return { ...head, kind, body: chunks.body, trailers: chunks.trailers, framing: 'chunked' }
    }
    if (length !== undefined) {
      const bodyEnd = end + Number(length.value)
      if (bytes.length < bodyEnd) return FAULT
      return { ...head, body: bytes.slice(end, bodyEnd), framing: 'length' }
    }
    // Only a clean close ends such a body; a reset cuts it.
    return ending === 'close' ? { ...head, body: bytes.slice(end), framing: 'close' } : FAULT
  }
}
