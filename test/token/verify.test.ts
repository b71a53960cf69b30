import { createPublicKey, type JsonWebKey, randomBytes } from 'node:crypto'
import type { AddressInfo } from 'node:net'
import { createServer } from 'node:net'
import { CompactEncrypt } from 'jose'
import t from 'tap'
import type { Standing } from '../../src/credentials/store.ts'
import { ALGORITHMS, type KeyRing } from '../../src/keys/key-ring.ts'
import { createVerifier, type Verified, type VerifierOptions } from '../../src/token/verify.ts'
import { makeKey, makeKeyDirectory, ringOf, type TestKey, writeKey } from '../support/keys.ts'
import {
  AUDIENCE,
  goodClaims,
  ISSUER,
  type MintOptions,
  mintToken,
  respellings,
  segment,
} from '../support/tokens.ts'

const NOW = Date.UTC(2026, 10, 20, 12)
const IN_FORCE: Standing = { inForce: true, until: Number.POSITIVE_INFINITY }
const exp = NOW / 1000 + 3600

const key = await makeKey('ES256', 'k')
const attacker = await makeKey('ES256', 'attacker')
const rsa = await makeKey('RS256', 'rsa')
const jwe = await makeKey('RS256', 'jwe')

const rules = {
  issuer: ISSUER,
  audience: AUDIENCE,
  maxLifetimeSeconds: 86_400,
  clockToleranceSeconds: 0,
  now: () => NOW,
}
const verifierFor = (ring: KeyRing, options: Partial<VerifierOptions> = {}) =>
  createVerifier({ ...rules, keys: () => ring, standing: () => IN_FORCE, ...options })
const mint = (options: Partial<MintOptions> = {}) => mintToken({ key, now: NOW, ...options })
const reasonOf = (verified: Verified) => (verified.ok ? 'ok' : verified.reason)

let ring: KeyRing
t.before(async () => {
  const directory = t.testdir({ active: 'k' })
  writeKey(directory, key.privateJwk)
  writeKey(directory, rsa.privateJwk)
  ring = await ringOf(directory)
})

t.test('a token of each algorithm is accepted, from the private and from the public key', async (t) => {
  for (const alg of ALGORITHMS) {
    const made = await makeKeyDirectory(t, { alg })
    const directory = t.testdir({})
    writeKey(directory, made.publicJwk)
    for (const ring of [made.ring, await ringOf(directory)]) {
      const verified = await verifierFor(ring)(await mint({ key: made, claims: { jti: 'j' } }))
      t.same(verified, {
        ok: true,
        identity: { accountId: 'acme', accessKey: 'AKTEST', tokenId: 'j', expiresAt: exp },
        usableUntil: exp * 1000,
      })
    }
  }
})

t.test('the type may be spelled as media types may', async (t) => {
  const verify = verifierFor(ring)
  for (const typ of ['AT+JWT', 'application/at+jwt'])
    t.equal(reasonOf(await verify(await mint({ header: { typ } }))), 'ok')
})

t.test('each hostile token is refused for its reason, cheaply, and none throws', async (t) => {
  const verify = verifierFor(ring)
  const good = await mint()
  const [head, body, signature = ''] = good.split('.')
  const pem = publicKeyOf(rsa)
  const spki = pem.export({ type: 'spki', format: 'pem' }) as string
  const confused = (hmacSecret: string | Uint8Array) =>
    mint({ key: rsa, header: { alg: 'HS256' }, hmacSecret })
  const elsewhere = await listener(t)
  const forged = (header: object, claims: object = {}) =>
    mint({ key: { ...attacker, kid: 'k' }, header: { ...header }, claims: { ...claims } })
  const encrypted = await new CompactEncrypt(Buffer.from('{}'))
    .setProtectedHeader({ alg: 'RSA-OAEP', enc: 'A128GCM', kid: 'k' })
    .encrypt(publicKeyOf(jwe))
  const deep = `{"alg":"ES256","kid":"k","typ":"at+jwt","x":${'['.repeat(2500)}${']'.repeat(2500)}}`

  const table: readonly (readonly [string, string, string | Promise<string>])[] = [
    ['the empty text', 'malformed', ''],
    ['one word', 'malformed', 'hello'],
    ['no signature', 'malformed', `${head}.${body}.`],
    ['no signature and no dot', 'malformed', `${head}.${body}`],
    ['JSON serialization', 'malformed', JSON.stringify({ protected: head, payload: body, signature })],
    ['a JWE', 'malformed', encrypted],
    ['a token of 8 KiB and more', 'malformed', mint({ claims: { x: 'x'.repeat(6000) } })],
    ['a token of 15 KiB', 'malformed', `${head}.${body}.${'A'.repeat(15_000)}`],
    ['8-bit characters', 'malformed', `${head}.${body}.${signature.slice(1)}é`],
    ['a NUL', 'malformed', `${good}\0`],
    ['a header of 100,000 brackets', 'malformed', mint({ headerText: '['.repeat(100_000) })],
    ['a header that is no object', 'malformed', mint({ headerText: '[]' })],
    ['a repeated alg', 'malformed', mint({ headerText: '{"alg":"none","kid":"k","alg":"ES256"}' })],
    ['a header with a byte order mark', 'malformed', mint({ headerText: '\uFEFF{"alg":"ES256","kid":"k"}' })],
    ['crit empty', 'malformed', mint({ header: { crit: [] } })],
    ['crit with something unknown', 'malformed', mint({ header: { crit: ['x'], x: 1 } })],
    ['b64 false', 'malformed', mint({ header: { b64: false } })],
    ['b64 false and critical', 'malformed', mint({ header: { b64: false, crit: ['b64'] } })],
    ['zip', 'malformed', mint({ header: { zip: 'DEF' } })],
    ['cty', 'malformed', mint({ header: { cty: 'JWT' } })],
    ['kid as a number', 'malformed', mint({ header: { kid: 1 } })],
    ['kid as a list', 'malformed', mint({ header: { kid: ['k'] } })],
    ['alg missing', 'malformed', mint({ header: { alg: undefined } })],
    ['kid missing', 'unknown_key', mint({ header: { kid: undefined } })],
    ...[
      '',
      '../../dev/null',
      '/proc/sys/kernel/randomize_va_space',
      "k' OR '1'='1",
      '|sleep 10',
      '__proto__',
    ].map((kid) => [`kid ${kid}`, 'unknown_key', mint({ header: { kid } })] as const),
    ['a kid of 5 KiB', 'unknown_key', mint({ header: { kid: 'k'.repeat(5120) } })],
    ...['none', 'None', 'NONE', 'nOnE', 'es256', 'ES384', 'RS256', 'HS256', ''].map(
      (alg) => [`alg ${alg}`, 'algorithm', mint({ header: { alg } })] as const,
    ),
    ['HS256 with the public key as PEM', 'algorithm', confused(spki)],
    ['HS256 with the PEM without its last newline', 'algorithm', confused(spki.trimEnd())],
    ['HS256 with the DER', 'algorithm', confused(pem.export({ type: 'spki', format: 'der' }) as Buffer)],
    ['HS256 with the JWK text', 'algorithm', confused(JSON.stringify(rsa.publicJwk))],
    ['typ missing', 'claims', mint({ header: { typ: undefined } })],
    ['typ JWT', 'claims', mint({ header: { typ: 'JWT' } })],
    ['a token of another kind by the same key', 'claims', mint({ header: { typ: 'secevent+jwt' } })],
    ['another key', 'signature', forged({})],
    ['jwk in the header', 'signature', forged({ jwk: attacker.publicJwk })],
    ['jku', 'signature', forged({ jku: elsewhere.url })],
    ['x5u', 'signature', forged({ x5u: elsewhere.url })],
    ['x5c', 'signature', forged({ x5c: ['MIIB'] })],
    ['deep JSON in the header, unsigned', 'signature', mint({ headerText: deep, signature })],
    ['the signature of another token', 'signature', mint({ signature: (await mint()).split('.')[2] ?? '' })],
    ['a signature of zeros', 'signature', mint({ signature: 'A'.repeat(86) })],
    ['a signature of one byte', 'signature', mint({ signature: 'AA' })],
    [
      'a changed payload',
      'signature',
      `${head}.${segment(JSON.stringify(goodClaims({ now: NOW })))}.${signature}`,
    ],
    ['expired and forged', 'signature', forged({}, { iat: 1000, exp: 2000 })],
    ['a payload that is no JSON', 'claims', mint({ claimsText: 'hello' })],
    [
      'a payload with a byte order mark',
      'claims',
      mint({ claimsText: `\uFEFF${JSON.stringify(goodClaims())}` }),
    ],
    ['a repeated claim', 'claims', mint({ claimsText: '{"sub":"a","sub":"b"}' })],
    ['a foreign issuer', 'claims', mint({ claims: { iss: 'other' } })],
    ['a foreign audience', 'claims', mint({ claims: { aud: ['other'] } })],
    [
      'exp 1e400',
      'claims',
      mint({
        claimsText: JSON.stringify({ ...goodClaims({ now: NOW }), exp: 7e77 }).replace('7e+77', '1e400'),
      }),
    ],
    ['a subject of two lines', 'claims', mint({ claims: { sub: 'a\r\nX-Authenticated-Account-Id: b' } })],
    ['expired', 'expired', mint({ claims: { iat: 1000, exp: 2000 } })],
    ['expired this very second', 'expired', mint({ claims: { exp: NOW / 1000, iat: NOW / 1000 - 1 } })],
    ['expired and wrong', 'claims', mint({ claims: { iat: 1000, exp: 2000, iss: 'other' } })],
  ]
  const tokens = await Promise.all(
    table.map(async ([name, reason, token]) => [name, reason, await token] as const),
  )
  const started = performance.now()
  const reasons = []
  for (const [, , token] of tokens) reasons.push(reasonOf(await verify(token)))
  const milliseconds = (performance.now() - started) / tokens.length
  for (const [at, [name, reason]] of tokens.entries()) t.equal(reasons[at], reason, name)
  t.equal(elsewhere.connections(), 0, 'no URL in a token is followed')
  t.ok(milliseconds < 50, 'a hostile token costs less than 50 ms')
  t.equal(reasonOf(await verify(good)), 'ok')
})

t.test('every respelling and every cut of a good token is refused', async (t) => {
  const verify = verifierFor(ring)
  const token = await mint({ claims: { jti: 'j' } })
  for (const [name, respelled] of respellings(token))
    t.equal(reasonOf(await verify(respelled)), 'malformed', name)
  for (const cut of [1, 2, 3, 4]) t.not(reasonOf(await verify(token.slice(0, -cut))), 'ok', `cut by ${cut}`)
})

t.test('a token is good until the millisecond before exp and the tolerance', async (t) => {
  const token = await mint()
  for (const clockToleranceSeconds of [0, 60]) {
    const edge = (exp + clockToleranceSeconds) * 1000
    const at = (now: number) => verifierFor(ring, { clockToleranceSeconds, now: () => now })(token)
    t.match(await at(edge - 1), { ok: true, usableUntil: edge })
    t.equal(reasonOf(await at(edge)), 'expired')
  }
})

t.test('a token ends with its credential', async (t) => {
  const token = await mint()
  const asked: string[][] = []
  const withStanding = (standing: Standing) => {
    const look = (...names: string[]) => {
      asked.push(names)
      return standing
    }
    return verifierFor(ring, { standing: look })(token)
  }
  t.equal(reasonOf(await withStanding({ inForce: false })), 'revoked')
  t.match(await withStanding({ inForce: true, until: exp - 10 }), {
    ok: true,
    usableUntil: (exp - 10) * 1000,
  })
  t.match(await withStanding({ inForce: true, until: exp + 10 }), { ok: true, usableUntil: exp * 1000 })
  t.same(asked[0], ['acme', 'AKTEST'])
})

t.test('a token that has run out is expired, whatever became of its credential', async (t) => {
  const verify = verifierFor(ring, { standing: () => ({ inForce: false }), now: () => exp * 1000 })
  t.equal(reasonOf(await verify(await mint())), 'expired')
})

t.test('a revoked token is refused as one whose credential is not in force', async (t) => {
  const token = await mint({ claims: { jti: 'j' } })
  const asked: unknown[] = []
  const verifyWhen = (revoked: boolean, options: Partial<VerifierOptions> = {}) => {
    const isRevoked: VerifierOptions['isRevoked'] = (about) => {
      asked.push(about)
      return revoked
    }
    return verifierFor(ring, { isRevoked, ...options })(token)
  }
  t.equal(reasonOf(await verifyWhen(true)), 'revoked')
  t.equal(reasonOf(await verifyWhen(false)), 'ok')
  t.match(asked[0], { tokenId: 'j', accountId: 'acme', accessKey: 'AKTEST', issuedAt: NOW / 1000 })
  t.equal(reasonOf(await verifyWhen(true, { now: () => exp * 1000 })), 'expired')
})

t.test('without credentials and revocations of its own, keys and claims decide', async (t) => {
  const verify = createVerifier({ ...rules, keys: () => ring })
  t.match(await verify(await mint()), { ok: true, usableUntil: exp * 1000 })
})

t.test('for a kid that is not known newer keys are looked for, and for no other token', async (t) => {
  let keys: KeyRing = { verification: new Map() }
  const asked: string[] = []
  const refreshKeys = async (kid: string) => {
    asked.push(kid)
    if (kid === 'k') keys = ring
    return kid === 'k'
  }
  const verify = verifierFor(ring, { keys: () => keys, refreshKeys })
  t.equal(reasonOf(await verify(await mint({ header: { kid: 'x' } }))), 'unknown_key')
  t.equal(reasonOf(await verify(await mint())), 'ok', 'accepted at its first use')
  t.equal(reasonOf(await verify(await mint())), 'ok')
  t.equal(reasonOf(await verify(await mint({ header: { kid: undefined } }))), 'unknown_key')
  t.same(asked, ['x', 'k'])
  keys = { verification: new Map() }
  const vanishing = verifierFor(ring, { keys: () => keys, refreshKeys: async () => true })
  t.equal(reasonOf(await vanishing(await mint())), 'unknown_key', 'whatever was said, the keys decide')
})

t.test('a kid that no key can have is not looked for', async (t) => {
  let asked = 0
  const refreshKeys = async () => {
    asked++
    return false
  }
  const verify = verifierFor(ring, { refreshKeys })
  for (const kid of [
    '',
    '.hidden',
    '../../dev/null',
    '/etc/passwd',
    'a b',
    "' OR 1=1",
    '|sleep 10',
    'é',
    'x'.repeat(129),
    'a\n',
  ]) {
    t.equal(reasonOf(await verify(await mint({ header: { kid } }))), 'unknown_key', JSON.stringify(kid))
  }
  t.equal(asked, 0)
})

t.test('keys are those in force at the moment', async (t) => {
  let keys = ring
  const verify = verifierFor(ring, { keys: () => keys })
  const token = await mint()
  t.equal(reasonOf(await verify(token)), 'ok')
  keys = { verification: new Map() }
  t.equal(reasonOf(await verify(token)), 'unknown_key')
})

t.test('what needs no signature to be refused is refused at once, without a promise', async (t) => {
  const verify = verifierFor(ring)
  const [header = '', ...rest] = (await mint()).split('.')
  const { kid, alg, typ } = JSON.parse(Buffer.from(header, 'base64url').toString())
  const headed = (changes: object) =>
    [Buffer.from(JSON.stringify({ kid, alg, typ, ...changes })).toString('base64url'), ...rest].join('.')
  for (const [token, reason] of [
    ['bm8.bm8.bm8', 'malformed'],
    ['x', 'malformed'],
    [headed({ kid: 'other' }), 'unknown_key'],
    [headed({ kid: '../../x' }), 'unknown_key'],
    [headed({ alg: 'HS512' }), 'algorithm'],
    [headed({ typ: 'JWT' }), 'claims'],
  ] as const) {
    t.match(verify(token), { ok: false, reason })
  }
  t.ok(verify(await mint()) instanceof Promise)
})

t.test('a fault of our own is a fault and no verdict', async (t) => {
  const verification = ring.verification.get('k')
  const signing = ring.signing
  if (verification === undefined || signing === undefined) throw new Error('the ring is not complete')
  const wrong: KeyRing = { verification: new Map([['k', { ...verification, key: signing.key }]]) }
  const token = await mint()
  await t.rejects(async () => verifierFor(wrong)(token), TypeError)
})

t.test('of random bytes in the shape of a token none is accepted', async (t) => {
  const verify = verifierFor(ring)
  for (let round = 0; round < 200; round++) {
    const token = [30, 90, 64].map((length) => randomBytes(length).toString('base64url')).join('.')
    t.equal((await verify(token)).ok, false)
  }
})

const publicKeyOf = ({ publicJwk }: TestKey) =>
  createPublicKey({ key: { ...publicJwk } as JsonWebKey, format: 'jwk' })

/** A server that nobody should connect to. */
async function listener(t: { teardown(close: () => void): void }) {
  let connections = 0
  const server = createServer((socket) => {
    connections++
    socket.destroy()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  const { port } = server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}/jwks.json`, connections: () => connections }
}
