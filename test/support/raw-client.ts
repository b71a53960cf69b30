/** A client that sends exact bytes, and keeps the exact bytes of the responses. */
import { connect, type Socket } from 'node:net'
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from 'node:tls'
import type { Test } from 'tap'
import { GrowingBuffer } from './growing-buffer.ts'

/** A response as it stood on the wire. */
export interface RawResponse {
  readonly status: number
  readonly reason: string
  /** Names and values alternating, spelled as they came. */
  readonly rawHeaders: readonly string[]
  /** By lower-cased name; the values of a repeated header are joined with `, `. */
  readonly headers: Readonly<Record<string, string>>
  /** De-chunked where it came in chunks. */
  readonly body: Buffer
  readonly rawTrailers: readonly string[]
}

/** How long anything is waited for: a test that waits in vain must end. */
const PATIENCE_MS = 20_000

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

export type RawClient = Awaited<ReturnType<typeof clientOn>>

async function clientOn(t: Pick<Test, 'teardown'>, socket: Socket, readyEvent: 'connect' | 'secureConnect') {
  t.teardown(() => socket.destroy())
  const all = new GrowingBuffer()
  let received = all.bytes
  let taken = 0
  let ended: 'end' | 'reset' | undefined
  const waiting = new Set<() => void>()
  const wake = () => {
    for (const check of [...waiting]) check()
  }
  socket.on('data', (chunk) => {
    all.add(chunk)
    received = all.bytes
    wake()
  })
  socket.on('end', () => {
    // Node reports a reset that arrives together with data as a clean end; but then the socket has no peer any more
    // (nor has it after a clean end if it half-closed before).
    ended ??= socket.remotePort === undefined && !socket.writableEnded ? 'reset' : 'end'
    wake()
  })
  socket.on('error', () => {
    ended = 'reset'
    wake()
  })
  socket.on('close', () => {
    ended ??= 'end'
    wake()
  })

  function wait<T>(what: string, look: () => T | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      const seen = () => `received ${JSON.stringify(received.toString('latin1').slice(-500))}`
      const give = setTimeout(() => {
        waiting.delete(check)
        reject(new Error(`waited in vain for ${what}; ${seen()}`))
      }, PATIENCE_MS)
      give.unref() // the socket keeps the process alive
      const check = () => {
        const found = look()
        if (found === undefined && (ended === undefined || what === 'the end')) return
        clearTimeout(give)
        waiting.delete(check)
        if (found === undefined) reject(new Error(`${ended} instead of ${what}; ${seen()}`))
        else resolve(found)
      }
      waiting.add(check)
      check()
    })
  }

  await new Promise<void>((resolve, reject) => {
    socket.once(readyEvent, resolve)
    socket.once('error', reject)
  })
  return {
    socket,
    /** Everything received so far. */
    received: () => received,
    /** Sends text (Latin-1) or bytes. */
    send: (data: string | Uint8Array) =>
      void socket.write(typeof data === 'string' ? Buffer.from(data, 'latin1') : data),
    /** Takes the next response, 1xx too, from the received bytes. `head`: it responds to a HEAD. */
    response: ({ head = false }: { readonly head?: boolean } = {}) =>
      wait('a response', () => {
        const parsed = parseResponse(received.subarray(taken), head, ended !== undefined)
        if (parsed === undefined) return undefined
        taken += parsed.length
        return parsed.response
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

/** Takes one response from the start of the bytes; undefined while incomplete. */
export function parseResponse(
  bytes: Buffer,
  head: boolean,
  ended: boolean,
): { readonly response: RawResponse; readonly length: number } | undefined {
  const headEnd = bytes.indexOf('\r\n\r\n')
  if (headEnd < 0) return undefined
  const [statusLine = '', ...lines] = bytes.toString('latin1', 0, headEnd).split('\r\n')
  const match = /^HTTP\/1\.1 (\d{3}) ?(.*)$/.exec(statusLine)
  if (match === null) throw new Error(`no status line: ${JSON.stringify(statusLine)}`)
  const status = Number(match[1])
  const rawHeaders = splitLines(lines)
  const headers = joined(rawHeaders)
  const common = { status, reason: match[2] ?? '', rawHeaders, headers }
  const start = headEnd + 4
  const whole = (body: Buffer, end: number, rawTrailers: readonly string[] = []) => ({
    response: { ...common, body, rawTrailers },
    length: end,
  })
  if (head || status < 200 || status === 204 || status === 304) return whole(Buffer.alloc(0), start)
  if (headers['transfer-encoding'] === 'chunked') {
    const chunked = parseChunks(bytes, start)
    return chunked && whole(chunked.body, chunked.end, chunked.rawTrailers)
  }
  if (headers['content-length'] !== undefined) {
    const end = start + Number(headers['content-length'])
    return bytes.length < end ? undefined : whole(bytes.subarray(start, end), end)
  }
  return ended ? whole(bytes.subarray(start), bytes.length) : undefined
}

/** Takes the chunks of a body that starts there; undefined while incomplete. */
export function parseChunks(
  bytes: Buffer,
  start: number,
): { readonly body: Buffer; readonly rawTrailers: string[]; readonly end: number } | undefined {
  const parts: Buffer[] = []
  for (let at = start; ; ) {
    const lineEnd = bytes.indexOf('\r\n', at)
    if (lineEnd < 0) return undefined
    const size = Number.parseInt(bytes.toString('latin1', at, lineEnd), 16)
    if (size === 0) {
      const end = bytes.indexOf('\r\n\r\n', lineEnd)
      if (end < 0) return undefined
      const trailers = end === lineEnd ? [] : bytes.toString('latin1', lineEnd + 2, end).split('\r\n')
      return { body: Buffer.concat(parts), rawTrailers: splitLines(trailers), end: end + 4 }
    }
    at = lineEnd + 2 + size + 2
    if (bytes.length < at) return undefined
    parts.push(bytes.subarray(lineEnd + 2, lineEnd + 2 + size))
  }
}

/** Field lines as names and values alternating. */
export function splitLines(lines: readonly string[]): string[] {
  return lines.flatMap((line) => {
    const colon = line.indexOf(':')
    return [line.slice(0, colon), line.slice(colon + 1).trim()]
  })
}

/** Names and values by lower-cased name. */
export function joined(rawHeaders: readonly string[]): Record<string, string> {
  const headers: Record<string, string> = {}
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = (rawHeaders[at] as string).toLowerCase()
    const value = rawHeaders[at + 1] as string
    headers[name] = headers[name] === undefined ? value : `${headers[name]}, ${value}`
  }
  return headers
}
