/** A client that sends exact bytes, and keeps the exact bytes of the responses. */
import { connect, type Socket } from 'node:net'
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from 'node:tls'
import type { Test } from 'tap'
import { Waiters } from './eventually.ts'
import { GrowingBuffer } from './growing-buffer.ts'
import { type Message, messageOf, readResponse } from './http-text.ts'

/** A response as it stood on the wire. */
export interface RawResponse extends Message {
  readonly status: number
  readonly reason: string
}

/** Connects to a port of this machine, from another of its addresses if one is given. */
export async function rawClient(
  t: Pick<Test, 'teardown'>,
  port: number,
  host = '127.0.0.1',
  localAddress?: string,
): Promise<RawClient> {
  const from = localAddress === undefined ? {} : { localAddress }
  return clientOn(t, connect({ port, host, allowHalfOpen: true, ...from }), 'connect')
}

/** Connects over TLS to a port of this machine. Rejects when the handshake fails. */
export async function rawTlsClient(
  t: Pick<Test, 'teardown'>,
  port: number,
  options: ConnectionOptions,
): Promise<RawClient & { readonly socket: TLSSocket }> {
  const halfOpen = { allowHalfOpen: true } // known to Node, not to its types
  const socket = connectTls({ port, host: '127.0.0.1', ...halfOpen, ...options })
  return { ...(await clientOn(t, socket, 'secureConnect')), socket }
}

/**
 * Sends a request on a connection of its own, and closes that after the response.
 * `head`: the request is a HEAD.
 */
export async function rawRequest(
  t: Pick<Test, 'teardown'>,
  port: number,
  bytes: string | Uint8Array,
  { head = false, from }: { readonly head?: boolean; readonly from?: string } = {},
): Promise<RawResponse> {
  const client = await rawClient(t, port, '127.0.0.1', from)
  client.send(bytes)
  const response = await client.response({ head })
  client.socket.destroy()
  return response
}

export type RawClient = Awaited<ReturnType<typeof clientOn>>

/** Sends a byte on each connection twice a second. */
export function sendSteadily(t: Pick<Test, 'teardown'>, clients: readonly RawClient[]): NodeJS.Timeout {
  const sending = setInterval(() => {
    for (const { socket } of clients) {
      if (socket.writable) {
        socket.write('x')
      }
    }
  }, 500)
  t.teardown(() => clearInterval(sending))
  return sending
}

async function clientOn(t: Pick<Test, 'teardown'>, socket: Socket, readyEvent: 'connect' | 'secureConnect') {
  t.teardown(() => socket.destroy())
  const all = new GrowingBuffer()
  let received = all.bytes
  let taken = 0
  let ended: 'end' | 'reset' | undefined
  const waiters = new Waiters()
  socket.on('data', (chunk) => {
    all.add(chunk)
    received = all.bytes
    waiters.wake()
  })
  socket.on('end', () => {
    // Node reports a reset that arrives together with data as a clean end; but then the socket
    // has no peer any more (nor has it after a clean end if it half-closed before).
    ended ??= socket.remotePort === undefined && !socket.writableEnded ? 'reset' : 'end'
    waiters.wake()
  })
  socket.on('error', () => {
    ended = 'reset'
    waiters.wake()
  })
  socket.on('close', () => {
    ended ??= 'end'
    waiters.wake()
  })

  const seen = () => `received ${JSON.stringify(received.toString('latin1').slice(-500))}`
  const wait = <T>(what: string, look: () => T | undefined) =>
    waiters.wait(
      () => {
        const found = look()
        if (found === undefined && ended !== undefined) {
          throw new Error(`${ended} instead of ${what}; ${seen()}`)
        }
        return found
      },
      () => `${what}; ${seen()}`,
    )

  await new Promise<void>((resolve, reject) => {
    socket.once(readyEvent, resolve)
    socket.once('error', reject)
  })
  return {
    socket,
    /** Everything received so far. */
    received: () => received,
    /** Sends text (Latin-1) or bytes. */
    send: (data: string | Uint8Array) => {
      socket.write(typeof data === 'string' ? Buffer.from(data, 'latin1') : data)
    },
    /** Takes the next response, 1xx too, from the received bytes. `head`: it responds to a HEAD. */
    response: ({ head = false }: { readonly head?: boolean } = {}) =>
      wait('a response', (): RawResponse | undefined => {
        const read = readResponse(received.subarray(taken), 0, () => head)
        if (read === 'bad') {
          throw new Error(`a malformed response; ${seen()}`)
        }
        if (read === undefined || !(read.complete || (ended !== undefined && !read.framed))) {
          return undefined
        }
        taken += read.end
        return { status: read.status, reason: read.reason, ...messageOf(read.fields, read) }
      }),
    /** Waits until the bytes received hold a text. */
    until: (text: string) =>
      wait(JSON.stringify(text), () => (received.includes(text, taken, 'latin1') ? true : undefined)).then(
        () => {},
      ),
    /** Waits for the end; says whether it was a reset. */
    closed: () => wait('the end', () => ended),
    /** Bytes that no response has been taken from yet. */
    rest: () => received.subarray(taken),
  }
}
