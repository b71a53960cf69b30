/** The feed over sockets: who may follow, and what a follower is answered. */
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { makeCertificate } from '../support/certificates.ts'
import { eventually, succeeds } from '../support/eventually.ts'
import { askFeed, testFollower } from '../support/feed-client.ts'
import { makeKey } from '../support/keys.ts'
import { listen } from '../support/listen.ts'
import { databaseSetup, requirePostgres } from '../support/postgres.ts'
import { serve } from '../support/program.ts'
import { rawClient } from '../support/raw-client.ts'
import { startSidecar } from '../support/sidecar.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { type MintOptions, mintToken } from '../support/tokens.ts'

const TOKEN = 'a-token-of-all-followers-0123456789'
const HASHES = /\$(?:sha256|scrypt)\$/

/** A hub with its state in files, which the test may change. */
async function fileHub(t: Test, settings: Readonly<Record<string, string>> = {}) {
  const directory = t.testdir({ token: `${TOKEN}\n`, 'revocations.yaml': 'revocations: []\n' })
  const tokenFile = join(directory, 'token')
  const revocationsFile = join(directory, 'revocations.yaml')
  const sidecar = await startSidecar(t, {
    upstreamUrl: 'http://127.0.0.1:9',
    credentials: [
      { accountId: 'acme' },
      { accountId: 'acme', scope: 'storage.read:/a' },
      { accountId: 'gone', disabled: true },
      { accountId: 'past', expiresAt: '2020-01-01T00:00:00Z' },
    ],
    settings: {
      'feed-enabled': 'true',
      'feed-token-file': tokenFile,
      'revocations-file': revocationsFile,
      ...settings,
    },
  })
  const ask = (options: Omit<Parameters<typeof askFeed>[1], 'token'> & { readonly token?: string } = {}) =>
    askFeed(sidecar.adminPort, { token: TOKEN, ...options })
  const version = async () => (await ask()).document().version
  const revoke = (...revocations: readonly object[]) =>
    writeFileSync(revocationsFile, JSON.stringify({ revocations }))
  const followers = () => sidecar.metric('auth_sidecar_feed_followers')
  const sent = (kind: string) => sidecar.metric(`auth_sidecar_feed_responses_total{kind="${kind}"}`)
  return { sidecar, tokenFile, ask, version, revoke, followers, sent }
}

t.test('a follower without its state gets all of it, and no secret', async (t) => {
  const { sidecar, ask, revoke } = await fileHub(t)
  const [first, restricted] = sidecar.logins
  const answer = await ask()
  t.match(answer, {
    status: 200,
    headers: { 'content-type': 'application/json', 'cache-control': 'no-store' },
  })
  const { version } = answer.document()
  t.match(version, /^[\w.-]+$/)
  t.equal(answer.headers.etag, `"${version}"`)
  t.equal(Number(answer.headers['content-length']), answer.bytes.length)
  t.same(answer.document(), {
    format: 1,
    version,
    from: null,
    credentials: {
      set: [
        { accountId: 'acme', accessKey: first?.accessKey },
        { accountId: 'acme', accessKey: restricted?.accessKey, scope: 'storage.read:/a' },
      ],
      removed: [],
    },
    revocations: { set: [], removed: [] },
  })
  t.match(readFileSync(sidecar.credentialsFile, 'utf8'), HASHES)
  t.notMatch(answer.text, HASHES)

  revoke(
    { jti: 'one', issuer: 'a' },
    { accountId: 'b', issuedBefore: '2027-01-01T00:00:00Z' },
    { accessKey: 'c' },
  )
  await eventually(async () => (await ask()).document().version !== version, 'the new file')
  t.same((await ask({ since: 'a version of another history' })).document().revocations.set, [
    { jti: 'one', issuer: 'a' },
    { accountId: 'b', issuedBefore: '2027-01-01T00:00:00.000Z' },
    { accessKey: 'c' },
  ])
})

t.test('a follower gets what has changed since its version', async (t) => {
  const { ask, version, revoke } = await fileHub(t)
  const since = await version()
  revoke({ jti: 'one' }, { accountId: 'b' })
  await eventually(async () => (await version()) !== since, 'the new file')
  const changes = (await ask({ since })).document()
  t.match(changes, { from: since, credentials: { set: [], removed: [] } })
  t.same(changes.revocations, { set: [{ jti: 'one' }, { accountId: 'b' }], removed: [] })

  revoke({ accountId: 'b' })
  await eventually(async () => (await version()) !== changes.version, 'the newer file')
  t.same((await ask({ since: changes.version })).document().revocations, {
    set: [],
    removed: [{ jti: 'one' }],
  })
  const both = (await ask({ since })).document()
  t.same(both.revocations, { set: [{ accountId: 'b' }], removed: [{ jti: 'one' }] })

  revoke()
  await eventually(async () => (await version()) !== both.version, 'the first state')
  t.same((await ask({ since: both.version })).document().revocations.removed, [{ accountId: 'b' }])
})

t.test('nothing new is a 304, at once or after the wait that the follower asks for', async (t) => {
  const { ask, version } = await fileHub(t)
  const since = await version()
  const etag = `"${since}"`
  t.match(await ask({ since }), { status: 304, headers: { etag }, text: '' })
  t.equal((await ask({ headers: { 'if-none-match': etag } })).status, 304)
  t.equal((await ask({ headers: { 'if-none-match': `"other", W/${etag}` } })).status, 304)
  t.equal((await ask({ headers: { 'if-none-match': '"other"' } })).document().from, null)
  for (const prefer of ['wait=1', 'respond-async, wait="1"; x=y', 'Wait = 1']) {
    t.equal((await ask({ since, headers: { prefer } })).status, 304, prefer)
  }
  for (const prefer of ['wait', 'wait=', 'wait=-1', 'wait=1.5', 'wait=many', 'await=60']) {
    t.equal((await ask({ since, headers: { prefer } })).status, 304, `${prefer} is no wish to wait`)
  }
})

t.test('a follower that waits hears of a change, with many others', async (t) => {
  const { ask, version, revoke, followers, sent } = await fileHub(t)
  const since = await version()
  const codings = ['gzip', 'identity']
  const waiting = Array.from({ length: 40 }, (_, at) =>
    ask({ since, headers: { prefer: 'wait=60', 'accept-encoding': codings[at % 2] ?? '' } }),
  )
  await eventually(async () => (await followers()) === 40, 'the followers')
  revoke({ jti: 'one' })
  const answers = await Promise.all(waiting)
  t.same([...new Set(answers.map(({ status }) => status))], [200])
  t.equal(new Set(answers.map(({ text }) => text)).size, 1)
  t.match(answers[0]?.document(), { from: since, revocations: { set: [{ jti: 'one' }] } })
  t.same([...new Set(answers.map(({ headers }) => headers['content-encoding']))], ['gzip', undefined])
  t.equal(await sent('changes'), 40)
  await eventually(async () => (await followers()) === 0, 'the followers to be gone')
})

t.test('gzip is used where it is accepted', async (t) => {
  const { ask } = await fileHub(t)
  const plain = await ask()
  t.equal(plain.headers['content-encoding'], undefined)
  const compressed = await ask({ headers: { 'accept-encoding': 'br, gzip' } })
  t.equal(compressed.headers['content-encoding'], 'gzip')
  t.equal(compressed.text, plain.text)
  t.match(String(compressed.headers.vary), 'Accept-Encoding')
  t.equal((await ask({ headers: { 'accept-encoding': 'gzip;q=0' } })).headers['content-encoding'], undefined)
})

t.test('only a follower with the token is answered', async (t) => {
  const { sidecar, ask, tokenFile, sent } = await fileHub(t)
  const own = sidecar.token
  const wrong = [undefined, '', `${TOKEN}x`, TOKEN.slice(1), TOKEN.toUpperCase(), own]
  for (const token of wrong) {
    const refused = await askFeed(sidecar.adminPort, { token })
    t.match(refused, { status: 401, headers: { 'www-authenticate': 'Bearer realm="feed"' } })
    t.notMatch(refused.text, 'acme')
    t.match(JSON.parse(refused.text), { code: 'InvalidToken' })
  }
  for (const authorization of [`Basic ${TOKEN}`, TOKEN, `Bearer  ${TOKEN}, Bearer ${TOKEN}`]) {
    t.equal((await askFeed(sidecar.adminPort, { headers: { authorization } })).status, 401, authorization)
  }
  const client = await rawClient(t, sidecar.adminPort)
  client.send(
    `GET /feed HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${TOKEN}\r\nAuthorization: Bearer ${TOKEN}\r\n\r\n`,
  )
  t.equal((await client.response()).status, 401, 'twice')
  t.equal(await sent('unauthorized'), wrong.length + 4)
  t.equal((await ask({ target: `/feed?token=${TOKEN}`, token: 'x' })).status, 401)

  writeFileSync(tokenFile, 'a-new-token')
  await eventually(async () => (await ask()).status === 401, 'the former token to be refused')
  t.equal((await ask({ token: 'a-new-token' })).status, 200)
  writeFileSync(tokenFile, '\n')
  await eventually(
    () => sidecar.log.some(({ msg }) => String(msg).startsWith('new version rejected')),
    'the report',
  )
  t.equal((await ask({ token: 'a-new-token' })).status, 200, 'an empty file is a bad one')
  t.equal((await ask({ token: '' })).status, 401)
})

t.test('a token that is replaced while its follower waits gets no state', async (t) => {
  const { ask, version, tokenFile, revoke, followers } = await fileHub(t)
  const since = await version()
  const waiting = ask({ since, headers: { prefer: 'wait=60' } })
  await eventually(async () => (await followers()) === 1, 'the follower')
  writeFileSync(tokenFile, 'a-new-token')
  await eventually(async () => (await ask()).status === 401, 'the former token to be refused')
  revoke({ jti: 'one' })
  t.equal((await waiting).status, 401)
})

t.test('other methods, queries and paths', async (t) => {
  const { ask, version } = await fileHub(t)
  const since = await version()
  const head = await ask({ method: 'HEAD' })
  const get = await ask()
  t.match(head, { status: 200, text: '', headers: { etag: get.headers.etag } })
  t.equal(head.headers['content-length'], get.headers['content-length'])
  t.equal((await ask({ method: 'HEAD', since })).status, 304)
  for (const method of ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS']) {
    t.match(await ask({ method }), { status: 405, headers: { allow: 'GET, HEAD' } }, method)
  }
  for (const target of ['/feed?since=%', '/feed?since=%ff', '/feed?since=a&since=b']) {
    const refused = await ask({ target })
    t.equal(refused.status, 400, target)
    t.match(JSON.parse(refused.text), { code: 'InvalidArgument', message: /since/ })
  }
  for (const target of ['/feed?', '/feed?since=', '/feed?other=1&since=unknown', '/feed?sinc=x']) {
    t.equal((await ask({ target })).document().from, null, target)
  }
  t.equal((await ask({ target: `/feed?x=%&since=${since}` })).status, 304, 'other parameters are ignored')
  for (const target of ['/feed/', '/Feed', '/feedx']) {
    t.equal((await ask({ target })).status, 404, target)
  }
})

t.test('above the maximum of followers, others are refused', async (t) => {
  const { ask, version, followers, sent } = await fileHub(t, { 'feed-max-followers': '2' })
  const since = await version()
  const waiting = [1, 2].map(() => ask({ since, headers: { prefer: 'wait=1' } }))
  await eventually(async () => (await followers()) === 2, 'the followers')
  const refused = await ask()
  t.match(refused, { status: 429, headers: { 'retry-after': '5' } })
  t.match(JSON.parse(refused.text), { code: 'TooManyRequests' })
  t.equal(await sent('refused'), 1)
  t.same(
    (await Promise.all(waiting)).map(({ status }) => status),
    [304, 304],
  )
  await eventually(async () => (await followers()) === 0, 'the followers to be gone')
  t.equal((await ask()).status, 200)
})

t.test('a follower that leaves costs nothing more', async (t) => {
  const { sidecar, version, followers } = await fileHub(t)
  const client = await rawClient(t, sidecar.adminPort)
  const since = await version()
  client.send(
    `GET /feed?since=${since} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${TOKEN}\r\nPrefer: wait=60\r\n\r\n`,
  )
  await eventually(async () => (await followers()) === 1, 'the follower')
  client.socket.destroy()
  await eventually(async () => (await followers()) === 0, 'the follower to be gone')
})

t.test('at the end of a hub its followers are sent to another one', async (t) => {
  const { sidecar, ask, version, followers } = await fileHub(t, { 'shutdown-deadline-seconds': '1' })
  const since = await version()
  const waiting = Array.from({ length: 20 }, () => ask({ since, headers: { prefer: 'wait=60' } }))
  await eventually(async () => (await followers()) === 20, 'the followers')
  await sidecar.stop()
  const answers = await Promise.all(waiting)
  t.same([...new Set(answers.map(({ status }) => status))], [304])
  t.same([...new Set(answers.map(({ headers }) => headers.connection))], ['close'])
})

t.test('a follower that waits over TLS outlives a new certificate and a new CA', async (t) => {
  const before = makeCertificate({ commonName: 'hub', names: ['127.0.0.1'] })
  const after = makeCertificate({ commonName: 'hub', names: ['127.0.0.1'] })
  const directory = await temporaryDirectory(t)
  const certFile = join(directory, 'tls.crt')
  const keyFile = join(directory, 'tls.key')
  writeFileSync(certFile, before.cert)
  writeFileSync(keyFile, before.key)
  const { ask, revoke } = await fileHub(t, { 'admin-tls-cert-file': certFile, 'admin-tls-key-file': keyFile })
  const since = (await ask({ ca: before.cert })).document().version
  const waiting = ask({ ca: before.cert, since, headers: { prefer: 'wait=60' } })
  writeFileSync(certFile, after.cert)
  writeFileSync(keyFile, after.key)
  await eventually(() => succeeds(ask({ ca: after.cert })), 'the new certificate')
  t.notOk(await succeeds(ask({ ca: before.cert })))
  revoke({ jti: 'one' })
  t.match((await waiting).document().revocations.set, [{ jti: 'one' }])
})

t.test('the status page says how many follow', async (t) => {
  const { sidecar, ask } = await fileHub(t)
  await ask()
  const status = await fetch(`http://127.0.0.1:${sidecar.adminPort}/status.json`)
  const { features } = Object(await status.json())
  t.match(features, [{ name: 'Feed', text: /^0 followers; \d+ whole states and 0 changes sent/ }])
})

const SUBJECT = 'system:serviceaccount:storage:follower'
const ISSUER = 'https://kubernetes.default.svc'

/** The key of a cluster, and the settings of a hub that trusts the tokens of its service accounts. */
async function trustedCluster(t: Test) {
  const key = await makeKey('RS256', 'cluster')
  const issuer = createServer((_req, res) => res.end(JSON.stringify({ keys: [key.publicJwk] })))
  const jwksUrl = `http://127.0.0.1:${await listen(t, issuer)}/keys`
  const entry = { issuer: ISSUER, jwksUrl, audience: 'storage-api', accounts: { other: 'acme' } }
  const settings = {
    'feed-token-file': '',
    'feed-subjects': JSON.stringify([SUBJECT]),
    'trusted-issuers': JSON.stringify([entry]),
  }
  return { key, settings }
}

t.test('a token of a trusted issuer follows, if its access key is listed', async (t) => {
  const { key, settings } = await trustedCluster(t)
  const { sidecar, ask, revoke } = await fileHub(t, settings)
  const mint = (claims: object = {}, rest: Partial<MintOptions> = {}) =>
    mintToken({
      key,
      ...rest,
      header: { typ: 'JWT' },
      claims: { iss: ISSUER, sub: SUBJECT, client_id: undefined, jti: 'of-a-pod', ...claims },
    })
  const token = await mint()
  const statusOf = async (token: string) => (await ask({ token })).status
  await eventually(async () => (await statusOf(token)) === 200, 'the key set')
  t.equal(await statusOf(TOKEN), 401)
  t.equal(await statusOf(sidecar.token), 401, 'a token of an account')
  t.equal(await statusOf(await mint({ sub: 'system:serviceaccount:storage:other' })), 401)
  t.equal(await statusOf(await mint({ sub: 'other' })), 401, 'an access key that may call the service')
  t.equal(await statusOf(await mint({ aud: 'https://another' })), 401)
  const past = Math.floor(Date.now() / 1000) - 3600
  t.equal(await statusOf(await mint({ iat: past - 60, exp: past })), 401)
  const forged = { ...(await makeKey('RS256', 'another')), kid: key.kid }
  t.equal(await statusOf(await mint({}, { key: forged })), 401)

  revoke({ accessKey: SUBJECT })
  await eventually(async () => (await statusOf(token)) === 401, 'the revocation of the followers')
})

const server = await requirePostgres(t)

const feedFlags = (t: Test) => ({
  'feed-enabled': 'true',
  'feed-token-file': join(t.testdir({ token: TOKEN }), 'token'),
})

/** Two hubs on one database. */
async function databaseHubs(t: Test, flags: Readonly<Record<string, string>> = {}) {
  const names = Array.from({ length: 3 }, (_, at) => ({ accountId: 'acme', accessKey: `AK${at}` }))
  const setup = await databaseSetup(t, server.createDatabase, names, 'a chosen secret')
  const settings = {
    ...setup.flags,
    ...feedFlags(t),
    'shutdown-lame-duck-seconds': '0',
    ...flags,
  }
  const hub = () => serve(t, settings)
  const disable = (key: number) =>
    setup.database.sql('UPDATE storage_auth.credentials SET disabled = true WHERE access_key = $1', [
      `AK${key}`,
    ])
  return { ...setup, hub, disable }
}

const keyed = (...keys: readonly string[]) => keys.map((key) => `acme/${key}`)

t.test('any hub of a database goes on where another one stopped', async (t) => {
  const { database, hub, disable } = await databaseHubs(t)
  const [first, second] = await Promise.all([hub(), hub()])
  const follower = testFollower(first.adminPort, TOKEN)
  await follower.ask()
  t.same(follower.entries().credentials, keyed('AK0', 'AK1', 'AK2'))
  t.equal((await follower.ask(second.adminPort)).status, 304, 'the same version')

  const waiting = [first, second].map(({ adminPort }) =>
    askFeed(adminPort, { token: TOKEN, since: follower.version(), headers: { prefer: 'wait=60' } }),
  )
  await disable(0)
  const [one, other] = await Promise.all(waiting)
  t.equal(one?.text, other?.text, 'both hubs say the same')
  t.match(one?.document(), { credentials: { set: [], removed: [{ accountId: 'acme', accessKey: 'AK0' }] } })

  await follower.ask(second.adminPort)
  t.same(follower.entries().credentials, keyed('AK1', 'AK2'))
  await database.sql(
    `INSERT INTO storage_auth.revocations (jti, issuer, expires_at)
     VALUES ('live', 'i', now() + interval '1 hour'), ('over', 'i', now() - interval '25 hours')`,
  )
  const isRevoked = async (port: number) => {
    await follower.ask(port)
    return follower.entries().revocations.length === 1
  }
  await eventually(() => isRevoked(first.adminPort), 'the revocation')
  t.same(
    follower.applied.map(({ from }) => from === null),
    [true, false, false],
    'one whole state alone',
  )
  const askForAll = () => askFeed(second.adminPort, { token: TOKEN })
  await eventually(async () => (await askForAll()).document().revocations.set.length === 1, 'the other hub')
  const whole = (await askForAll()).document()
  t.match(whole.revocations.set, [{ jti: 'live', issuer: 'i', expiresAt: /^20/ }])
  t.notMatch(JSON.stringify(whole), HASHES)

  second.child.kill('SIGTERM')
  await second.ended
  const third = await hub()
  t.equal((await follower.ask(third.adminPort)).status, 304, 'a new hub knows the version')
})

t.test('a hub that is slower than another one looks again before it answers', async (t) => {
  const { hub, disable } = await databaseHubs(t)
  const [first, second] = await Promise.all([hub(), hub()])
  const follower = testFollower(first.adminPort, TOKEN)
  for (const key of [0, 1, 2]) {
    await disable(key)
    const left = 2 - key
    await eventually(async () => {
      await follower.ask(key % 2 === 0 ? first.adminPort : second.adminPort)
      return follower.entries().credentials.length === left
    }, 'the change')
    const other = key % 2 === 0 ? second.adminPort : first.adminPort
    await follower.ask(other)
    t.equal(follower.entries().credentials.length, left, 'never an older state')
  }
})

t.test('a follower is refused by a revocation that its own request brings to the hub', async (t) => {
  const { key, settings } = await trustedCluster(t)
  const { database, hub } = await databaseHubs(t, settings)
  const { adminPort } = await hub()
  const token = await mintToken({
    key,
    header: { typ: 'JWT' },
    claims: { iss: ISSUER, sub: SUBJECT, client_id: undefined },
  })
  const ask = (since: string) => askFeed(adminPort, { token, since })
  await eventually(async () => (await ask('')).status === 200, 'the key set')
  await database.sql('INSERT INTO storage_auth.revocations (access_key) VALUES ($1)', [SUBJECT])
  t.match(await ask('a version that the hub does not know'), { status: 401, text: /InvalidToken/ })
})

t.test('the state is that of a restored database, whatever its number', async (t) => {
  const { database, hub, disable } = await databaseHubs(t)
  const { adminPort } = await hub()
  const follower = testFollower(adminPort, TOKEN)
  await follower.ask()
  const [backup] = await database.sql<{ number: string; stamp: string }>(
    'SELECT number, stamp FROM storage_auth.revision',
  )
  await disable(0)
  const hasCredentials = async (count: number) => {
    await follower.ask()
    return follower.entries().credentials.length === count
  }
  await eventually(() => hasCredentials(2), 'the change')
  await database.sql(`
    UPDATE storage_auth.credentials SET disabled = false;
    DELETE FROM storage_auth.history WHERE number > ${backup?.number};
    UPDATE storage_auth.revision SET number = ${backup?.number}, stamp = '${backup?.stamp}'`)
  await eventually(() => hasCredentials(3), 'the restored state')
})

t.test('rows that no command writes reach followers as the hub takes them', async (t) => {
  const { database, hub } = await databaseHubs(t)
  const { adminPort } = await hub()
  const follower = testFollower(adminPort, TOKEN)
  await database.sql(`
    INSERT INTO storage_auth.revocations (account_id, issued_before)
      VALUES ('acme', '2030-01-01 00:00:00.0002Z'), ('acme', '2030-01-01 00:00:00.0007Z');
    INSERT INTO storage_auth.revocations (jti, expires_at)
      VALUES ('for ever', 'infinity'), ('long ago', '-infinity'), ('year 20000', '20000-01-01'), ('last', '294000-01-01');
    INSERT INTO storage_auth.revocations (jti, issuer) VALUES ('of an issuer', E'a\nb')`)
  const has = async (text: string) => {
    await follower.ask()
    return follower.entries().revocations.some((key) => key.includes(text))
  }
  for (const jti of ['for ever', 'year 20000', 'last', 'of an issuer']) {
    await eventually(() => has(jti), jti)
  }
  t.notOk(await has('long ago'))
  await database.sql(`INSERT INTO storage_auth.revocations (account_id, issued_before)
    VALUES ('of Rome', '0044-03-15 00:00:00+00 BC')`)
  await eventually(() => has('of Rome'), 'a time before all years of the feed')
  const byChanges = follower.entries()
  const other = testFollower(adminPort, TOKEN)
  await other.ask()
  t.same(other.entries(), byChanges, 'the whole state has the same')

  await database.sql(`DELETE FROM storage_auth.revocations WHERE issued_before = '2030-01-01 00:00:00.0002Z';
    DELETE FROM storage_auth.revocations WHERE jti = 'last' OR account_id = 'of Rome'`)
  await eventually(async () => !(await has('last')), 'the removal')
  t.notOk(await has('of Rome'))
  t.ok(await has('acme'), 'one of two revocations within a millisecond is left')
})

t.test('a hub whose clock is an hour ahead leaves out no revocation that has not ended', async (t) => {
  const { database, flags } = await databaseHubs(t)
  await database.sql(`INSERT INTO storage_auth.revocations (jti, issuer, expires_at)
    VALUES ('before', 'i', now() + interval '30 minutes')`)
  const { adminPort } = await startSidecar(t, {
    settings: { ...flags, ...feedFlags(t) },
    now: () => Date.now() + 3_600_000,
  })
  const follower = testFollower(adminPort, TOKEN)
  await eventually(async () => (await follower.ask()).status === 200, 'the first state')
  t.match(follower.entries().revocations, [/before/])
  await database.sql(`INSERT INTO storage_auth.revocations (jti, issuer, expires_at)
    VALUES ('later', 'i', now() + interval '30 minutes')`)
  const hasLater = async () => {
    await follower.ask()
    return follower.entries().revocations.some((key) => key.includes('later'))
  }
  await eventually(hasLater, 'the change')
})

t.test('while the database is away, a hub says how old its state is', async (t) => {
  const { hub } = await databaseHubs(t)
  const { adminPort } = await hub()
  const follower = testFollower(adminPort, TOKEN)
  t.equal((await follower.ask()).headers.age, undefined)
  await server.kill()
  await eventually(async () => Number((await follower.ask()).headers.age) >= 1, 'the age')
  t.equal((await askFeed(adminPort, { token: TOKEN })).status, 200, 'a new follower gets the last state')
  await server.start()
  await eventually(async () => (await follower.ask()).headers.age === undefined, 'the database to be back')
})

t.test('the primary of several workers is the hub', async (t) => {
  const { hub, disable } = await databaseHubs(t, { workers: '2' })
  const sidecar = await hub()
  const follower = testFollower(sidecar.adminPort, TOKEN)
  await eventually(async () => (await follower.ask()).status === 200, 'the first state')
  const waiting = askFeed(sidecar.adminPort, {
    token: TOKEN,
    since: follower.version(),
    headers: { prefer: 'wait=60' },
  })
  await disable(1)
  t.match((await waiting).document().credentials.removed, [{ accessKey: 'AK1' }])
  sidecar.child.kill('SIGTERM')
  t.match(await sidecar.ended, { code: 0 })
})
