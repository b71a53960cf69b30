/**
 * Reads what a client received, by the letter.
 *
 * In: the bytes, and the methods of the requests in order. Out: the answers in them. The sidecar's responses are its
 * own work: here nothing is forgiven.
 *
 * @module
 */
import { type Field, isFieldText, listed, readChunks, readFields, single } from './http-grammar.ts'

/** An answer as the client received it. */
export interface ClientAnswer {
  readonly status: number
  readonly fields: readonly Field[]
  readonly body: string
  readonly trailers: readonly Field[]
  /** Whether all of it came. */
  readonly whole: boolean
  /** Whether it says that the connection ends with it. */
  readonly closes: boolean
  /** Statuses of the informational responses before it. */
  readonly informational: readonly number[]
  readonly end: number
}

/** How the sidecar ended the connection, if it did. */
export type Ended = 'end' | 'reset' | undefined

/** The answers in what was received; a text where something is no answer. */
export function readAnswers(
  bytes: string,
  methods: readonly string[],
  ended: Ended,
): readonly ClientAnswer[] | string {
  const answers: ClientAnswer[] = []
  let informational: number[] = []
  for (let at = 0; at < bytes.length; ) {
    const lineEnd = bytes.indexOf('\r\n', at)
    if (lineEnd < 0) return answers
    const line = /^HTTP\/1\.1 ([1-5][0-9]{2}) (.*)$/s.exec(bytes.slice(at, lineEnd))
    if (line === null || !isFieldText(line[2] ?? '')) return 'no status line'
    const read = readFields(bytes, lineEnd + 2)
    if (read === 'bad') return 'a field line that is none'
    if (read === undefined) return answers
    const status = Number(line[1])
    if (status < 200) {
      informational.push(status)
      at = read.end
      continue
    }
    const answer = readAnswer(bytes, status, read.fields, read.end, methods[answers.length] ?? '', ended)
    if (typeof answer === 'string') return answer
    answers.push({ ...answer, informational })
    informational = []
    if (!answer.whole) return answers
    at = answer.end
  }
  return answers
}

function readAnswer(
  bytes: string,
  status: number,
  fields: readonly Field[],
  at: number,
  method: string,
  ended: Ended,
): Omit<ClientAnswer, 'informational'> | string {
  const length = single(fields, 'content-length')
  const coding = single(fields, 'transfer-encoding')
  if (length === 'twice' || coding === 'twice') return 'framing told twice'
  if (length !== undefined && coding !== undefined) return 'a length beside chunks'
  const closes = listed(fields, 'connection').includes('close')
  const common = { status, fields, trailers: [], closes }
  if (method === 'HEAD' || status === 204 || status === 304) {
    const bodyless = { ...common, body: '', whole: true, end: at }
    if (method !== 'HEAD' || !closes || length === undefined) return bodyless
    // What was refused before its method was known is answered with a body.
    const body = bytes.slice(at, at + Number(length.value))
    return body === '' || body.startsWith('HTTP/1.1 ')
      ? bodyless
      : { ...bodyless, body, end: at + body.length }
  }
  if (coding !== undefined) {
    if (coding.value !== 'chunked') return 'a coding that is not chunked'
    const chunks = readChunks(bytes, at)
    if (chunks === 'bad') return 'chunks that are none'
    if (chunks === undefined) return { ...common, body: '', whole: false, end: bytes.length }
    return { ...common, body: chunks.body, trailers: chunks.trailers, whole: true, end: chunks.end }
  }
  if (length !== undefined) {
    if (!/^[0-9]+$/.test(length.value)) return 'a length that is none'
    const end = at + Number(length.value)
    return {
      ...common,
      body: bytes.slice(at, end),
      whole: bytes.length >= end,
      end: Math.min(end, bytes.length),
    }
  }
  // Ended by the close, and cut by a reset.
  return { ...common, closes: true, body: bytes.slice(at), whole: ended === 'end', end: bytes.length }
}
