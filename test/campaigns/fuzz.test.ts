/** The judge of the fuzz run, with a small proxy of one defect each between its clients and its upstream. */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import { test } from 'tap'
import { startCampaign } from './campaign.ts'
import { type Head, readBody, readHead, valuesOf } from './http-text.ts'
import type { Script, SentRequest } from './requests.ts'
import type { CampaignTrust, Identity } from './sidecar-process.ts'

const identityOf = (name: string): Identity => ({
  accountId: name,
  accessKey: name,
  tokenId: name,
  expiresAt: 1,
})
const first = identityOf('first')
const good = new Map([
  ['token-1', first],
  ['token-2', identityOf('second')],
])
const trust: CampaignTrust = { good, bad: ['expired'], logins: [], flags: [], remove() {} }

/** The bytes that a proxy sends to the upstream for a request; none for a refusal. */
type Forward = (head: Head, content: string, bytes: string) => string

const tokenOf = ({ fields }: Head) => valuesOf(fields, 'authorization').join().replace('Bearer ', '')

function forwarded(head: Head, content: string, { accountId, expiresAt }: Identity, keep = /^$/): string {
  const dropped = /^(?:authorization|content-length|transfer-encoding|connection|x-authenticated-.*)$/i
  const kept = head.fields.filter(({ name }) => keep.test(name) || !dropped.test(name))
  const identity = ['Account-Id', 'Access-Key', 'Token-Id'].map(
    (name) => `X-Authenticated-${name}: ${accountId}`,
  )
  const own = [...identity, `X-Authenticated-Token-Expires: ${expiresAt}`, 'X-Request-Id: 1']
  const lines = [
    ...kept.map(({ name, value }) => `${name}: ${value}`),
    ...own,
    `Content-Length: ${content.length}`,
  ]
  return `${[head.start, ...lines].join('\r\n')}\r\n\r\n${content}`
}

/** A correct proxy, but for the lines that it keeps. */
const keeping =
  (keep?: RegExp): Forward =>
  (head, content) => {
    const identity = good.get(tokenOf(head))
    return identity === undefined ? '' : forwarded(head, content, identity, keep)
  }
const correct = keeping()

const DEFECTS: Readonly<Record<string, Forward>> = {
  'forwards a chunked body as a second request': (head, content) =>
    valuesOf(head.fields, 'transfer-encoding').length > 0
      ? correct(head, '', '') + content
      : correct(head, content, ''),
  'forwards the bytes as they are': (_head, _content, bytes) => bytes,
  'forwards a request twice': (head, content) => correct(head, content, '').repeat(2),
  'forwards a bad token': (head, content) => forwarded(head, content, good.get(tokenOf(head)) ?? first),
  'gives every request the same identity': (head, content) => forwarded(head, content, first),
  'keeps an identity of the client': keeping(/^x-authenticated-/i),
  'keeps the token': keeping(/^authorization$/i),
  'changes a body': (head, content) => correct(head, content.toUpperCase(), ''),
  'changes a target': (head, content) =>
    correct({ ...head, start: head.start.replace('%2e', '.') }, content, ''),
}

const BODY = '{"code":"InvalidToken","message":"Token is not valid."}'
const REFUSAL_HEAD =
  'HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n'
const REFUSAL = `${REFUSAL_HEAD}Content-Length: ${BODY.length}\r\n\r\n${BODY}`

/** Serves one request after the other, each on an upstream connection of its own. */
async function startProxy(upstreamPort: number, forward: Forward) {
  const server = createServer(async (socket) => {
    let bytes = ''
    for await (const chunk of socket.setEncoding('latin1')) {
      bytes += chunk
      for (;;) {
        const head = readHead(bytes, 0)
        const body = typeof head === 'object' ? readBody(bytes, head) : undefined
        if (typeof head !== 'object' || typeof body !== 'object') break
        const sent = forward(head, body.content, bytes.slice(0, body.end))
        bytes = bytes.slice(body.end)
        socket.write(sent === '' ? REFUSAL : await answerTo(upstreamPort, sent), 'latin1')
        if (valuesOf(head.fields, 'connection').includes('close')) socket.end()
      }
    }
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return { port: (server.address() as AddressInfo).port, close: () => server.close() }
}

/** Resolves with the first response, or with a refusal when the upstream closes. */
async function answerTo(port: number, bytes: string): Promise<string> {
  const socket = connect(port, '127.0.0.1').setEncoding('latin1')
  socket.write(bytes, 'latin1')
  const [text] = await Promise.race([once(socket, 'data'), once(socket, 'close').then(() => [REFUSAL])])
  setTimeout(() => socket.destroy(), 50)
  return text
}

function request(
  index: number,
  method: string,
  token: string,
  content: string,
  ...more: string[]
): SentRequest {
  const name = `z1abcd.${index}z`
  const target = `/b/${name}/%2e`
  const lines = ['Host: s', `Authorization: Bearer ${token}`, 'Accept: x', ...more]
  const chunked = `${content.length.toString(16)}\r\n${content}\r\n0\r\n\r\n`
  const body = more.includes('Transfer-Encoding: chunked') ? chunked : content
  const pieces = [`HTTP/1.1 200 OK\r\nX-Fz: ${name}\r\nContent-Length: 2\r\n\r\nok`]
  return {
    ...{ name, method, target, lines, content, identity: good.get(token) },
    bytes: `${method} ${target} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${body}`,
    ...{ fate: good.has(token) ? 'plain' : 'refused', shifts: false },
    reply: { pieces, ending: 'keep', good: true, content: 'ok', early: false },
  }
}

const HIDDEN = 'DELETE /trap-1 HTTP/1.1\r\nHost: s\r\nContent-Length: 0\r\n\r\n'
const requests = [
  request(0, 'GET', 'token-1', '', 'X-Authenticated-Account-Id: evil'),
  request(1, 'PUT', 'token-2', HIDDEN, 'Transfer-Encoding: chunked'),
  request(2, 'GET', 'expired', ''),
  request(3, 'POST', 'token-1', 'bytes', 'Content-Length: 5', 'Connection: close'),
]
const script: Script = {
  requests,
  bytes: requests.map(({ bytes }) => bytes).join(''),
  cuts: [],
  leave: 'wait',
}

async function violationsOf(forward: Forward): Promise<readonly string[]> {
  const campaign = await startCampaign(trust)
  const proxy = await startProxy(campaign.upstreamPort, forward)
  await campaign.play(script, proxy.port)
  proxy.close()
  campaign.close()
  return campaign.violations
}

test('the judge of the fuzz run', async (t) => {
  t.strictSame(await violationsOf(correct), [], 'accepts a correct proxy')
  for (const [defect, forward] of Object.entries(DEFECTS))
    t.not((await violationsOf(forward)).length, 0, `notices a proxy that ${defect}`)
})
