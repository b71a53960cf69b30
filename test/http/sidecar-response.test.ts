import { createServer, type IncomingMessage, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { type BodyFraming, type Head, SidecarResponse } from '../../src/http/sidecar-response.ts'
import { rawClient } from '../support/raw-client.ts'

/** Serves one kind of response; what comes back is everything received, the date and the order of lines aside. */
async function served<Response extends typeof ServerResponse | typeof SidecarResponse>(
  t: Test,
  response: Response,
  answer: (req: IncomingMessage, res: InstanceType<Response>) => void,
  keepAliveTimeout = 75_000,
) {
  const server = createServer({ ServerResponse: response, keepAliveTimeout }, (req, res) =>
    answer(req, res as InstanceType<Response>),
  )
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => void server.close())
  const { port } = server.address() as AddressInfo
  return async (request: string) => {
    const client = await rawClient(t, port)
    client.send(request)
    const got = await client.response({ head: request.startsWith('HEAD') })
    client.socket.end()
    await client.closed()
    const names = got.rawHeaders.filter((_, at) => at % 2 === 0)
    return {
      status: got.status,
      reason: got.reason,
      headers: { ...got.headers, date: String('date' in got.headers) } as Record<string, string>,
      repeated: names.length - new Set(names.map((name) => name.toLowerCase())).size,
      body: got.body.toString('latin1'),
      trailers: got.rawTrailers,
      rest: client.rest().toString(),
    }
  }
}

const REQUESTS = ['GET', 'HEAD', 'PUT'].flatMap((method) =>
  [
    'HTTP/1.1\r\nHost: h',
    'HTTP/1.1\r\nHost: h\r\nConnection: close',
    'HTTP/1.0',
    'HTTP/1.0\r\nConnection: keep-alive',
  ].map((version) => `${method} / ${version}\r\n\r\n`),
)

const head = (change: Partial<Head> = {}): Head => ({
  status: 200,
  headers: ['Content-Type', 'text/plain', 'X-Dup', '1', 'X-Dup', '2', 'Content-Length', '5'],
  needsDate: true,
  close: false,
  ...change,
})

/** What Node makes of the same head. */
const nodes = ({ status, reason, headers, close }: Head, res: ServerResponse) =>
  res.writeHead(status, reason, [...headers, ...(close ? ['Connection', 'close'] : [])])

t.test('a whole response is what Node would have sent', async (t) => {
  for (const change of [
    {},
    { close: true },
    { reason: 'Fine' },
    { reason: '' },
    { status: 404 },
    { status: 503 },
  ]) {
    const ours = await served(t, SidecarResponse, (_req, res) => res.sendWhole(head(change), 'hello'))
    const theirs = await served(t, ServerResponse, (_req, res) => nodes(head(change), res).end('hello'))
    for (const request of REQUESTS) {
      t.same(await ours(request), await theirs(request), `${JSON.stringify(change)} ${request}`)
    }
  }
})

t.test('a streamed response is what Node would have sent', async (t) => {
  const withoutLength = ['Content-Type', 'text/plain']
  for (const [framing, headers, parts, status] of [
    ['length', undefined, ['he', 'llo'], 200],
    ['chunked', withoutLength, ['he', 'l', 'lo'], 200],
    ['chunked', withoutLength, [], 200],
    ['none', ['X-Y', 'z'], [], 204],
    ['none', ['ETag', '"x"'], [], 304],
  ] as const) {
    const change = { status, ...(headers === undefined ? {} : { headers }) }
    const stream = (res: ServerResponse) => {
      for (const part of parts) res.write(Buffer.from(part))
      if (framing === 'chunked' && res.chunkedEncoding) res.addTrailers([['X-Sum', '1']])
      res.end()
    }
    const chunks = (req: IncomingMessage): BodyFraming =>
      framing === 'chunked' && (req.httpVersionMinor === 0 || req.method === 'HEAD') ? 'close' : framing
    const ours = await served(t, SidecarResponse, (req, res) => {
      res.startWith(head(change), chunks(req))
      stream(res)
    })
    const theirs = await served(t, ServerResponse, (_req, res) => {
      nodes(head(change), res)
      stream(res)
    })
    for (const request of REQUESTS.filter(
      (text) => framing !== 'chunked' || text.includes('1.1') === !text.startsWith('HEAD'),
    )) {
      const [mine, nodesOwn] = [await ours(request), await theirs(request)]
      // What becomes of an HTTP/1.0 connection differs where there is no length: Node closes behind a 204 and a 304
      // of which the end is plain.
      if (framing !== 'length' && request.includes('HTTP/1.0'))
        t.same([mine.status, mine.body], [nodesOwn.status, nodesOwn.body])
      else t.same(mine, nodesOwn, `${framing} ${status} ${request}`)
    }
  }
})

t.test('every byte of a head or a small body stands for itself', async (t) => {
  const headers = ['X-Name', 'caf\xe9', 'Content-Length', '4']
  const whole = await served(t, SidecarResponse, (_req, res) => res.sendWhole(head({ headers }), 'caf\xe9'))
  const streamed = await served(t, SidecarResponse, (_req, res) => {
    res.startWith(head({ headers, reason: 'caf\xe9' }), 'length')
    res.flushHeaders()
    setImmediate(() => res.end(Buffer.from('caf\xe9', 'latin1')))
  })
  for (const ask of [whole, streamed]) {
    const got = await ask('GET / HTTP/1.1\r\nHost: h\r\n\r\n')
    t.same([got.headers, got.body], [{ ...got.headers, 'x-name': 'caf\xe9' }, 'caf\xe9'])
  }
  t.equal((await streamed('GET / HTTP/1.1\r\nHost: h\r\n\r\n')).reason, 'caf\xe9')
})

t.test('a head that is flushed goes out before its body', async (t) => {
  let later: (() => void) | undefined
  const server = createServer({ ServerResponse: SidecarResponse }, (_req, res) => {
    res.startWith(head(), 'length')
    res.flushHeaders()
    later = () => res.end('hello')
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => void server.close())
  const client = await rawClient(t, (server.address() as AddressInfo).port)
  client.send('GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n')
  await client.until('\r\n\r\n')
  t.equal(client.received().includes('hello'), false)
  later?.()
  t.equal((await client.response()).body.toString(), 'hello')
})

t.test('a date that is there is kept; one that is not is made', async (t) => {
  const dated = ['Date', 'Tue, 15 Nov 1994 08:12:31 GMT', 'Content-Length', '0']
  const answers = [head({ headers: dated, needsDate: false }), head({ headers: ['Content-Length', '0'] })]
  const seen: (string | undefined)[] = []
  for (const answer of answers) {
    const server = createServer({ ServerResponse: SidecarResponse }, (_req, res) => res.sendWhole(answer, ''))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    t.teardown(() => void server.close())
    const client = await rawClient(t, (server.address() as AddressInfo).port)
    client.send('GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n')
    seen.push((await client.response()).headers['date'])
  }
  t.equal(seen[0], 'Tue, 15 Nov 1994 08:12:31 GMT')
  t.ok(Math.abs(Date.parse(seen[1] ?? '') - Date.now()) < 60_000)
})

t.test('the time a connection is kept is told as it is set', async (t) => {
  for (const [timeout, told] of [
    [5000, 'timeout=5'],
    [75_900, 'timeout=75'],
  ] as const) {
    const ask = await served(t, SidecarResponse, (_req, res) => res.sendWhole(head(), 'hello'), timeout)
    t.equal((await ask('GET / HTTP/1.1\r\nHost: h\r\n\r\n')).headers['keep-alive'], told)
  }
})
