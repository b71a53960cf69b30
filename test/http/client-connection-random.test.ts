import { createHash } from 'node:crypto'
import t from 'tap'
import type { Exchange } from '../../src/http/exchange.ts'
import { createRandom, type Random } from '../campaigns/random.ts'
import { makeCertificate } from '../support/certificates.ts'
import { eventually } from '../support/eventually.ts'
import { answerWith, LIMITS, startListening } from '../support/listening.ts'
import { type RawClient, rawTlsClient } from '../support/raw-client.ts'

const { cert, key } = makeCertificate({ commonName: 'localhost' })
const CERTIFICATES = { cert: Buffer.from(cert), key: Buffer.from(key) }

/** Does something now, or soon. */
function sometime(random: Random, work: () => void): void {
  random.pick([work, () => process.nextTick(work), () => setImmediate(work), () => setTimeout(work, 1)])()
}

function digest(body: Buffer): string {
  return createHash('sha256').update(body).digest('hex')
}

/** Answers with the target and the digest of the body, whole or in pieces. */
function answer(random: Random, exchange: Exchange, sum: string): void {
  const { res, req } = exchange
  const text = `${req.url} ${sum} `.padEnd(random.int(100, random.pick([200, 200, 100_000])), '.')
  if (random.chance(0.5)) {
    answerWith(exchange, text)
    return
  }
  res.startWith({ status: 200, lines: '', needsDate: true, close: false }, 'chunked')
  if (random.chance(0.5)) res.flushHead()
  const pieces = text.match(/.{1,9000}/g) ?? []
  let blocked = false
  const go = () => {
    while (!blocked) {
      const piece = pieces.shift()
      if (piece === undefined) {
        if (!res.ended) res.end()
        return
      }
      blocked = !res.write(Buffer.from(piece))
    }
  }
  res.onDrain = () => {
    blocked = false
    sometime(random, go)
  }
  go()
}

/** Takes the body at some pace, looking at each chunk only after a while; then answers. */
function work(random: Random, exchange: Exchange): void {
  const { req } = exchange
  const hash = createHash('sha256')
  const held: (() => void)[] = []
  const look = () => {
    for (const one of held.splice(0)) one()
  }
  req.giveTo({
    onRequestBody(chunk) {
      const release = req.hold()
      held.push(() => {
        hash.update(chunk)
        release()
      })
      if (random.chance(0.5)) {
        req.pause()
        sometime(random, () => {
          look()
          req.resume()
        })
      }
    },
    onRequestEnd() {
      look()
      const sum = hash.digest('hex')
      sometime(random, () => answer(random, exchange, sum))
    },
  })
}

/** Some requests as bytes, and what the beginnings of their answers must be. */
function requests(random: Random) {
  const bytes: Buffer[] = []
  const expected: string[] = []
  for (let at = random.int(1, 30); at > 0; at--) {
    const body = Buffer.from(random.text(random.pick([0, 1, 10, 1000, 70_000])), 'latin1')
    const head = `PUT /${at} HTTP/1.1\r\nHost: h\r\n`
    if (random.chance(0.3)) {
      bytes.push(Buffer.from(`GET /${at} HTTP/1.1\r\nHost: h\r\n\r\n`))
      expected.push(`/${at} ${digest(Buffer.alloc(0))} `)
      continue
    }
    expected.push(`/${at} ${digest(body)} `)
    if (random.chance(0.5)) {
      bytes.push(Buffer.from(`${head}Content-Length: ${body.length}\r\n\r\n`), body)
    } else {
      bytes.push(Buffer.from(`${head}Transfer-Encoding: chunked\r\n\r\n`))
      for (let from = 0, size = 0; from < body.length; from += size) {
        size = Math.min(body.length - from, random.int(1, random.pick([10, 5000])))
        bytes.push(
          Buffer.from(`${size.toString(16)}\r\n`),
          body.subarray(from, from + size),
          Buffer.from('\r\n'),
        )
      }
      bytes.push(Buffer.from(random.pick(['0\r\n\r\n', '0\r\nX: y\r\n\r\n\r\n'])))
    }
  }
  return { bytes: Buffer.concat(bytes), expected }
}

/** Sends everything in segments of some size, and reads the answers, perhaps not at once. */
async function talk(random: Random, client: RawClient): Promise<string | undefined> {
  const { bytes, expected } = requests(random)
  if (random.chance(0.2)) {
    client.socket.pause()
    setTimeout(() => client.socket.resume(), 20)
  }
  const most = random.pick([100, 5000, 100_000])
  const send = async () => {
    for (let at = 0, size = 0; at < bytes.length; at += size) {
      size = random.int(1, most)
      client.send(bytes.subarray(at, at + size))
      if (random.chance(0.1)) await new Promise<void>((resolve) => sometime(random, resolve))
    }
  }
  const sent = send()
  for (const start of expected) {
    const body = (await client.response()).body.toString()
    if (!body.startsWith(start)) return `${body.slice(0, 80)} instead of ${start}`
  }
  await sent
  return client.rest().length === 0 ? undefined : 'more than was asked for'
}

t.test(
  'whatever the pace of clients and of those who answer, nothing is lost, mixed up or kept waiting',
  async (t) => {
    const SEEDS = Number(process.env['SEEDS'] ?? 12)
    for (let seed = 0; seed < SEEDS; seed++) {
      const random = createRandom(seed, 1)
      const tls = random.chance(0.25)
      const listening = await startListening(
        t,
        (exchange) => sometime(random, () => work(random, exchange)),
        {
          limits: { ...LIMITS, inFlightPerConnection: random.int(1, 5) },
          ...(tls ? { certificates: CERTIFICATES } : {}),
        },
      )
      const problems = await Promise.all(
        Array.from({ length: random.int(1, 6) }, async (_, at) => {
          const client = tls
            ? await rawTlsClient(t, listening.port, { rejectUnauthorized: false })
            : await listening.connect()
          const problem = await talk(createRandom(seed, 2 + at), client)
          client.socket.end()
          return problem
        }),
      )
      t.same(problems.filter(Boolean), [], `seed ${seed}`)
      await eventually(() => listening.listener.connections === 0, 'the close')
      t.ok(
        listening.over.length === listening.started.length &&
          listening.over.every(({ finished }) => finished),
      )
      t.equal(
        new Set(listening.over.map(({ exchange }) => exchange)).size,
        listening.over.length,
        'each once',
      )
    }
  },
)
