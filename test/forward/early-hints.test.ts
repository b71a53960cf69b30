import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { earlyHints } from '../../src/forward/early-hints.ts'
import type { ResponseHead } from '../../src/forward/response-parser.ts'
import { SidecarResponse } from '../../src/http/sidecar-response.ts'
import { rawClient } from '../support/raw-client.ts'

const FINAL = 'HTTP/1.1 200 OK\r\n'

function informational(status: number, rawHeaders: readonly string[]): ResponseHead {
  return {
    status,
    reason: '',
    rawHeaders,
    framing: 'none',
    contentLength: 0,
    keepAlive: true,
    keepAliveSeconds: undefined,
  }
}

/** What a client gets before the final response to a request, when the upstream sends these heads. */
async function before(
  t: Test,
  heads: readonly ResponseHead[],
  request = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n',
) {
  const server = createServer({ ServerResponse: SidecarResponse }, (req, res) => {
    for (const head of heads) earlyHints({ req, res }, head)
    res.end('ok')
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const client = await rawClient(t, (server.address() as AddressInfo).port)
  t.teardown(() => {
    client.socket.destroy()
    server.close()
  })
  client.send(request)
  await client.until(FINAL)
  const received = client.received().toString('latin1')
  return received.slice(0, received.indexOf(FINAL))
}

t.test('the links of a 103 reach the client before the response', async (t) => {
  const link = ['X-Private', 'a', 'Link', '</a.css>; rel=preload', 'LINK', '</b.js>; rel=preload; as=script']
  t.equal(
    await before(t, [informational(103, link)]),
    'HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload, </b.js>; rel=preload; as=script\r\n\r\n',
  )
})

t.test('each 103 is one', async (t) => {
  const [first, second] = ['</a>; rel=preload', '</b>; rel=preload']
  t.equal(
    await before(t, [informational(103, ['Link', first]), informational(103, ['Link', second])]),
    `HTTP/1.1 103 Early Hints\r\nLink: ${first}\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: ${second}\r\n\r\n`,
  )
})

t.test('other informational responses, and hints without a link, are not told', async (t) => {
  const link = ['Link', '</a.css>; rel=preload']
  const heads = [
    informational(100, []),
    informational(102, link),
    informational(150, link),
    informational(103, []),
  ]
  t.equal(await before(t, heads), '')
})

t.test('a link that Node does not take is left out, and the response arrives', async (t) => {
  t.equal(await before(t, [informational(103, ['Link', 'no link at all'])]), '')
})

t.test('a client of HTTP/1.0 would take hints for the response, and gets none', async (t) => {
  const heads = [informational(103, ['Link', '</a.css>; rel=preload'])]
  t.equal(await before(t, heads, 'GET / HTTP/1.0\r\n\r\n'), '')
})
