/**
 * The header rules towards the client.
 *
 * In: the upstream's response head. Out: the header list the client gets: the upstream's, in order and
 * multiplicity, without hop-by-hop headers, without our own identity headers (an upstream that echoes its request
 * would leak them), and with our request id.
 *
 * @module
 */
import { HeaderKind, headerKind } from '../gate/header-names.ts'
import type { ResponseHead } from './response-parser.ts'

/** What else decides on the header list. What becomes of the connection is not said in it. */
export interface ResponseHeadContext {
  readonly requestId: string
  /** Whether the client can be sent chunks, and so trailers: an HTTP/1.1 client, not HEAD. */
  readonly chunks: boolean
}

/** The field lines of a response for the client. */
export interface ClientLines {
  /** Each with its end. */
  readonly lines: string
  /** Whether there is a `Date` among them. */
  readonly hasDate: boolean
}

/** The client's field lines. */
export function clientResponseLines(head: ResponseHead, context: ResponseHeadContext): ClientLines {
  const { rawHeaders } = head
  const nominated = nominatedNames(rawHeaders)
  const chunked = context.chunks && (head.framing === 'chunked' || head.framing === 'close')
  let lines = ''
  let hasDate = false
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string
    switch (headerKind(name)) {
      case HeaderKind.connection:
      case HeaderKind.hopByHop:
      case HeaderKind.transferEncoding:
      case HeaderKind.upgrade:
      case HeaderKind.requestId:
      case HeaderKind.identity:
        continue
      case HeaderKind.contentLength:
        // Not allowed on 1xx and 204 (RFC 9110, section 8.6): some clients would wait for the body.
        if (head.status < 200 || head.status === 204) continue
        break
      case HeaderKind.trailer:
        // Without chunks no trailers follow.
        if (!chunked || nominated?.has('trailer')) continue
        break
      default:
        if (nominated?.has(name.toLowerCase())) continue
        hasDate ||= name.length === DATE_LENGTH && name.toLowerCase() === 'date'
    }
    lines += `${name}: ${rawHeaders[at + 1]}\r\n`
  }
  return { lines: `${lines}X-Request-Id: ${context.requestId}\r\n`, hasDate }
}

/**
 * The head of a 101 on its way to the client, ended by its empty line; undefined where it does not say that the
 * protocol is now WebSocket (RFC 6455, section 4.1).
 */
export function switchedResponseHead(head: ResponseHead, requestId: string): string | undefined {
  const { rawHeaders } = head
  const upgrades = valuesOf(rawHeaders, HeaderKind.upgrade)
  if (upgrades.length !== 1 || upgrades[0]?.toLowerCase() !== 'websocket') return undefined
  if (!nominatedNames(rawHeaders)?.has('upgrade')) return undefined
  const { lines } = clientResponseLines(head, { requestId, chunks: false })
  return `HTTP/1.1 101 ${head.reason}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n${lines}\r\n`
}

function valuesOf(rawHeaders: readonly string[], kind: HeaderKind): string[] {
  return rawHeaders.filter((_, at) => at % 2 === 1 && headerKind(rawHeaders[at - 1] as string) === kind)
}

/** The trailer lines that may be sent behind a body, as Node's `addTrailers` takes them. */
export function clientTrailers(rawTrailers: readonly string[]): [string, string][] {
  const trailers: [string, string][] = []
  for (let at = 0; at < rawTrailers.length; at += 2) {
    const name = rawTrailers[at] as string
    if (headerKind(name) === HeaderKind.other) trailers.push([name, rawTrailers[at + 1] as string])
  }
  return trailers
}

/** Most names are told apart by their length alone, which costs nothing. */
const CONNECTION_LENGTH = 'connection'.length
const DATE_LENGTH = 'date'.length

function nominatedNames(rawHeaders: readonly string[]): ReadonlySet<string> | undefined {
  let names: Set<string> | undefined
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string
    if (name.length !== CONNECTION_LENGTH || headerKind(name) !== HeaderKind.connection) continue
    names ??= new Set()
    for (const nominated of (rawHeaders[at + 1] as string).split(','))
      names.add(nominated.trim().toLowerCase())
  }
  return names
}
