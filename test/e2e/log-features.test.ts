import { once } from 'node:events'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { LineSampling } from '../../src/ops/line-sampling.ts'
import { LinkUses } from '../../src/ops/link-uses.ts'
import { eventually } from '../support/eventually.ts'
import { rawClient } from '../support/raw-client.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar, type TestSidecar } from '../support/sidecar.ts'

const linesOf = ({ log }: TestSidecar, message: string) => log.filter(({ msg }) => msg === message)

/**
 * Sends a request so many times at once, on one connection: even a busy machine serves more than 20 a second.
 */
async function flood(t: Test, { port }: TestSidecar, request: string, times: number) {
  const client = await rawClient(t, port)
  client.send(request.repeat(times))
  for (let count = 0; count < times; count++) {
    await client.response()
  }
}

const bearer = (token: string) => ({ headers: { Authorization: `Bearer ${token}` } })

t.test('a flood of refused requests has 20 lines a second, and one that stands for the others', async (t) => {
  const sidecar = await startSidecar(t, { upstreamUrl: 'http://127.0.0.1:9' })
  await flood(t, sidecar, 'GET /o HTTP/1.1\r\nHost: a\r\n\r\n', 300)
  const represented = () =>
    linesOf(sidecar, 'request').reduce((sum, { sampled }) => sum + Number(sampled ?? 1), 0)
  await eventually(() => represented() === 300, 'lines that stand for 300 requests')
  t.ok(
    linesOf(sidecar, 'request').some(({ sampled }) => Number(sampled) > 1),
    'one stands for several',
  )
  t.ok(linesOf(sidecar, 'request').length < 300)
})

t.test('refused requests of a proven caller are never sampled', async (t) => {
  const sidecar = await startSidecar(t, { upstreamUrl: 'http://127.0.0.1:9' })
  const url = `http://127.0.0.1:${sidecar.port}/o`
  const expired = await sidecar.mint({ now: Date.now() - 7_200_000 })
  await Promise.all(Array.from({ length: 30 }, () => fetch(url, bearer(expired)).then((got) => got.text())))
  await eventually(() => linesOf(sidecar, 'request').length === 30, 'a line each')
  t.match(linesOf(sidecar, 'request')[0], {
    reason: 'expired',
    account: 'acme',
    accessKey: /./,
    tokenId: /./,
  })
})

t.test('failed logins are sampled in the audit log, too', async (t) => {
  const sidecar = await startSidecar(t, {
    upstreamUrl: 'http://127.0.0.1:9',
    settings: { 'limits-login-failures-count': '1000' },
  })
  const body = JSON.stringify({ accountId: 'nobody', accessKey: 'none', secret: 'wrong' })
  const head = `POST /v2/auth/token HTTP/1.1\r\nHost: a\r\nContent-Length: ${body.length}\r\n\r\n`
  await flood(t, sidecar, head + body, 200)
  const failed = () => linesOf(sidecar, 'audit').filter(({ event }) => event === 'login_failed')
  await eventually(
    () => failed().reduce((sum, { sampled }) => sum + Number(sampled ?? 1), 0) === 200,
    'lines that stand for 200 logins',
  )
  t.ok(failed().some(({ sampled }) => Number(sampled) > 1))
})

t.test('a sampled line is written at the end of the process', (t) => {
  const written: unknown[] = []
  const sampling = new LineSampling<string>((line, sampled) => written.push([line, sampled]))
  for (let at = 0; at < 23; at++) {
    sampling.add(() => `line ${at}`)
  }
  t.equal(written.length, 20)
  sampling.flush()
  t.strictSame(written.slice(20), [['line 20', 3]])
  sampling.flush()
  t.equal(written.length, 21)
  t.end()
})

t.test('a connection that sent nothing has no line, one with half a head has one', async (t) => {
  const sidecar = await startSidecar(t, {
    upstreamUrl: 'http://127.0.0.1:9',
    settings: { 'timeouts-headers-seconds': '1' },
  })
  for (const sent of ['', 'GET / HT']) {
    const socket = connect(sidecar.port, '127.0.0.1')
    socket.resume()
    socket.write(sent)
    await once(socket, 'close')
  }
  await eventually(() => linesOf(sidecar, 'request').length > 0, 'a line')
  t.match(linesOf(sidecar, 'request'), [{ status: 408, reason: 'parser' }])
  t.equal(linesOf(sidecar, 'request').length, 1)
})

t.test('a forwarded request has its upstream and its waits, and a line when it is slow', async (t) => {
  const upstream = await recordingUpstream(t)
  const settings = { 'log-access': 'errors', 'log-slow-seconds': '4' }
  const sidecar = await startSidecar(t, { upstreamUrl: upstream.url, settings })
  const url = `http://127.0.0.1:${sidecar.port}/o`
  await (await fetch(url, bearer(sidecar.token))).text()
  let sendHead = () => {}
  upstream.reply((socket) => {
    sendHead = () => socket.write('HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n')
  })
  const slow = fetch(url, bearer(sidecar.token))
  await eventually(() => upstream.requests.length === 2, 'the request at the upstream')
  await sleep(4100)
  sendHead()
  t.equal((await slow).status, 200)
  await eventually(() => linesOf(sidecar, 'request').length > 0, 'the line of the slow request')
  const [line, ...others] = linesOf(sidecar, 'request')
  t.match(line, { status: 200, upstream: '/', queueMs: Number, firstByteMs: Number })
  t.ok(Number(line?.['firstByteMs']) >= 4000)
  t.strictSame(others, [], 'the quick one has none')
})

t.test('the first use of a link by an address has an audit line', async (t) => {
  const upstream = await recordingUpstream(t)
  const settings = { 'links-enabled': 'true', 'forwarded-trust': '127.0.0.1' }
  const sidecar = await startSidecar(t, { upstreamUrl: upstream.url, settings })
  const at = `http://127.0.0.1:${sidecar.port}`
  const made = await fetch(`${at}/v2/auth/links`, {
    method: 'POST',
    body: JSON.stringify({ method: 'GET', target: '/photo.jpg?secret=canary' }),
    headers: { Authorization: `Bearer ${sidecar.token}`, 'Content-Type': 'application/json' },
  })
  const { url, linkId } = JSON.parse(await made.text())
  for (const client of ['192.0.2.1', '192.0.2.1', '192.0.2.2']) {
    const response = await fetch(`${at}${url}`, { headers: { 'X-Forwarded-For': client } })
    t.equal(response.status, 200, await response.text())
  }
  const ofLink = () => linesOf(sidecar, 'audit').filter((line) => line['linkId'] === linkId)
  await eventually(() => ofLink().length >= 3, 'the lines of the link')
  t.match(ofLink(), [
    { event: 'link_created', account: 'acme', method: 'GET', target: '/photo.jpg' },
    { event: 'link_used', account: 'acme', client: '192.0.2.1' },
    { event: 'link_used', account: 'acme', client: '192.0.2.2' },
  ])
  t.equal(ofLink().length, 3)
  t.notMatch(JSON.stringify(sidecar.log), /canary/)
})

t.test('the memory for uses of links is bounded', (t) => {
  const uses = new LinkUses()
  t.ok(uses.isFirst('link', 'first'))
  t.notOk(uses.isFirst('link', 'first'))
  for (let at = 0; at < 10_000; at++) {
    uses.isFirst('link', String(at))
  }
  t.ok(uses.isFirst('link', 'first'), 'the oldest pair is forgotten')
  t.end()
})
