/**
 * One HTTP request of the soak run, as a client of any temper makes it.
 *
 * In: what is sent, and how: at which pace it is written and read, and when the client loses patience. Out: what the
 * client saw in the end.
 *
 * @module
 */
import { createHash } from 'node:crypto'
import { type Agent, type IncomingMessage, request } from 'node:http'
import type { ClientAnswer } from './client-answers.ts'
import { objectPiece } from './soak-object.ts'

/** What is asked for, and how. */
export interface Wanted {
  readonly port: number
  readonly agent: Agent
  readonly method: string
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  /** An object to send, or a text. */
  readonly body?: { readonly key: number; readonly bytes: number } | string
  /** Milliseconds between one read, or write, and the next. */
  readonly pauseMs?: number
  /** The client leaves after so many milliseconds, whatever it has got. */
  readonly abortMs?: number
}

/** What a client saw. */
export type Seen =
  | {
      readonly how: 'answered'
      readonly answer: ClientAnswer
      readonly sha256: string
      readonly bytes: number
    }
  /** The connection broke before the response head, or inside the response. */
  | { readonly how: 'refused' | 'cut'; readonly why: string }
  /** The client itself left. */
  | { readonly how: 'aborted' }
  /** Nothing happened for much longer than any of the sidecar's timeouts. */
  | { readonly how: 'hung' }

/** Longer than any timeout of the sidecar and all paces together. */
const PATIENCE_MS = 60_000
/** Bodies are kept up to this size: those of the sidecar's own answers. */
const KEPT_BYTES = 4096

/** Makes a request. Never rejects. */
export function transfer(wanted: Wanted): Promise<Seen> {
  const { port, agent, method, path, headers, body, pauseMs = 0, abortMs } = wanted
  return new Promise((resolve) => {
    let settled = false
    let responded = false
    const settle = (seen: Seen) => {
      if (settled) return
      settled = true
      clearTimeout(patience)
      clearTimeout(abort)
      resolve(seen)
    }
    const req = request({ host: '127.0.0.1', port, agent, method, path, headers })
    const leave = (seen: Seen) => {
      settle(seen)
      req.destroy()
    }
    const patience = setTimeout(() => leave({ how: 'hung' }), PATIENCE_MS)
    const abort = abortMs === undefined ? undefined : setTimeout(() => leave({ how: 'aborted' }), abortMs)
    req.on('error', (error: NodeJS.ErrnoException) => {
      settle({ how: responded ? 'cut' : 'refused', why: error.code ?? error.message })
    })
    req.on('response', (res) => {
      responded = true
      read(res, method, pauseMs, settle)
    })
    if (typeof body === 'object') write(body.key, body.bytes)
    else req.end(body)

    function write(key: number, bytes: number, at = 0): void {
      if (settled || responded || req.destroyed) return // an early answer ends the upload
      if (at >= bytes) {
        req.end()
        return
      }
      const piece = objectPiece(key, at, Math.min(bytes - at, pauseMs > 0 ? 1000 : bytes))
      const goOn = () => write(key, bytes, at + piece.length)
      const room = req.write(piece)
      if (pauseMs > 0) setTimeout(goOn, pauseMs)
      else if (room) goOn()
      else req.once('drain', goOn)
    }
  })
}

function read(res: IncomingMessage, method: string, pauseMs: number, settle: (seen: Seen) => void): void {
  const hash = createHash('sha256')
  let bytes = 0
  let kept = ''
  res.on('data', (chunk: Buffer) => {
    hash.update(chunk)
    bytes += chunk.length
    if (kept.length < KEPT_BYTES) kept += chunk.toString('latin1')
    if (pauseMs === 0) return
    res.pause()
    setTimeout(() => res.resume(), pauseMs)
  })
  res.on('error', (error: NodeJS.ErrnoException) => settle({ how: 'cut', why: error.code ?? error.message }))
  res.on('close', () => settle({ how: 'cut', why: 'close' }))
  res.on('end', () => {
    if (!res.complete) {
      settle({ how: 'cut', why: 'end' })
      return
    }
    const fields = []
    for (let at = 0; at < res.rawHeaders.length; at += 2) {
      fields.push({ name: String(res.rawHeaders[at]), value: String(res.rawHeaders[at + 1]), padded: false })
    }
    const answer: ClientAnswer = {
      status: res.statusCode ?? 0,
      fields,
      body: method === 'HEAD' ? '' : kept,
      trailers: [],
      whole: true,
      closes: res.headers.connection === 'close',
      informational: [],
      end: 0,
    }
    settle({ how: 'answered', answer, sha256: hash.digest('hex'), bytes })
  })
}
