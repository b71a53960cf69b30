/** Responses of the upstream of the fuzz run: mostly a good response of some form, sometimes none at all. */
import type { Random } from './random.ts'

export interface Reply {
  /** Latin-1, written one after the other. */
  readonly pieces: readonly string[]
  readonly ending: 'keep' | 'close' | 'reset'
  /** A response that a client must receive completely; its body is `content`. */
  readonly good: boolean
  readonly content: string
  /** Answers before the request's body has arrived. */
  readonly early: boolean
}

/** The header by which a response names the request that it belongs to. */
export const NAME_HEADER = 'x-fz'

/** The reply to the request of a name. */
export function randomReply(random: Random, name: string): Reply {
  const content = `${name} ${random.text(random.pick([0, 20, 300]))}`.repeat(random.pick([1, 1, 1, 200]))
  const head = `HTTP/1.1 ${random.pick(['200 OK', '200 OK', '404 Not Found', '500 Oops'])}\r\nX-Fz: ${name}\r\n`
  const sized = `${head}Content-Length: ${content.length}\r\n\r\n${content}`
  const chunked = `${head}Transfer-Encoding: chunked\r\n\r\n${content.length.toString(16)};e\r\n${content}\r\n0\r\n\r\n`
  const bodiless = (status: string) => `HTTP/1.1 ${status}\r\nX-Fz: ${name}\r\n\r\n`
  const fine = (bytes: string, ending: Reply['ending'] = 'keep'): Reply => {
    return { pieces: cut(random, bytes), ending, good: true, content, early: false }
  }
  const bad = (bytes: string, ending: Reply['ending']): Reply => ({ ...fine(bytes, ending), good: false })
  const whole = (bytes: string): Reply => ({ ...bad(bytes, 'keep'), pieces: [bytes] })
  const malformed = [
    'SSH-2.0-x\r\n',
    '\0\xff garbage',
    `${head}Content-Length: 2\r\nContent-Length: 3\r\n\r\nok`,
    `${head}Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n`,
    `${head}Content-Length: +2\r\n\r\nok`,
    `${head}no colon\r\nContent-Length: 2\r\n\r\nok`,
    `${head}X-Large: ${'z'.repeat(20_000)}\r\nContent-Length: 2\r\n\r\nok`,
    'HTTP/1.1 1000 Much\r\nContent-Length: 2\r\n\r\nok',
    'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n',
  ]
  return random.weighted<() => Reply>([
    [20, () => fine(sized)],
    [8, () => fine(chunked)],
    [2, () => fine(`${head}Connection: close\r\n\r\n${content}`, 'close')],
    [2, () => fine(sized, 'close')],
    [1, () => bad(`${head}Connection: close\r\n\r\n${content}`, 'reset')],
    [1, () => fine(`HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n${sized}`)],
    [1, () => ({ ...fine(bodiless('204 No Content')), content: '' })],
    [1, () => ({ ...fine(sized, 'close'), early: true, good: false })],
    // Early responses of every framing, after which the rest of the body is read.
    [1, () => ({ ...fine(random.pick([sized, chunked])), early: true })],
    [1, () => ({ ...fine(`${head}Content-Length: 0\r\n\r\n`), content: '', early: true })],
    [1, () => ({ ...fine(bodiless('204 No Content')), content: '', early: true })],
    [1, () => ({ ...fine(bodiless('304 Not Modified')), content: '', early: true })],
    // Long names of few characters: what reads them must not take quadratic time.
    [1, () => fine(`${head}${longName(random)}: v\r\nContent-Length: ${content.length}\r\n\r\n${content}`)],
    // A second response that no client asked for, in one write: one that comes later is a
    // response to the next request.
    [1, () => whole(`${sized}HTTP/1.1 200 OK\r\nX-Fz: poison\r\nContent-Length: 6\r\n\r\npoison`)],
    // Bytes after a bodiless one.
    [1, () => bad(`HTTP/1.1 204 No Content\r\nX-Fz: ${name}\r\nContent-Length: 6\r\n\r\npoison`, 'keep')],
    [2, () => bad(sized.slice(0, random.int(0, sized.length - 1)), random.pick(['close', 'reset']))],
    [1, () => bad(chunked.slice(0, random.int(0, chunked.length - 1)), random.pick(['close', 'reset']))],
    [2, () => bad(random.pick(malformed), random.pick(['close', 'reset']))],
  ])()
}

/** A field name of thousands of characters, of one or two kinds between two letters. */
export function longName(random: Random): string {
  const unit = random.pick(['-', '_', '.', '-_', 'a-'])
  return `a${unit.repeat(random.int(1000, 12_000) / unit.length)}b`
}

function cut(random: Random, bytes: string): string[] {
  if (bytes.length < 2 || random.chance(0.7)) {
    return [bytes]
  }
  const at = random.int(1, bytes.length - 1)
  return [bytes.slice(0, at), bytes.slice(at)]
}
