/** A collector of OpenTelemetry for tests: takes OTLP over HTTP, and keeps the spans that it was sent. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Test } from 'tap'
import { Waiters } from './eventually.ts'
import { listen } from './listen.ts'
import { bytesIn, type Message, messagesIn, numberIn, readMessage, textIn } from './protobuf.ts'

export interface CollectedSpan {
  readonly traceId: string
  readonly spanId: string
  /** Empty: none. */
  readonly parentId: string
  readonly traceState: string
  readonly name: string
  readonly kind: 'server' | 'client' | number
  readonly startNs: bigint
  readonly endNs: bigint
  readonly attributes: Readonly<Record<string, unknown>>
  readonly events: readonly { readonly name: string; readonly atNs: bigint }[]
  readonly links: readonly {
    readonly traceId: string
    readonly spanId: string
    readonly isSampled: boolean
  }[]
  readonly hasFailed: boolean
  readonly statusMessage: string
  /** The attributes of the resource. */
  readonly resource: Readonly<Record<string, unknown>>
  readonly scope: string
}

type Respond = (res: ServerResponse, req: IncomingMessage) => void

const TAKE: Respond = (res) => res.writeHead(200, { 'Content-Type': 'application/x-protobuf' }).end()

export type Collector = Awaited<ReturnType<typeof startCollector>>

export async function startCollector(t: Pick<Test, 'teardown'>, listenOn = 0) {
  const spans: CollectedSpan[] = []
  const requests: IncomingMessage[] = []
  const waiters = new Waiters()
  let respond = TAKE
  const server = createServer(async (req, res) => {
    const chunks: Buffer[] = []
    for await (const chunk of req) {
      chunks.push(chunk)
    }
    requests.push(req)
    if (respond === TAKE) {
      spans.push(...spansIn(Buffer.concat(chunks)))
    }
    respond(res, req)
    waiters.wake()
  })
  const port = await listen(t, server, listenOn)
  const traces = (traceId?: string) =>
    spans.filter((span) => traceId === undefined || span.traceId === traceId)
  const received = (count: number, traceId?: string): Promise<readonly CollectedSpan[]> =>
    waiters.wait(
      () => (traces(traceId).length >= count ? traces(traceId) : undefined),
      () => `${count} spans at the collector, which has ${traces(traceId).length}`,
    )
  return {
    url: `http://127.0.0.1:${port}/v1/traces`,
    server,
    /** Those that were taken. */
    spans,
    /** Those that were read, taken or not. */
    requests,
    /** Waits until so many spans, of one trace or of all, have been taken. */
    received,
    /** The spans of one request that was forwarded. */
    async pair(traceId?: string) {
      const found = await received(2, traceId)
      const server = found.find(({ kind }) => kind === 'server')
      const client = found.find(({ kind }) => kind === 'client')
      if (server === undefined || client === undefined) {
        throw new Error('the spans are of other kinds')
      }
      return { server, client }
    },
    until: (holds: () => boolean, what: string) =>
      waiters.wait(
        () => holds() || undefined,
        () => what,
      ),
    /** Sets the response. The spans are then not taken. Without one: takes them again. */
    respond(next: Respond = TAKE) {
      respond = next
    },
  }
}

const KINDS = new Map([
  [2, 'server'],
  [3, 'client'],
] as const)

/** The spans of an `ExportTraceServiceRequest` (opentelemetry-proto 1). */
export function spansIn(body: Buffer): CollectedSpan[] {
  return messagesIn(readMessage(body), 1).flatMap((ofResource) => {
    const resource = Object.assign(
      {},
      ...messagesIn(ofResource, 1).map((message) => attributesIn(message, 1)),
    )
    return messagesIn(ofResource, 2).flatMap((ofScope) => {
      const scope = messagesIn(ofScope, 1).map((message) => textIn(message, 1))[0] ?? ''
      return messagesIn(ofScope, 2).map((span) => ({ ...spanOf(span), resource, scope }))
    })
  })
}

function spanOf(span: Message) {
  const kind = Number(numberIn(span, 6))
  const [status] = messagesIn(span, 15)
  return {
    traceId: bytesIn(span, 1).toString('hex'),
    spanId: bytesIn(span, 2).toString('hex'),
    traceState: textIn(span, 3),
    parentId: bytesIn(span, 4).toString('hex'),
    name: textIn(span, 5),
    kind: kind === 2 || kind === 3 ? (KINDS.get(kind) ?? kind) : kind,
    startNs: numberIn(span, 7),
    endNs: numberIn(span, 8),
    attributes: attributesIn(span, 9),
    events: messagesIn(span, 11).map((event) => ({ name: textIn(event, 2), atNs: numberIn(event, 1) })),
    links: messagesIn(span, 13).map((link) => ({
      traceId: bytesIn(link, 1).toString('hex'),
      spanId: bytesIn(link, 2).toString('hex'),
      isSampled: (numberIn(link, 6) & 1n) === 1n,
    })),
    hasFailed: status !== undefined && numberIn(status, 3) === 2n,
    statusMessage: status === undefined ? '' : textIn(status, 2),
  }
}

function attributesIn(message: Message, field: number): Record<string, unknown> {
  return Object.fromEntries(
    messagesIn(message, field).map((pair) => [textIn(pair, 1), messagesIn(pair, 2).map(anyValue)[0]]),
  )
}

/** An `AnyValue`: of those that are sent, a text or an integer. */
const anyValue = (value: Message): unknown => (value.has(3) ? Number(numberIn(value, 3)) : textIn(value, 1))
