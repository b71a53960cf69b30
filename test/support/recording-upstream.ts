/**
 * An upstream that records every byte and sends scripted responses.
 *
 * It parses requests strictly by their framing, so that a second request smuggled after a first
 * one is a second entry in its record.
 */
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import type { Test } from 'tap'
import { standsStill, Waiters } from './eventually.ts'
import { GrowingBuffer } from './growing-buffer.ts'
import { type Message, messageOf, readBody, readHead } from './http-text.ts'
import type { RawClient } from './raw-client.ts'

/** A request as it stood on the wire. */
export interface RecordedRequest extends Message {
  readonly method: string
  readonly target: string
  /** Which connection it came on, counted from 0. */
  readonly connection: number
}

/** How to respond to a request: text (Latin-1) or bytes to send, or a function of the socket. */
export type Reply = string | Uint8Array | ((socket: Socket, request: RecordedRequest) => void)

/** What a test may want to know of, or do with, connections before a request is read. */
export interface UpstreamHooks {
  /** Called with each new connection. */
  readonly onConnection?: (socket: Socket) => void
  /** Whether requests are read at all; default true. */
  readonly read?: boolean
}

/** A short response that keeps the connection open. */
export const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'

/** A response with this body. */
export function bodyReply(body: Uint8Array): Reply {
  return Buffer.concat([Buffer.from(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n`), body])
}

type RecordingUpstream = Awaited<ReturnType<typeof recordingUpstream>>

/** Starts an upstream on a free port, or on a given port or socket path. */
export async function recordingUpstream(
  t: Pick<Test, 'teardown'>,
  { onConnection, read = true }: UpstreamHooks = {},
  listenOn: number | string = 0,
) {
  /** Complete requests, in order of their ends. */
  const requests: RecordedRequest[] = []
  /** Everything received on each connection, including incomplete requests. */
  const bytes: Buffer[] = []
  /** The connections that have been made. */
  const sockets: Socket[] = []
  const waiters = new Waiters()
  let reply: Reply = OK
  const server: Server = createServer((socket) => {
    const connection = sockets.push(socket) - 1
    bytes.push(Buffer.alloc(0))
    const all = new GrowingBuffer()
    let parsed = 0
    socket.setNoDelay(true)
    socket.on('error', () => {})
    socket.on('close', () => waiters.wake())
    onConnection?.(socket)
    waiters.wake()
    if (!read) {
      return
    }
    socket.on('data', (chunk) => {
      all.add(chunk)
      bytes[connection] = all.bytes
      let next = parseRequest(all.bytes.subarray(parsed))
      while (next !== undefined) {
        parsed += next.length
        answer(socket, { ...next.request, connection })
        next = parseRequest(all.bytes.subarray(parsed))
      }
      waiters.wake()
    })
  })
  function answer(socket: Socket, request: RecordedRequest): void {
    requests.push(request)
    if (typeof reply === 'function') {
      reply(socket, request)
    } else {
      socket.write(typeof reply === 'string' ? Buffer.from(reply, 'latin1') : reply)
    }
  }
  /** Waits until a condition on the record holds. */
  const until = async (holds: () => boolean, what: string) => {
    await waiters.wait(
      () => holds() || undefined,
      () => `${what} at the upstream`,
    )
  }
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    if (typeof listenOn === 'string') {
      server.listen(listenOn, resolve)
    } else {
      server.listen(listenOn, '127.0.0.1', resolve)
    }
  })
  const close = () =>
    new Promise<void>((resolve) => {
      for (const socket of sockets) {
        socket.destroy()
      }
      server.close(() => resolve())
    })
  t.teardown(close)
  const address = server.address()
  const port = typeof address === 'string' ? 0 : (address as AddressInfo).port
  return {
    port,
    url: typeof listenOn === 'string' ? `unix:${listenOn}` : `http://127.0.0.1:${port}`,
    requests,
    bytes,
    sockets,
    /** Connections that are open now. */
    open: () => sockets.filter((socket) => !socket.destroyed).length,
    /** Sets the reply to further requests. */
    reply: (next: Reply) => {
      reply = next
    },
    /** Waits until so many complete requests have arrived. */
    received: (count: number) => until(() => requests.length >= count, `${count} requests`),
    until,
    close,
  }
}

/**
 * Sends requests on a client that does not read until its kernel takes no more: then a complete
 * response waits in the sidecar.
 */
export async function fillBuffers(client: RawClient, upstream: RecordingUpstream, get: string) {
  const served = () => upstream.requests.length
  let sent = served()
  while (sent === served()) {
    client.send(get.repeat(10))
    sent += 10
    const all = upstream.until(() => served() === sent, 'the requests')
    await Promise.race([all, standsStill(served, 1000)])
  }
}

/** Takes one request from the start of the bytes; undefined while incomplete. */
function parseRequest(
  bytes: Buffer,
): { readonly request: Omit<RecordedRequest, 'connection'>; readonly length: number } | undefined {
  const head = readHead(bytes, 0)
  if (typeof head !== 'object') {
    return undefined
  }
  const body = readBody(bytes, head)
  if (typeof body !== 'object') {
    return undefined
  }
  const [method = '', target = ''] = head.start.split(' ')
  return { request: { method, target, ...messageOf(head.fields, body) }, length: body.end }
}
