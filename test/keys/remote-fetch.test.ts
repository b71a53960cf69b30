import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gzipSync } from 'node:zlib'
import t from 'tap'
import { type FetchOptions, fetchDocument } from '../../src/keys/remote-fetch.ts'

/** A server that answers in one way, and a fetch of a document there. */
async function answering(
  t: { teardown(close: () => void): void },
  answer: RequestListener,
  options: Partial<FetchOptions> = {},
) {
  const paths: string[] = []
  const server = createServer((req, res) => {
    paths.push(String(req.url))
    answer(req, res)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.close()
    server.closeAllConnections()
  })
  const { port } = server.address() as AddressInfo
  const url = `http://127.0.0.1:${port}/jwks.json?canary`
  const fetched = await fetchDocument(url, { abort: new AbortController(), ...options })
  return { paths, said: fetched.ok ? Buffer.from(fetched.bytes).toString() : fetched.problem }
}

t.test('the bytes of the answer are what is had, decompressed', async (t) => {
  let accept: string | undefined
  const plain = await answering(t, (req, res) => {
    accept = req.headers.accept
    res.end('{"keys":[]}')
  })
  t.equal(plain.said, '{"keys":[]}')
  t.match(accept, /^application\/jwk-set\+json/)
  const zipped = await answering(t, (_req, res) => {
    res.setHeader('content-encoding', 'gzip').end(gzipSync('zipped'))
  })
  t.equal(zipped.said, 'zipped')
  const empty = await fetchDocument('http://127.0.0.1/', {
    abort: new AbortController(),
    fetch: async () => new Response(null),
  })
  t.same(empty, { ok: true, bytes: Buffer.alloc(0) })
})

t.test('a redirect is not followed', async (t) => {
  for (const status of [301, 302, 303, 307, 308]) {
    const { said, paths } = await answering(
      t,
      (_req, res) => void res.writeHead(status, { location: '/other' }).end(),
    )
    t.equal(said, `was answered with status ${status}, and redirects are not followed`)
    t.equal(paths.length, 1)
  }
})

t.test('any other status than 200 is no document', async (t) => {
  for (const status of [204, 206, 404, 500]) {
    const { said } = await answering(t, (_req, res) => void res.writeHead(status).end())
    t.equal(said, `was answered with status ${status}`)
  }
})

t.test('more than the most bytes are not read, compressed or not, announced or not', async (t) => {
  const exactly = await answering(t, (_req, res) => void res.end('x'.repeat(1000)), { maxBytes: 1000 })
  t.equal(exactly.said.length, 1000)
  const many = await answering(t, (_req, res) => void res.end('x'.repeat(1001)), { maxBytes: 1000 })
  t.equal(many.said, 'is larger than 1000 bytes')
  const bomb = await answering(t, (_req, res) => {
    res.setHeader('content-encoding', 'gzip').end(gzipSync(Buffer.alloc(10_000_000)))
  })
  t.equal(bomb.said, 'is larger than 1048576 bytes')
  let closed = false
  const endless = await answering(t, (_req, res) => {
    res.on('close', () => {
      closed = true
    })
    const write = (): void => {
      while (res.write(Buffer.alloc(65_536)));
      res.once('drain', write)
    }
    write()
  })
  t.equal(endless.said, 'is larger than 1048576 bytes')
  await new Promise((resolve) => setTimeout(resolve, 50))
  t.ok(closed, 'and the connection is closed')
})

t.test('a server that does not answer, or never ends, is left after a time', async (t) => {
  const silent = await answering(t, () => {}, { timeoutMs: 50 })
  t.equal(silent.said, 'was not there within 0.05 s')
  const dripping = await answering(
    t,
    (_req, res) => {
      const drip = setInterval(() => res.write(' '), 5)
      res.on('close', () => clearInterval(drip))
    },
    { timeoutMs: 50 },
  )
  t.equal(dripping.said, 'was not there within 0.05 s')
})

t.test('who began a fetch can end it', async (t) => {
  const abort = new AbortController()
  const { said } = await answering(t, () => abort.abort(), { abort })
  t.match(said, /was not there/)
})

t.test('why a server could not be asked is told without its URL', async (t) => {
  const reset = await answering(t, (req) => void req.socket.destroy())
  t.equal(reset.said, 'cannot be fetched: UND_ERR_SOCKET')
  const cut = await answering(t, (req, res) => {
    res.setHeader('content-length', 100).write('x')
    setTimeout(() => req.socket.destroy(), 20)
  })
  t.equal(cut.said, 'cannot be fetched: UND_ERR_SOCKET')
  const nobody = await fetchDocument('http://127.0.0.1:9/canary', { abort: new AbortController() })
  t.match(nobody, { ok: false, problem: /^cannot be fetched: / })
  t.notMatch(nobody, { problem: /canary|127/ })
  for (const error of [new Error('canary'), new Error('canary', { cause: 'canary' }), 'canary']) {
    const fetch = () => Promise.reject(error)
    const odd = await fetchDocument('http://127.0.0.1/', { abort: new AbortController(), fetch })
    t.same(odd, { ok: false, problem: 'cannot be fetched: unknown fault' })
  }
})
