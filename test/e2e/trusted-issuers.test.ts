import { createHash, createPublicKey } from 'node:crypto'
import { rmSync, writeFileSync } from 'node:fs'
import { createServer, type ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import t, { type Test } from 'tap'
import { makeCertificate } from '../support/certificates.ts'
import { eventually, inTime } from '../support/eventually.ts'
import { makeKey, type TestKey, writeKey } from '../support/keys.ts'
import { listen } from '../support/listen.ts'
import { recordingUpstream } from '../support/recording-upstream.ts'
import { startSidecar, type TestSidecarOptions } from '../support/sidecar.ts'
import { sidecarClient } from '../support/sidecar-client.ts'
import { goodClaims, type MintOptions, mintToken, segment } from '../support/tokens.ts'

const ISSUER = 'https://idp.example/'
const SUBJECT = 'system:serviceaccount:backup:runner'

const rsa = await makeKey('RS256', 'shared-kid')
const ec = await makeKey('ES256', 'ec')

/** An issuer's key set, which the test may replace by any response. */
async function startIssuer(t: Test, ...keys: readonly object[]) {
  const issuer = {
    keys,
    requests: 0,
    respond: (res: ServerResponse): void => {
      res.end(JSON.stringify({ keys: issuer.keys }))
    },
    url: '',
  }
  const server = createServer((_req, res) => {
    issuer.requests++
    issuer.respond(res)
  })
  issuer.url = `http://127.0.0.1:${await listen(t, server)}/keys`
  return issuer
}

const entryOf = (jwksUrl: string, changes: object = {}) => ({
  issuer: ISSUER,
  jwksUrl,
  audience: 'storage-api',
  accounts: { [SUBJECT]: 'acme' },
  ...changes,
})

/** A sidecar that trusts these issuers, and its upstream. */
async function setUp(t: Test, entries: readonly object[], options: TestSidecarOptions = {}) {
  const upstream = await recordingUpstream(t)
  const settings = { 'trusted-issuers': JSON.stringify(entries), ...options.settings }
  const sidecar = await startSidecar(t, { upstreamUrl: upstream.url, ...options, settings })
  const client = sidecarClient(sidecar)
  const fetched = async (issuer = ISSUER) =>
    (await sidecar.metric(`auth_sidecar_jwks_fetches_total{issuer="${issuer}",result="ok"}`)) > 0
  return { upstream, sidecar, client, fetched }
}

/** A token as an identity provider makes it: no `typ` of ours, no `client_id`, no `jti`. */
const mint = (
  key: Pick<TestKey, 'kid' | 'alg' | 'privateJwk'>,
  { header, claims, ...rest }: Partial<MintOptions> = {},
) =>
  mintToken({
    key,
    ...rest,
    header: { typ: 'JWT', ...header },
    claims: { iss: ISSUER, sub: SUBJECT, client_id: undefined, jti: undefined, ...claims },
  })

t.test('a token of a trusted issuer is forwarded, cached, asserted and told its time left', async (t) => {
  const issuer = await startIssuer(t, rsa.publicJwk, ec.publicJwk)
  const { upstream, sidecar, client, fetched } = await setUp(t, [entryOf(issuer.url)], {
    settings: { 'identity-assertion-enabled': 'true', 'forward-auth-path': '/_auth' },
  })
  await eventually(fetched, 'the key set')
  const token = await mint(rsa, { header: { typ: undefined }, claims: { scope: 'openid' } })
  t.equal(await client.forward(token), 200)
  const digest = createHash('sha256').update(token).digest('base64url')
  const { headers } = upstream.requests.at(-1) ?? {}
  t.match(headers, {
    'x-authenticated-account-id': 'acme',
    'x-authenticated-access-key': SUBJECT,
    'x-authenticated-token-id': digest,
    'x-authenticated-token-expires': /^\d+$/,
    'x-authenticated-assertion': /^[\w-]+\.[\w-]+\.[\w-]+$/,
    'x-authenticated-scope': undefined,
    authorization: undefined,
  })
  t.equal(await client.forward(token), 200)
  t.equal(await sidecar.metric('auth_sidecar_token_cache_hits_total'), 1)
  t.equal(await client.check(token), 'ok')
  t.equal(await client.forward(await mint(ec, { claims: { uti: 'entra-id' } })), 200)
  t.match(upstream.requests.at(-1)?.headers, { 'x-authenticated-token-id': 'entra-id' })
  t.equal(await client.forward(await mint(ec, { claims: { jti: 'j', uti: 'u' } })), 200)
  t.match(upstream.requests.at(-1)?.headers, { 'x-authenticated-token-id': 'j' })
  const decided = await fetch(`http://127.0.0.1:${sidecar.port}/_auth`, {
    headers: { authorization: `Bearer ${token}` },
  })
  t.equal(decided.headers.get('x-authenticated-account-id'), 'acme')
  const old = await mint(rsa, { now: Date.now() - 7_200_000 })
  t.equal(await client.check(old), 'ExpiredToken')
  t.equal(await client.forward(sidecar.token), 200, 'our own tokens as ever')
  issuer.keys = [{ ...ec.publicJwk, kid: rsa.kid }]
  await sidecar.app.reload()
  t.equal(await client.check(token), 'InvalidToken', 'its kid names another key now')
})

t.test('issuers are never confused', async (t) => {
  const own = await makeKey('ES256', 'own-copy')
  const other = await makeKey('RS256', 'other-key')
  const first = await startIssuer(t, rsa.publicJwk, { ...own.publicJwk, kid: 'stolen' })
  const second = await startIssuer(t, { ...other.publicJwk, kid: rsa.kid })
  const OTHER = 'https://other.example'
  const { sidecar, client, fetched, upstream } = await setUp(t, [
    entryOf(first.url),
    entryOf(second.url, { issuer: OTHER, accounts: { [SUBJECT]: 'other' } }),
  ])
  await eventually(async () => (await fetched()) && (await fetched(OTHER)), 'both key sets')
  const ownKey = sidecar.key
  const foreign = { ...rsa, kid: ownKey.kid }
  const publicKey = createPublicKey({ key: { ...rsa.publicJwk }, format: 'jwk' })
  const pem = publicKey.export({ type: 'spki', format: 'pem' })
  const pss = { ...rsa, alg: 'PS256' } as const
  const claimsOfOurs = { ...goodClaims(), sub: 'acme', client_id: 'AK' }
  const at = { typ: 'at+jwt' }
  const refused: Record<string, Promise<string>> = {
    'own kid and key, foreign iss': mint({ ...ownKey }),
    'own kid, foreign key and iss': mint(foreign),
    'own kid, foreign key, own iss': mint(foreign, { header: at, claims: claimsOfOurs }),
    'foreign kid and key, own iss': mint(rsa, { header: at, claims: claimsOfOurs }),
    'kid of one issuer, key of another': mint({ ...other, kid: rsa.kid }),
    'the same the other way round': mint(rsa, { claims: { iss: OTHER } }),
    'HS256 with the public key': mint(rsa, { header: { alg: 'HS256' }, hmacSecret: String(pem) }),
    'HS256 with the JWK': mint(rsa, { header: { alg: 'HS256' }, hmacSecret: JSON.stringify(rsa.publicJwk) }),
    none: mint(rsa, { header: { alg: 'none' }, signature: segment('x') }),
    'an embedded key': mint(other, { header: { jwk: other.publicJwk, kid: 'x' } }),
    'a key URL': mint(other, { header: { jku: second.url, kid: 'x' } }),
    'a final slash less': mint(rsa, { claims: { iss: ISSUER.slice(0, -1) } }),
    'another case': mint(rsa, { claims: { iss: ISSUER.toUpperCase() } }),
    'iss an array': mint(rsa, { claims: { iss: [ISSUER] } }),
    'no iss': mint(rsa, { claims: { iss: undefined } }),
    'iss __proto__': mint(rsa, { claims: { iss: '__proto__' } }),
    'an algorithm that is not listed': mint({ ...pss, privateJwk: { ...rsa.privateJwk, alg: pss.alg } }),
    'no kid, two keys': mint(ec, { header: { kid: undefined } }),
    'an own token by the type': mint(rsa, { header: { typ: 'upstream-assertion+jwt' } }),
    'a link by the type': mint(rsa, { header: { typ: 'link+jwt' } }),
    'a crit header': mint(rsa, { header: { crit: ['b64'], b64: false } }),
  }
  for (const [name, token] of Object.entries(refused)) {
    t.equal(await client.check(await token), 'InvalidToken', name)
  }
  for (const [iss, account] of [
    [ISSUER, 'acme'],
    [OTHER, 'other'],
  ] as const) {
    const key = iss === ISSUER ? rsa : { ...other, kid: rsa.kid }
    t.equal(await client.forward(await mint(key, { claims: { iss } })), 200)
    t.match(upstream.requests.at(-1)?.headers, { 'x-authenticated-account-id': account })
  }
  const noKid = await mint(rsa, { header: { kid: undefined } })
  t.equal(await client.check(noKid), 'ok', 'one key of the algorithm')
  t.equal(first.requests + second.requests < 6, true)
})

t.test('the set of a trusted issuer that holds our public key proves no token of ours', async (t) => {
  const issuer = await startIssuer(t)
  const { sidecar, client, fetched } = await setUp(t, [entryOf(issuer.url)])
  issuer.keys = [sidecar.key.publicJwk]
  await eventually(fetched, 'the key set')
  t.equal(await client.check(await sidecar.mint()), 'ok')
  t.equal(await client.check(await sidecar.mint({ claims: { iss: ISSUER } })), 'InvalidToken', 'no mapping')
})

t.test('the claims of a trusted issuer', async (t) => {
  const issuer = await startIssuer(t, rsa.publicJwk)
  const PREFIXED = 'https://prefix.example'
  const { sidecar, client, fetched, upstream } = await setUp(t, [
    entryOf(issuer.url, { requiredClaims: { tenant: 't1', admin: true }, maxLifetimeSeconds: 7200 }),
    {
      issuer: PREFIXED,
      jwksUrl: issuer.url,
      audience: 'storage-api',
      accountPrefix: 'ac',
      accessKeyClaim: 'azp',
    },
  ])
  await eventually(async () => (await fetched()) && (await fetched(PREFIXED)), 'the key sets')
  const good = { tenant: 't1', admin: true }
  const iat = Math.floor(Date.now() / 1000)
  const nbf = iat + 3600
  const refused: readonly object[] = [
    { sub: undefined },
    ...[7, ['a'], { a: 1 }, '', 'a\nb', 'unknown', '__proto__', 'constructor', 'x'.repeat(2048)].map(
      (sub) => ({ sub }),
    ),
    ...[undefined, 't2', ['t2'], { t1: 1 }, 7].map((tenant) => ({ tenant })),
    { admin: 'true' },
    ...[undefined, 'other', ['other'], []].map((aud) => ({ aud })),
    ...[undefined, iat * 1000, `${iat}`, iat + 60].map((at) => ({ iat: at })),
    ...[undefined, null, iat + 7300, '1', 1e300].map((exp) => ({ exp })),
    { nbf },
    { nbf: 'x' },
    ...[7, '', 'a\nb', 'j'.repeat(257)].map((jti) => ({ jti })),
  ]
  const accepted = [{}, { tenant: ['t0', 't1'] }, { aud: ['x', 'storage-api'] }, { nbf: iat }, { scope: 7 }]
  for (const [all, verdict] of [
    [refused, 'InvalidToken'],
    [accepted, 'ok'],
  ] as const) {
    for (const claims of all) {
      const token = await mint(rsa, { claims: { ...good, ...claims } })
      t.equal(await client.check(token), verdict, JSON.stringify(claims).slice(0, 40))
    }
  }
  const infinite = JSON.stringify({ ...goodClaims(), ...good, iss: ISSUER, sub: SUBJECT, exp: '@' })
  const claimsText = infinite.replace('"@"', '1e400')
  t.equal(await client.check(await mint(rsa, { claimsText })), 'InvalidToken')
  const prefixed = (azp: unknown) => mint(rsa, { claims: { iss: PREFIXED, azp } })
  t.equal(await client.forward(await prefixed('tion')), 200)
  t.match(upstream.requests.at(-1)?.headers, { 'x-authenticated-account-id': 'action' })
  t.equal(await client.check(await prefixed('me')), 'InvalidToken', 'acme is an account of our own store')
  t.equal(await client.check(await prefixed(undefined)), 'InvalidToken')
  const claims = 'auth_sidecar_token_checks_total{result="rejected",reason="claims"}'
  t.equal(await sidecar.metric(claims), refused.length + 3)
})

t.test('the scope of the entry restricts every token, and a revocation refuses it', async (t) => {
  const issuer = await startIssuer(t, rsa.publicJwk, ec.publicJwk)
  const byDigest = await mint(ec)
  const id = createHash('sha256').update(byDigest).digest('base64url')
  const list = `revocations: [{ jti: gone }, { accountId: other }, { jti: ${id} }]`
  const revocations = t.testdir({ 'r.yaml': list })
  const { client, fetched, sidecar } = await setUp(
    t,
    [entryOf(issuer.url, { scope: 'storage.read:/backups', accounts: { [SUBJECT]: 'acme', o: 'other' } })],
    { settings: { 'revocations-file': `${revocations}/r.yaml` } },
  )
  await eventually(fetched, 'the key set')
  const authorization = `Bearer ${await mint(rsa, { claims: { scope: 'storage.modify:/' } })}`
  const ask = async (path: string) =>
    (await fetch(`http://127.0.0.1:${sidecar.port}${path}`, { headers: { authorization } })).status
  t.equal(await ask('/backups/a'), 200)
  t.equal(await ask('/other'), 403)
  t.equal(await client.check(await mint(rsa, { claims: { jti: 'gone' } })), 'InvalidToken')
  t.equal(await client.check(byDigest), 'InvalidToken')
  t.equal(await client.check(await mint(rsa, { claims: { sub: 'o' } })), 'InvalidToken')
})

t.test('times of trusted issuers may have fractions of seconds', async (t) => {
  const issuer = await startIssuer(t, rsa.publicJwk)
  const clock = { ms: Date.UTC(2030, 0, 1) + 500 }
  const { client, fetched, upstream } = await setUp(t, [entryOf(issuer.url)], { now: () => clock.ms })
  await eventually(fetched, 'the key set')
  const seconds = clock.ms / 1000
  const token = await mint(rsa, { claims: { iat: seconds - 0.25, nbf: seconds - 0.25, exp: seconds + 1.25 } })
  t.equal(await client.forward(token), 200)
  const expires = String(Math.floor(seconds + 1.25))
  t.equal(upstream.requests[0]?.headers['x-authenticated-token-expires'], expires)
  clock.ms += 1249
  t.equal(await client.check(token), 'ok')
  clock.ms += 1
  t.equal(await client.check(token), 'ExpiredToken')
  const claims = { iat: seconds, exp: seconds + 86_400.5 }
  t.equal(await client.check(await mint(rsa, { claims })), 'InvalidToken', 'longer than the maximum')
})

t.test('a new key set of an issuer removes its tokens from the cache, and no others', async (t) => {
  const issuer = await startIssuer(t, rsa.publicJwk)
  const clock = { ms: Date.now() }
  const { client, fetched, sidecar } = await setUp(t, [entryOf(issuer.url)], { now: () => clock.ms })
  await eventually(fetched, 'the key set')
  const foreign = await mint(rsa)
  t.equal(await client.forward(sidecar.token), 200)
  t.equal(await client.forward(foreign), 200)
  const misses = () => sidecar.metric('auth_sidecar_token_cache_misses_total')
  t.equal(await misses(), 2)
  clock.ms += 6000
  issuer.keys = [ec.publicJwk]
  t.equal(await client.forward(await mint(ec, { now: clock.ms })), 200, 'a new key is fetched')
  t.equal(await misses(), 3)
  t.equal(await client.forward(sidecar.token), 200)
  t.equal(await misses(), 3, 'the own token stayed in the cache')
  t.equal(await client.forward(foreign), 400, 'its key is gone')
})

t.test('while an issuer cannot be reached, an unknown kid is 503: its key may be new', async (t) => {
  const issuer = await startIssuer(t, rsa.publicJwk)
  const clock = { ms: Date.now() }
  const { client, fetched, sidecar } = await setUp(t, [entryOf(issuer.url)], { now: () => clock.ms })
  await eventually(fetched, 'the key set')
  const { respond } = issuer
  issuer.respond = (res) => res.destroy()
  const renewed = await mint(ec, { now: clock.ms })
  clock.ms += 6000
  t.equal(await client.forward(renewed), 503)
  t.equal(await client.forward(renewed), 503, 'in the pause after the failed fetch, too')
  t.equal(await sidecar.metric('auth_sidecar_token_checks_total{result="rejected",reason="unavailable"}'), 2)
  t.equal(await client.forward(await mint(rsa)), 200, 'the known keys stay')
  issuer.respond = respond
  clock.ms += 6000
  t.equal(
    await client.forward(await mint(ec, { now: clock.ms, header: { kid: 'made-up' } })),
    400,
    'the set has no such key',
  )
  issuer.keys = [rsa.publicJwk, ec.publicJwk]
  clock.ms += 6000
  t.equal(await client.forward(renewed), 200)
})

t.test('a link may do no more than a token of its issuer may now', async (t) => {
  const issuer = await startIssuer(t, rsa.publicJwk)
  const first = await setUp(t, [entryOf(issuer.url)], { settings: { 'links-enabled': 'true' } })
  await eventually(first.fetched, 'the key set')
  const { url } = await first.client.link(await mint(rsa), 'GET', '/a/x')
  for (const [status, changes] of [
    [200, {}],
    [200, { scope: 'storage.read:/a' }],
    [403, { scope: 'storage.read:/b' }],
    [400, { accounts: { [SUBJECT]: 'other' } }],
    [400, { accounts: undefined, accountPrefix: 'x:' }],
  ] as const) {
    const keys = { 'links-enabled': 'true', 'keys-directory': first.sidecar.key.directory }
    const { sidecar } = await setUp(t, [entryOf(issuer.url, changes)], { settings: keys })
    const { status: seen } = await fetch(`http://127.0.0.1:${sidecar.port}${url}`)
    t.equal(seen, status, JSON.stringify(changes))
  }
})

t.test('until the first key set is there, its tokens get 503, and no other token waits', async (t) => {
  const issuer = await startIssuer(t, rsa.publicJwk)
  const healthy = await startIssuer(t, ec.publicJwk)
  const OTHER = 'https://other.example'
  const normal = issuer.respond
  const held: ServerResponse[] = []
  const hang = (res: ServerResponse) => {
    held.push(res)
  }
  issuer.respond = hang
  const entries = [entryOf(issuer.url), entryOf(healthy.url, { issuer: OTHER })]
  const { client, sidecar, fetched } = await setUp(t, entries)
  await eventually(() => fetched(OTHER), 'the other set')
  const token = await mint(rsa)
  const othersGoOn = async () => {
    for (let n = 0; n < 20; n++) {
      t.equal(await client.check(await sidecar.mint()), 'ok')
      t.equal(await client.check(await mint(ec, { claims: { iss: OTHER } })), 'ok')
    }
  }
  const waiting = [client.check(token), client.check(token)]
  // They would take 40 s if each of them waited for a second.
  await inTime(othersGoOn(), 'the tokens of other issuers', 30_000)
  t.equal((await client.ready()).status, 200)
  t.same(await Promise.all(waiting), ['ServiceNotReady', 'ServiceNotReady'])
  const response = await fetch(`http://127.0.0.1:${sidecar.port}/o`, {
    headers: { authorization: `Bearer ${token}` },
  })
  t.equal(response.status, 503)
  t.match(response.headers.get('retry-after'), /^\d+$/)
  t.match(response.headers.get('proxy-status'), 'error=http_request_denied; details="unavailable"')
  t.ok(await sidecar.metric('auth_sidecar_token_checks_total{result="rejected",reason="unavailable"}'))
  issuer.respond = normal
  for (const res of held) {
    res.destroy()
  }
  await eventually(fetched, 'the next fetch')
  t.equal(await client.check(token), 'ok')
  issuer.respond = hang
  const unknown = client.check(await mint({ ...rsa, kid: 'unknown' }))
  await othersGoOn()
  t.equal(await unknown, 'InvalidToken')
  for (const res of held) {
    res.destroy()
  }
  t.equal(await client.check(await mint(rsa)), 'ok', 'the last good set stays')
})

t.test('report mode forwards tokens of an issuer without keys', async (t) => {
  const issuer = await startIssuer(t)
  const { client, upstream } = await setUp(t, [entryOf(issuer.url)], { settings: { enforcement: 'report' } })
  t.equal(await client.forward(await mint(rsa)), 200)
  t.match(upstream.requests.at(-1)?.headers, { 'x-authenticated-account-id': undefined })
})

t.test('a sidecar without any key or credential of its own accepts tokens of trusted issuers', async (t) => {
  const issuer = await startIssuer(t, rsa.publicJwk)
  const directory = t.testdir({ 'credentials.yaml': 'accounts: []', keys: {} })
  const settings = {
    'keys-directory': `${directory}/keys`,
    'credentials-file': `${directory}/credentials.yaml`,
  }
  const { client, fetched, sidecar } = await setUp(t, [entryOf(issuer.url)], { settings })
  await eventually(fetched, 'the key set')
  t.equal(await client.check(await mint(rsa)), 'ok')
  t.equal(await client.check(sidecar.token), 'InvalidToken')
  t.equal(await client.login({ accountId: 'acme', accessKey: 'a', secret: 'b' }), '503 ServiceNotReady')
  writeKey(`${directory}/keys`, sidecar.key.privateJwk)
  await eventually(async () => (await client.kids()).length === 1, 'the key')
  rmSync(`${directory}/keys/${sidecar.key.kid}.jwk.json`)
  await sidecar.app.reload()
  t.equal((await client.kids()).length, 1, 'a directory that loses its keys is a mistake')
})

t.test('a key set is fetched over TLS with a CA file, which reloads, and a bearer token', async (t) => {
  const makeAuthority = (commonName: string) => makeCertificate({ commonName, authority: true })
  const issuer = makeAuthority('ca')
  const other = makeAuthority('other')
  const certificate = makeCertificate({ commonName: 'idp', names: ['127.0.0.1'], issuer })
  const directory = t.testdir({ 'ca.crt': other.cert, token: 'secret-of-the-pod' })
  const server = createTlsServer(certificate, (req, res) => {
    if (req.headers.authorization !== 'Bearer secret-of-the-pod') {
      res.writeHead(401)
    }
    res.end(JSON.stringify({ keys: [rsa.publicJwk] }))
  })
  const url = `https://127.0.0.1:${await listen(t, server)}/keys?canary`
  const files = { caFile: `${directory}/ca.crt`, bearerTokenFile: `${directory}/token` }
  const { client, fetched, sidecar } = await setUp(t, [entryOf(url, files)])
  t.equal(await client.check(await mint(rsa)), 'ServiceNotReady')
  writeFileSync(files.caFile, issuer.cert)
  await eventually(fetched, 'the set, after a retry')
  t.equal(await client.check(await mint(rsa)), 'ok')
  const failure = sidecar.log.find(({ msg }) => String(msg).startsWith('the JWK Set cannot be used'))
  t.match(failure, { issuer: ISSUER, problems: [/^cannot be fetched: [A-Z_]+$/] })
  t.notMatch(JSON.stringify(sidecar.log), /canary|secret-of-the-pod/)
})
