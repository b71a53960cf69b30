/**
 * The upstream of the fuzz run: reads every byte by the letter and answers as each request's script says.
 *
 * Anything that is not one plain request after another is told at once, a second request before the first one is
 * answered among it.
 *
 * @module
 */
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { expectedResponse } from './expected-responses.ts'
import type { Reply } from './fuzz-replies.ts'
import { readChunks, readFields, single } from './http-grammar.ts'
import type { SeenRequest } from './upstream-invariants.ts'

/** What is to be done about a request, and who is told of it. */
export interface Handling {
  readonly reply: Reply
  /** The request is whole. */
  readonly onWhole: (seen: SeenRequest) => void
  /** The first byte of the answer has been sent. */
  readonly onAnswered: () => void
}

/** What the upstream works with. */
export interface FuzzUpstreamOptions {
  /** Told of each request when its head is there; its body and trailers are empty then. */
  readonly onHead: (seen: SeenRequest) => Handling
  /** Told of bytes that are no plain request. */
  readonly onViolation: (what: string, bytes: string) => void
}

/** Starts the upstream on a free port. */
export async function startFuzzUpstream(options: FuzzUpstreamOptions) {
  const sockets = new Set<Socket>()
  const server = createServer({ noDelay: true }, (socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
    serve(socket, options)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    port: (server.address() as AddressInfo).port,
    get open() {
      return sockets.size
    },
    close: () =>
      new Promise<void>((resolve) => {
        for (const socket of sockets) socket.destroy()
        server.close(() => resolve())
      }),
  }
}

function serve(socket: Socket, { onHead, onViolation }: FuzzUpstreamOptions): void {
  let pending = ''
  let current: { head: SeenRequest; bodyStart: number; handling: Handling; answered: boolean } | undefined
  /** The request has been read and not been answered yet. */
  let busy = false
  /** The last answer has been given here: what still comes is nobody's. */
  let last = false
  socket.setEncoding('latin1')
  socket.on('error', () => {})

  const violate = (what: string) => {
    onViolation(what, pending)
    socket.destroy()
    pending = ''
  }
  /** Reads what can be read of one request; returns whether that was a whole one. */
  const takeOne = (): boolean => {
    if (busy) {
      violate('bytes behind a request that has not been answered')
      return false
    }
    const parsed = current ?? readHead(pending)
    if (parsed === 'bad') violate('a head that is none by the letter')
    if (parsed === 'bad' || parsed === undefined) return false
    if (current === undefined) {
      const handling = onHead(parsed.head)
      current = { ...parsed, handling, answered: handling.reply.early }
      if (current.answered) answer(handling, parsed.head.method)
    }
    const { head, bodyStart, handling, answered } = current
    const whole = readBody(pending, head, bodyStart)
    if (whole === 'bad') violate('a body that is none by the letter')
    if (whole === 'bad' || whole === undefined) return false
    pending = pending.slice(whole.end)
    current = undefined
    handling.onWhole({ ...head, body: whole.body, trailers: whole.trailers })
    if (!answered) {
      busy = true
      answer(handling, head.method)
    }
    return true
  }
  const answer = ({ reply, onAnswered }: Handling, method: string) => {
    const pieces = safePieces(reply, method)
    let next = 0
    const step = () => {
      const piece = pieces[next++]
      if (socket.destroyed) return
      if (next >= pieces.length) {
        busy = false
        last ||= reply.ending !== 'keep'
      }
      if (piece !== undefined) {
        if (next === 1) onAnswered()
        socket.write(piece, 'latin1')
        if (next < pieces.length || reply.ending !== 'keep') setTimeout(step, 0)
      } else if (reply.ending === 'close') {
        socket.end()
      } else {
        socket.resetAndDestroy()
      }
    }
    step()
  }
  socket.on('data', (chunk) => {
    pending += chunk
    while (pending !== '' && !last && !socket.destroyed && takeOne());
  })
}

/**
 * A reply's pieces, or all in one where a reader would be content before the last: bytes that come later than the end of
 * a response cannot be told from the answer to the next request by anybody.
 */
function safePieces({ pieces }: Reply, method: string): readonly string[] {
  let sent = ''
  for (const piece of pieces.slice(0, -1)) {
    sent += piece
    if (expectedResponse(sent, 'keep', method).kind !== 'fault') return [pieces.join('')]
  }
  return pieces
}

function readHead(
  bytes: string,
): { readonly head: SeenRequest; readonly bodyStart: number } | 'bad' | undefined {
  const lineEnd = bytes.indexOf('\r\n')
  if (lineEnd < 0) return undefined
  const line = /^([^ ]+) (\/[^ ]*) HTTP\/1\.1$/.exec(bytes.slice(0, lineEnd))
  if (line === null) return 'bad'
  const read = readFields(bytes, lineEnd + 2)
  if (typeof read !== 'object') return read
  const { fields, end } = read
  const length = single(fields, 'content-length')
  const coding = single(fields, 'transfer-encoding')
  if (length === 'twice' || coding === 'twice') return 'bad'
  if (length !== undefined && (coding !== undefined || !/^[0-9]{1,15}$/.test(length.value))) return 'bad'
  if (coding !== undefined && coding.value.toLowerCase() !== 'chunked') return 'bad'
  const framing = coding !== undefined ? 'chunked' : length !== undefined ? 'length' : 'none'
  const [, method = '', target = ''] = line
  return { head: { method, target, fields, framing, body: '', trailers: [] }, bodyStart: end }
}

function readBody(bytes: string, { framing, fields }: SeenRequest, start: number) {
  if (framing === 'chunked') return readChunks(bytes, start)
  const length = single(fields, 'content-length')
  const end = start + (typeof length === 'object' ? Number(length.value) : 0)
  return bytes.length < end ? undefined : { body: bytes.slice(start, end), trailers: [], end }
}
