/** The caller of a login by HTTP Basic, in every place where a token would prove one. */
import { writeFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import { join } from 'node:path'
import { decodeJwt } from 'jose'
import t from 'tap'
import { fileEditors } from '../../src/credentials/editor.ts'
import { generateSecret, hashSecret } from '../../src/credentials/secret-hash.ts'
import { basicLine, lineOf, startBasicSetup } from '../support/basic.ts'
import { eventually } from '../support/eventually.ts'
import { isOwnResponse } from '../support/own-response.ts'
import { rawRequest } from '../support/raw-client.ts'
import { OK } from '../support/recording-upstream.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { HANDSHAKE } from '../support/websocket.ts'

const DENIED = { status: 403, code: 'AccessDenied', error: 'http_request_denied' }
const SWITCHED = [
  'HTTP/1.1 101 Switching Protocols',
  'Upgrade: websocket',
  'Connection: Upgrade',
  'Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=',
  '\r\n',
].join('\r\n')

t.test('the scope of the credential restricts a login, and a narrower one within a second', async (t) => {
  const { ask, request, get, identity, line, sidecar, checks } = await startBasicSetup(t, {
    credentials: [{ scope: 'storage.read:/object storage.read:/more' }],
    settings: { 'scopes-hosts': 'storage.example' },
  })
  t.match(await identity(line), { status: 200, scope: 'storage.read:/object storage.read:/more' })
  isOwnResponse(t, await ask(request('PUT /object', `${line}Content-Length: 0\r\n`)), {
    ...DENIED,
    details: 'scope',
  })
  const elsewhere = request('GET /object', line).replace('storage.example', 'other.example')
  isOwnResponse(t, await ask(elsewhere), { ...DENIED, details: 'host' })
  t.equal(await checks('scope'), 1)
  const { credentials } = fileEditors(sidecar.credentialsFile)
  await credentials.update({ accountId: 'acme', accessKey: 'AK0' }, { scope: 'storage.read:/more' })
  await eventually(async () => (await get(line)).status === 403, 'the narrower scope')
  t.equal((await get(line, '/more')).status, 200)
})

t.test('a revocation with a time ends what is remembered, and the same request logs in anew', async (t) => {
  const { get, identity, line, revoke, audit, sidecar } = await startBasicSetup(t)
  const first = await identity(line)
  const count = () => sidecar.metric('auth_sidecar_revocations')
  const revocation = async (list: string, size: number) => {
    revoke(list)
    await eventually(async () => (await count()) === size, 'the revocations')
  }
  await revocation(`[{ accountId: acme, issuedBefore: '${new Date().toISOString()}' }]`, 1)
  const second = await identity(line)
  t.equal(second.status, 200)
  t.not(second.tokenId, first.tokenId)
  t.same(await identity(line), second, 'it is remembered')
  await revocation(`[{ jti: ${second.tokenId} }, { accountId: other }]`, 2)
  const third = await identity(line)
  t.equal(third.status, 200)
  t.not(third.tokenId, second.tokenId, 'a login is revoked by its id, too')
  t.equal(audit().length, 3)
  await revocation('[{ accessKey: AK0 }, { accountId: a }, { accountId: b }]', 3)
  t.equal((await get(line)).status, 401, 'without a time, no login is accepted')
  t.match(audit().at(-1), { event: 'login_failed', reason: 'rejected' })
  await revocation('[]', 0)
  t.equal((await get(line)).status, 200)
})

t.test('a former secret logs in until its end, and what is remembered ends with it', async (t) => {
  const clock = { ms: Date.now() }
  const { get, identity, line, sidecar, audit } = await startBasicSetup(t, { now: () => clock.ms })
  t.equal((await get(line)).status, 200)
  const secret = generateSecret()
  const end = new Date(clock.ms + 120_000).toISOString()
  const rotation = { secretHash: await hashSecret(secret, 'sha256'), previousSecretExpiresAt: end }
  const { credentials } = fileEditors(sidecar.credentialsFile)
  await credentials.rotate({ accountId: 'acme', accessKey: 'AK0' }, rotation)
  const present = basicLine('AK0', secret)
  await eventually(async () => (await get(present)).status === 200, 'the new secret')
  t.match(await identity(line), { status: 200, expires: Math.ceil((clock.ms + 120_000) / 1000) })
  t.match(audit().at(-1), { event: 'login', method: 'basic', secretUsed: 'previous' })
  t.equal(await sidecar.metric('auth_sidecar_logins_with_previous_secret_total'), 1)
  clock.ms += 119_999
  t.equal((await get(line)).status, 200)
  clock.ms += 1
  t.equal((await get(line)).status, 401)
  t.equal((await get(present)).status, 200)
})

t.test('a tunnel outlives what is remembered, and ends with the credential', async (t) => {
  const { send, line, request, upstream, sidecar, audit, revoke, get } = await startBasicSetup(t, {
    credentials: [{}, { accessKey: 'disabled' }, { accountId: 'other', accessKey: 'revoked' }],
    settings: { 'upgrade-enabled': 'true', 'basic-cache-seconds': '1', 'limits-login-failures-count': '1' },
  })
  const [, disabled = '', revoked = ''] = sidecar.logins.map(lineOf)
  upstream.reply(SWITCHED)
  const open = async (lines: string) => {
    const client = await send(request('GET /socket', `${lines}${HANDSHAKE.join('\r\n')}\r\n`))
    await client.until('Sec-WebSocket-Accept')
    return client
  }
  const kept = await open(line)
  const ends = [await open(disabled), await open(revoked)]
  upstream.reply(OK)
  t.equal((await get(basicLine('AK0', 'wrong'))).status, 401)
  await eventually(async () => (await get(line)).status === 503, 'the login to be forgotten, and throttled')
  const { credentials } = fileEditors(sidecar.credentialsFile)
  await credentials.update({ accountId: 'acme', accessKey: 'disabled' }, { disabled: true })
  await ends[0]?.closed()
  revoke(`[{ accountId: other, issuedBefore: '${new Date().toISOString()}' }]`)
  await ends[1]?.closed()
  const reasons = () => sidecar.log.filter(({ status }) => status === 101).map(({ reason }) => reason)
  await eventually(() => reasons().join() === 'credentials,credentials', 'the access lines')
  kept.send('still open')
  await upstream.until(() => upstream.bytes[0]?.includes('still open') ?? false, 'the first tunnel')
  t.equal(audit().filter(({ event }) => event === 'login').length, 3, 'no tunnel has logged in again')
})

t.test('a request that waits is judged again without another login', async (t) => {
  const { send, line, request, upstream, sidecar, audit } = await startBasicSetup(t, {
    credentials: [{}, { accessKey: 'disabled' }],
    settings: { 'limits-upstream-connections': '1', 'limits-account-share': '1' },
  })
  const [, disabled = ''] = sidecar.logins.map(lineOf)
  const hold: Socket[] = []
  upstream.reply((socket) => {
    hold.push(socket)
  })
  await send(request('GET /holds', line))
  await eventually(() => hold.length === 1, 'the first request')
  const refused = await send(request('GET /refused', disabled))
  const passes = await send(request('GET /passes', line))
  const queued = () => sidecar.metric('auth_sidecar_upstream_queue{upstream="/"}')
  await eventually(async () => (await queued()) === 2, 'both to wait')
  const { credentials } = fileEditors(sidecar.credentialsFile)
  await credentials.update({ accountId: 'acme', accessKey: 'disabled' }, { disabled: true })
  t.match(await refused.response(), { status: 401, headers: { 'www-authenticate': /^Basic / } })
  hold[0]?.write(OK)
  await eventually(() => hold.length === 2, 'the last request')
  hold[1]?.write(OK)
  t.equal((await passes.response()).status, 200)
  t.same(
    audit().map(({ event }) => event),
    ['login', 'login'],
  )
})

t.test('report mode forwards what is refused as it came', async (t) => {
  const { identity, get, line, login, access, audit, checks, upstream } = await startBasicSetup(t, {
    settings: { enforcement: 'report', 'limits-login-failures-count': '2' },
  })
  t.match(await identity(line), { status: 200, account: 'acme', authorization: undefined })
  const wrong = basicLine(login.accessKey, 'wrong')
  for (const [lines, wouldRefuse] of [
    [wrong, 'credentials'],
    ['Authorization: Basic x\r\n', 'credentials'],
    ['Authorization: Digest a\r\n', 'credentials'],
    ['', 'missing'],
    [basicLine('acme~none', 'x'), 'credentials'],
    [wrong, 'unavailable'],
  ] as const) {
    const received = await identity(lines)
    t.match(received, { status: 200, account: undefined, tokenId: undefined })
    const [, authorization] = /^Authorization: (.*)\r\n$/.exec(lines) ?? []
    t.equal(received.authorization, authorization)
    t.match(access().at(-1), { status: 200, wouldRefuse, account: undefined })
  }
  t.match(await identity(line), { status: 200, account: 'acme' }, 'a remembered login goes on')
  t.equal(await checks('credentials'), 4)
  t.match(
    audit().map(({ reason, outcome }) => reason ?? outcome),
    ['ok', 'rejected', 'rejected', 'throttled'],
  )
  upstream.requests.splice(0)
  t.equal((await get(line, '/v2/auth/token')).status, 400)
  t.equal(upstream.requests.length, 0)
})

t.test(
  'forward auth approves a login with its identity, and refuses others with the challenge',
  async (t) => {
    const { ask, request, line, login, upstream } = await startBasicSetup(t, {
      settings: { 'forward-auth-path': '/_auth', 'forward-auth-max-age-seconds': '60' },
    })
    const approved = await ask(request('GET /_auth', line))
    t.match(approved, {
      status: 200,
      headers: {
        'x-authenticated-account-id': 'acme',
        'x-authenticated-access-key': login.accessKey,
        'cache-control': 'private, max-age=60',
        vary: 'Authorization',
      },
    })
    t.notMatch(approved.rawHeaders.join(), login.secret)
    for (const [lines, code] of [
      ['', 'InvalidToken'],
      [basicLine(login.accessKey, 'wrong'), 'Authentication failed'],
    ] as const) {
      const refused = await ask(request('GET /_auth', lines))
      isOwnResponse(t, refused, { status: 401, code })
      t.match(refused.headers, {
        'www-authenticate': 'Basic realm="storage", charset="UTF-8"',
        vary: 'Authorization',
      })
    }
    t.equal(upstream.requests.length, 0)
  },
)

t.test('an assertion is renewed without another login', async (t) => {
  const clock = { ms: Date.now() }
  const { get, line, upstream, audit } = await startBasicSetup(t, {
    now: () => clock.ms,
    settings: { 'identity-assertion-enabled': 'true', 'identity-assertion-lifetime-seconds': '60' },
  })
  const assertion = async () => {
    upstream.requests.splice(0)
    t.equal((await get(line)).status, 200)
    const headers = upstream.requests[0]?.headers ?? {}
    return { id: headers['x-authenticated-token-id'], jws: String(headers['x-authenticated-assertion']) }
  }
  const first = await assertion()
  t.match(decodeJwt(first.jws), { sub: 'acme', client_id: 'AK0', jti: first.id })
  t.same(await assertion(), first)
  clock.ms += 31_000
  const second = await assertion()
  t.not(second.jws, first.jws)
  t.equal(second.id, first.id, 'the same login')
  t.equal(audit().length, 1)
})

t.test('fair use limits the account of a login, whatever proves it', async (t) => {
  const file = join(await temporaryDirectory(t), 'fair-use.yaml')
  writeFileSync(file, 'default: { requestsPerSecond: 0.001, burst: 3 }')
  const { ask, head, get, line } = await startBasicSetup(t, { settings: { 'fair-use-file': file } })
  for (const response of [await get(line), await get(line), await ask(head('GET /a'))]) {
    t.equal(response.status, 200)
  }
  isOwnResponse(t, await get(line), { status: 429, code: 'TooManyRequests', details: 'fair_use' })
  isOwnResponse(t, await ask(head('GET /a')), { status: 429, code: 'TooManyRequests' })
})

t.test('the busiest accounts have the requests of logins, and their refusals', async (t) => {
  const { get, line, sidecar } = await startBasicSetup(t, {
    credentials: [{ scope: 'storage.read:/object' }],
  })
  t.equal((await get(line)).status, 200)
  t.equal((await get(line, '/other')).status, 403)
  const busiest = await rawRequest(t, sidecar.adminPort, 'GET /status.json HTTP/1.1\r\nHost: a\r\n\r\n')
  t.match(JSON.parse(busiest.body.toString()), {
    busiest: { requests: [{ account: 'acme', count: 2 }], refusals: [{ account: 'acme', count: 1 }] },
  })
})

t.test('a login is checked once for clients that wait for it, also if the first one leaves', async (t) => {
  const { send, get, request, line, audit, access } = await startBasicSetup(t, {
    credentials: [{ scheme: 'scrypt' }],
  })
  const leaving = await send(request('GET /leaves', line))
  const staying = get(line)
  leaving.socket.destroy()
  t.equal((await staying).status, 200)
  t.equal(audit().filter(({ event }) => event === 'login').length, 1)
  await eventually(() => access().some(({ path }) => path === '/leaves'), 'the line of the client that left')
})

t.test('a listener without TLS is a warning at the start', async (t) => {
  const { sidecar } = await startBasicSetup(t)
  const warnings = sidecar.log.filter(({ level }) => level === 40).map(({ msg }) => String(msg))
  t.match(warnings.join('\n'), /basic\.enabled: clients send their secret with each request/)
})
