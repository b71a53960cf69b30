import t, { type Test } from 'tap'
import { earlyHints } from '../../src/forward/early-hints.ts'
import type { ResponseHead } from '../../src/forward/response-parser.ts'
import { admitted, answerWith, startListening } from '../support/listening.ts'

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
  const { connect } = await startListening(t, (exchange) => {
    admitted(exchange)
    for (const head of heads) earlyHints(exchange, head)
    answerWith(exchange, 'ok')
  })
  const client = await connect()
  client.send(request)
  await client.until(FINAL)
  const received = client.received().toString('latin1')
  return received.slice(0, received.indexOf(FINAL))
}

t.test('the links of a 103 reach the client before the response, and nothing else of it', async (t) => {
  const link = ['X-Private', 'a', 'Link', '</a.css>; rel=preload', 'LINK', '</b.js>; rel=preload; as=script']
  t.equal(
    await before(t, [informational(103, link)]),
    'HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nLink: </b.js>; rel=preload; as=script\r\n\r\n',
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

t.test('a link arrives as it was sent, byte for byte', async (t) => {
  const link = '</\xfc>;rel=preload, , no link at all'
  t.equal(
    await before(t, [informational(103, ['link', link])]),
    `HTTP/1.1 103 Early Hints\r\nLink: ${link}\r\n\r\n`,
  )
})

t.test('a client of HTTP/1.0 would take hints for the response, and gets none', async (t) => {
  const heads = [informational(103, ['Link', '</a.css>; rel=preload'])]
  t.equal(await before(t, heads, 'GET / HTTP/1.0\r\n\r\n'), '')
})

t.test('hints that would come before the answer to an earlier request are left out', async (t) => {
  const { connect, started } = await startListening(t, (exchange) => {
    admitted(exchange)
    if (exchange.req.url !== '/second') return
    earlyHints(exchange, informational(103, ['Link', '</a.css>; rel=preload']))
    answerWith(exchange, 'second')
    const [first] = started
    if (first !== undefined) answerWith(first, 'first')
  })
  const client = await connect()
  client.send('GET /first HTTP/1.1\r\nHost: a\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\n\r\n')
  t.equal((await client.response()).body.toString(), 'first')
  t.equal((await client.response()).body.toString(), 'second')
  t.notMatch(client.received().toString(), /103/)
})
