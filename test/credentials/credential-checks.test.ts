import { createHook } from 'node:async_hooks'
import { scryptSync } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'
import t from 'tap'
import type { Login, LoginOrigin, LoginVerdict } from '../../src/credentials/credential-checks.ts'
import { createCredentialChecks } from '../../src/credentials/credential-checks.ts'
import { type Credential, CredentialList } from '../../src/credentials/credential-list.ts'
import { createLoginThrottle } from '../../src/credentials/login-throttle.ts'
import {
  dummyHash,
  generateSecret,
  hashSecret,
  secretHashProblem,
  verifySecret,
} from '../../src/credentials/secret-hash.ts'

const NOW = 1_800_000_000_000
const SECRET = 'right'
const fast = await hashSecret(SECRET, 'sha256')
const slow = await hashSecret(SECRET, 'scrypt')
const slowAgain = dummyHash('$scrypt$ln=14,r=8,p=5')

let scryptRuns = 0
createHook({
  init(_id, type) {
    if (type === 'SCRYPTREQUEST') {
      scryptRuns++
    }
  },
}).enable()

function credential(accessKey: string, secretHash: string, more: Partial<Credential> = {}): Credential {
  const expiresAtMs = Number.POSITIVE_INFINITY
  return { accountId: 'acme', accessKey, secretHash, expiresAtMs, disabled: false, ...more }
}

function indexOf(list: readonly Credential[]): CredentialList {
  const index = new CredentialList()
  for (const one of list) {
    index.add(one)
  }
  return index
}

function login(accessKey: string, secret = SECRET, accountId = 'acme'): Login {
  return { accountId, accessKey, secret }
}

/** A store over credentials that a test can replace. */
function makeStore(list: readonly Credential[]) {
  const state = { credentials: indexOf(list), now: NOW }
  const checks = createCredentialChecks(
    { list: () => state.credentials, refresh: async () => true },
    () => state.now,
  )
  const authenticate = async (login: Login, origin: Partial<LoginOrigin> = {}) =>
    (await checks.authenticate(login, { network: 'net', hasLeft: () => false, ...origin })).outcome
  return { store: { ...checks, authenticate }, state, checks }
}

const generatedOnly = [
  credential('fast', fast),
  credential('disabled', fast, { disabled: true }),
  credential('expired', fast, { expiresAtMs: NOW }),
]
const mixed = [
  ...generatedOnly,
  credential('slow', slow),
  credential('slow-disabled', slow, { disabled: true }),
  credential('slow-expired', slow, { expiresAtMs: NOW }),
]

t.test('the right secret is accepted, and a generated one needs no scrypt', async (t) => {
  const { store } = makeStore(mixed)
  scryptRuns = 0
  t.equal(await store.authenticate(login('fast')), 'accepted')
  t.equal(scryptRuns, 0)
  t.equal(await store.authenticate(login('slow')), 'accepted')
  t.equal(scryptRuns, 1)
})

t.test('every failed login costs one scrypt run where any credential is of scrypt, else none', async (t) => {
  const names = [login('fast', 'wrong'), login('unknown'), login('disabled')]
  const ofSlow = [login('slow', 'wrong'), login('slow-disabled'), login('slow-expired')]
  const noNames = [login('fast', ''), login('fast', SECRET, 'unknown'), login('expired')]
  for (const [credentials, failing, runs] of [
    [generatedOnly, [...names, ...noNames], 0],
    [mixed, [...names, login('fast', SECRET, '__proto__'), ...ofSlow], 1],
  ] as const) {
    const { store } = makeStore(credentials)
    for (const attempt of failing) {
      scryptRuns = 0
      t.equal(await store.authenticate(attempt), 'rejected', attempt.accessKey)
      t.equal(scryptRuns, runs)
    }
  }
})

t.test('both secrets log in until the previous one ends, with at most one scrypt run more', async (t) => {
  const previous = 'the former one'
  const formerFast = await hashSecret(previous, 'sha256')
  const formerSlow = await hashSecret(previous, 'scrypt')
  const previousSecretExpiresAtMs = NOW + 1000
  for (const [name, secretHash, previousSecretHash, runs] of [
    ['generated twice', fast, formerFast, { present: 0, previous: 0, wrong: 1 }],
    ['generated after chosen', fast, formerSlow, { present: 0, previous: 1, wrong: 1 }],
    ['chosen after generated', slow, formerFast, { present: 1, previous: 0, wrong: 1 }],
    ['chosen twice', slow, formerSlow, { present: 1, previous: 2, wrong: 2 }],
  ] as const) {
    const rotated = credential('AK', secretHash, { previousSecretHash, previousSecretExpiresAtMs })
    const { store, state, checks } = makeStore([...mixed, rotated])
    const logIn = async (secret: string) => {
      scryptRuns = 0
      const outcome = await store.authenticate(login('AK', secret))
      return [outcome, scryptRuns]
    }
    t.same(await logIn(SECRET), ['accepted', runs.present], name)
    t.same(await logIn(previous), ['accepted', runs.previous], name)
    t.same(await logIn('wrong'), ['rejected', runs.wrong], name)
    const origin = { network: 'net', hasLeft: () => false }
    t.match(await checks.authenticate(login('AK', previous), origin), { usedPreviousSecret: true })
    t.match(await checks.authenticate(login('AK'), origin), { usedPreviousSecret: false })
    state.now = NOW + 1000
    t.same(await logIn(SECRET), ['accepted', runs.present], name)
    t.same(await logIn(previous), ['rejected', 1], `${name}, ended`)
  }
})

t.test('a right secret of a disabled credential costs as much as a wrong one', async (t) => {
  const previousSecretHash = await hashSecret('the former one', 'scrypt')
  const more = { disabled: true, previousSecretHash, previousSecretExpiresAtMs: NOW + 1000 }
  const { store } = makeStore([credential('AK', slow, more)])
  for (const secret of [SECRET, 'the former one', 'wrong']) {
    scryptRuns = 0
    t.equal(await store.authenticate(login('AK', secret)), 'rejected')
    t.equal(scryptRuns, 2)
  }
})

t.test(
  'a login with two readings tries both, and fails after twice the hashes, whatever is wrong',
  async (t) => {
    const { store } = makeStore(mixed)
    const logIn = async (first: Login, second: Login) => {
      scryptRuns = 0
      const outcome = await store.authenticate({ ...first, otherReading: second })
      return [outcome, scryptRuns]
    }
    t.same(await logIn(login('fast'), login('fast', 'wrong')), ['accepted', 0])
    t.same(await logIn(login('fast', 'wrong'), login('fast')), ['accepted', 0])
    t.same(await logIn(login('slow'), login('slow', 'wrong')), ['accepted', 1])
    t.same(await logIn(login('slow', 'wrong'), login('slow')), ['accepted', 2])
    t.same(await logIn(login('unknown'), login('fast')), ['accepted', 0], 'of two names')
    const failing = [
      login('fast', 'wrong'),
      login('slow', 'wrong'),
      login('unknown'),
      login('disabled'),
      login('slow-expired'),
      login('fast', SECRET, 'nobody'),
    ]
    // Each as the first and as the second.
    for (const [at, first] of failing.entries()) {
      const second = failing.at(at - 1) ?? first
      t.same(await logIn(first, second), ['rejected', 2], `${first.accessKey} ${second.accessKey}`)
    }
    t.same(await logIn(login('fast', 'wrong'), login('fast', 'wrong')), ['rejected', 2], 'the same twice')
  },
)

t.test('the account of an access key is known if exactly one credential has it', (t) => {
  const { store } = makeStore([
    ...mixed,
    credential('twice', fast),
    credential('twice', fast, { accountId: 'b' }),
  ])
  t.equal(store.accountOf('fast'), 'acme')
  t.equal(store.accountOf('twice'), undefined)
  t.equal(store.accountOf('unknown'), undefined)
  t.end()
})

t.test('a login whose client has left is not hashed', async (t) => {
  const { store } = makeStore(mixed)
  scryptRuns = 0
  t.equal(await store.authenticate(login('slow'), { hasLeft: () => true }), 'abandoned')
  t.equal(scryptRuns, 0)
})

t.test('a name has the same scrypt parameters in every process, and keeps them after most changes', (t) => {
  const costly = slow.replace('ln=14', 'ln=15')
  const list = [credential('a', slow), credential('b', costly), credential('c', fast)]
  const others = [[...list].reverse(), [...list, credential('d', fast)], [list[0], list[1]]]
  const drawn = (credentials: readonly (Credential | undefined)[]) => {
    const index = indexOf(credentials.filter((one) => one !== undefined))
    return Array.from({ length: 50 }, (_, at) =>
      index.scryptParametersFor({ accountId: `a${at}`, accessKey: 'k' }),
    )
  }
  t.same(new Set(drawn(list)).size, 2)
  for (const other of others) {
    t.same(drawn(other), drawn(list))
  }
  t.notSame(drawn([list[1], credential('a', slowAgain)]), drawn(list), 'and clients cannot compute them')
  t.end()
})

t.test('surplus logins of one network are refused as busy while another network can log in', async (t) => {
  const { store } = makeStore(mixed)
  const flood = Array.from({ length: 200 }, (_, at) =>
    store.authenticate(login('key', 'guess', `invented ${at}`), { network: 'one' }),
  )
  const elsewhere = ['two', 'three'].map((network) => store.authenticate(login('slow'), { network }))
  t.equal(
    await store.authenticate(login('fast'), { network: 'one' }),
    'accepted',
    'a generated secret does not queue',
  )
  t.same(await Promise.all(elsewhere), ['accepted', 'accepted'])
  const verdicts = await Promise.all(flood)
  t.equal(verdicts.filter((verdict) => verdict === 'rejected').length, 9)
  t.equal(verdicts.filter((verdict) => verdict === 'busy').length, 191)
  t.equal(
    await store.authenticate(login('slow'), { network: 'one' }),
    'accepted',
    'and afterwards there is room',
  )
})

t.test('a change made while a secret is being hashed takes effect', async (t) => {
  const changes: [string, readonly Credential[], 'accepted' | 'rejected'][] = [
    ['disabled', [credential('slow', slow, { disabled: true })], 'rejected'],
    ['removed', [], 'rejected'],
    ['given another secret', [credential('slow', slowAgain)], 'rejected'],
    ['joined by another', [...mixed, credential('AK', fast, { accountId: 'new' })], 'accepted'],
  ]
  for (const [what, list, verdict] of changes) {
    const { store, state } = makeStore(mixed)
    const attempt = store.authenticate(login('slow'))
    state.credentials = indexOf(list)
    t.equal(await attempt, verdict, what)
  }
})

t.test('the status says until when tokens of a credential are valid', async (t) => {
  const { store, state } = makeStore([
    ...generatedOnly,
    credential('ends', fast, { expiresAtMs: NOW + 1500 }),
  ])
  t.same(store.credentialStatus('acme', 'fast'), { active: true, endsAtMs: Number.POSITIVE_INFINITY })
  t.same(store.credentialStatus('acme', 'ends'), { active: true, endsAtMs: NOW + 1500 })
  for (const key of ['disabled', 'expired', 'unknown', '__proto__']) {
    t.same(store.credentialStatus('acme', key), { active: false, exists: /ed$/.test(key) }, key)
  }
  t.same(store.credentialStatus('unknown', 'fast'), { active: false, exists: false })
  state.now += 1500
  t.same(store.credentialStatus('acme', 'ends'), { active: false, exists: true }, 'not when it expires')
})

const SALT = 'AAAAAAAAAAAAAAAAAAAAAA'
const DIGEST = 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'

t.test('a generated secret is 256 random bits in base64url', async (t) => {
  const secrets = new Set(Array.from({ length: 100 }, generateSecret))
  t.equal(secrets.size, 100)
  for (const secret of secrets) {
    t.match(secret, /^[\w-]{43}$/)
  }
})

t.test('stored hashes have the documented form', async (t) => {
  // SHA-256 of "abc" (FIPS 180-4), in the PHC alphabet.
  t.equal(await hashSecret('abc', 'sha256'), '$sha256$ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0')
  const stored = await hashSecret('abc', 'scrypt')
  t.match(stored, /^\$scrypt\$ln=14,r=8,p=5\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/)
  const [, , , salt = '', digest = ''] = stored.split('$')
  const expected = scryptSync('abc', Buffer.from(salt, 'base64'), 32, { N: 2 ** 14, r: 8, p: 5 })
  t.same(Buffer.from(digest, 'base64'), expected)
  t.not(await hashSecret('abc', 'scrypt'), stored, 'with a salt of its own')
})

t.test('only the exact bytes of the secret match', async (t) => {
  const secret = ` é${'x'.repeat(80)} `.normalize('NFC')
  const others = [
    secret.trim(),
    secret.slice(0, 72),
    secret.slice(0, -1),
    `${secret} `,
    `${secret}\n`,
    `${secret}\0`,
    secret.normalize('NFD'),
    secret.toUpperCase(),
    '',
  ]
  const sha256 = await hashSecret(secret, 'sha256')
  t.equal(await verifySecret(secret, sha256), true)
  for (const other of others) {
    t.equal(await verifySecret(other, sha256), false)
  }

  const scrypt = await hashSecret(secret, 'scrypt')
  t.equal(await verifySecret(secret, scrypt), true)
  for (const other of others.slice(1, 3)) {
    t.equal(await verifySecret(other, scrypt), false)
  }
})

t.test('a dummy hash has the parameters asked for and matches nothing', async (t) => {
  // The weakest set of OWASP, and the most expensive that is allowed.
  for (const prefix of ['$sha256', '$scrypt$ln=13,r=8,p=10', '$scrypt$ln=16,r=8,p=4']) {
    const dummy = dummyHash(prefix)
    t.ok(dummy.startsWith(`${prefix}$`))
    t.equal(secretHashProblem(dummy), undefined)
    t.equal(await verifySecret('', dummy), false, prefix)
  }
})

t.test('weaker and more expensive parameters are refused', async (t) => {
  for (const parameters of ['ln=12,r=8,p=20', 'ln=14,r=8,p=4', 'ln=14,r=1,p=5', 'ln=1,r=1,p=1']) {
    const result = secretHashProblem(`$scrypt$${parameters}$${SALT}$${DIGEST}`)
    t.match(result, /too weak/, parameters)
  }
  for (const parameters of ['ln=17,r=8,p=1', 'ln=14,r=64,p=1', 'ln=14,r=8,p=17', 'ln=99,r=999,p=999']) {
    const result = secretHashProblem(`$scrypt$${parameters}$${SALT}$${DIGEST}`)
    t.match(result, /cost too much/, parameters)
  }
})

t.test('anything but a complete canonical hash is refused, and not echoed', async (t) => {
  const others = [
    '',
    'a plain secret',
    `$sha256$${DIGEST}=`,
    `$sha256$${DIGEST.slice(1)}`,
    `$sha256$${DIGEST.slice(0, -1)}B`, // stray last bits: a second spelling of the same digest
    `$SHA256$${DIGEST}`,
    ` $sha256$${DIGEST}`,
    `$sha256$${DIGEST}\n`,
    `$2b$12$${DIGEST}`,
    `$scrypt$${SALT}$${DIGEST}`,
    `$scrypt$ln=014,r=8,p=5$${SALT}$${DIGEST}`,
    `$scrypt$r=8,ln=14,p=5$${SALT}$${DIGEST}`,
    `$scrypt$ln=14,r=8,p=5$AAAA$${DIGEST}`,
    `$scrypt$ln=14,r=8,p=5$${SALT.slice(0, -1)}B$${DIGEST}`,
    `$scrypt$ln=14,r=8,p=5$${SALT}$${DIGEST.slice(0, -1)}B`,
  ]
  for (const other of others) {
    t.equal(
      secretHashProblem(other),
      'must be a complete $sha256$ or $scrypt$ hash, as `credentials add` writes it',
      other,
    )
  }
})

const NAME = { accountId: 'acme', accessKey: 'AK' }

type Outcome = LoginVerdict['outcome']

const verdictOf = (outcome: Outcome): LoginVerdict =>
  outcome === 'accepted'
    ? { outcome, credential: credential('AK', fast), secretHash: fast, usedPreviousSecret: false }
    : { outcome }

/** A throttle of three failures a minute, whose clock the test sets. */
function throttled() {
  const clock = { now: 1_800_000_000_000 }
  const throttle = createLoginThrottle({ count: 3, windowSeconds: 60 }, () => clock.now)
  /** Tries to log in, and returns the seconds to wait where that is refused. */
  const login = async (outcome: Outcome, accountId = 'acme', address = '192.0.2.1', accessKey = 'AK') => {
    const verdict = await throttle({ accountId, accessKey }, address, async () => verdictOf(outcome))
    return verdict.outcome === 'throttled' ? verdict.retryAfterSeconds : undefined
  }
  const fail = (count: number) => Promise.all(Array.from({ length: count }, () => login('rejected')))
  return { clock, throttle, login, fail }
}

/** Concurrent logins of one pair, whose checks the test ends in order of their start. */
async function concurrent({ throttle }: ReturnType<typeof throttled>, count: number) {
  const checks: ((verdict: LoginVerdict) => void)[] = []
  const check = () => new Promise<LoginVerdict>((resolve) => checks.push(resolve))
  const attempts = Array.from({ length: count }, () => throttle(NAME, '192.0.2.1', check))
  await setImmediate()
  const end = async (at: number, outcome: Outcome) => {
    checks[at]?.(verdictOf(outcome))
    await setImmediate()
  }
  return { attempts, started: () => checks.length, end }
}

t.test('after the allowed failures a pair is refused until the window has passed', async (t) => {
  const { clock, login, fail } = throttled()
  t.same(await fail(3), [undefined, undefined, undefined])
  t.equal(await login('accepted'), 60, 'the right secret too')
  clock.now += 59_999
  t.equal(await login('accepted'), 1)
  clock.now += 1
  t.same(await fail(4), [undefined, undefined, undefined, 60])
})

t.test('an unchecked login is not a failure', async (t) => {
  const { login } = throttled()
  for (const verdict of ['busy', 'unavailable'] as const) {
    for (let times = 0; times < 10; times++) {
      t.equal(await login(verdict), undefined)
    }
  }
})

t.test('200 concurrent guesses get no more checks than the allowed failures', async (t) => {
  const { attempts, started, end } = await concurrent(throttled(), 200)
  for (const at of [1, 0, 2]) {
    t.equal(started(), 3, 'those in flight may fail')
    await end(at, 'rejected')
  }
  const outcomes = await Promise.all(attempts)
  t.equal(outcomes.filter(({ outcome }) => outcome === 'rejected').length, 3)
  for (const outcome of outcomes.slice(3)) {
    t.same(outcome, { outcome: 'throttled', retryAfterSeconds: 60 })
  }
  t.equal(started(), 3)
})

t.test('logins beyond the count wait, and none is refused before a failure', async (t) => {
  const { attempts, started, end } = await concurrent(throttled(), 8)
  await end(0, 'accepted')
  t.equal(started(), 4)
  await end(1, 'rejected')
  t.equal(started(), 4, 'one failure leaves two attempts at a time')
  await end(2, 'busy')
  t.equal(started(), 5)
  await end(3, 'accepted')
  t.equal(started(), 7, 'a success clears the failure')
  for (const at of [4, 5, 6, 7]) {
    await end(at, 'accepted')
  }
  const verdicts = (await Promise.all(attempts)).map(({ outcome }) => outcome)
  const accepted = 'accepted'
  t.same(verdicts, [accepted, 'rejected', 'busy', accepted, accepted, accepted, accepted, accepted])
})

t.test('at most 1,000 logins of a pair wait, and other pairs are not affected', async (t) => {
  const setup = throttled()
  const { attempts, started, end } = await concurrent(setup, 1004)
  t.same(await attempts[1003], { outcome: 'busy' })
  const others = Array.from({ length: 5 }, () =>
    setup.throttle({ ...NAME, accountId: 'other' }, '192.0.2.1', async () => verdictOf('accepted')),
  )
  for (const { outcome } of await Promise.all(others)) {
    t.equal(outcome, 'accepted')
  }
  for (let at = 0; at < 1003; at++) {
    await end(at, 'accepted')
  }
  t.equal(started(), 1003)
})

t.test('the table is bounded: beyond 50,000 pairs the least recently used is dropped', async (t) => {
  const { login, fail } = throttled()
  await fail(3)
  for (let times = 0; times < 3; times++) {
    await login('rejected', 'unused')
  }
  for (let at = 0; at < 50_000; at++) {
    await login('rejected', `account ${at}`, '198.51.100.1')
    if (at === 25_000) {
      t.equal(await login('accepted'), 60)
    }
  }
  t.equal(await login('accepted'), 60, 'a pair that is still used stays')
  t.equal(await login('rejected', 'unused'), undefined)
})

t.test('an accepted login removes the failures of its own access key only', async (t) => {
  const { clock, login } = throttled()
  const guess = (outcome: Outcome, accessKey: string) => login(outcome, 'acme', '192.0.2.1', accessKey)
  for (let times = 0; times < 2; times++) {
    await guess('rejected', 'victim')
    clock.now += 1000
    t.equal(await guess('accepted', 'own'), undefined)
  }
  await guess('rejected', 'own')
  t.equal(await guess('accepted', 'own'), 58, 'refused, like any login of the pair')
  clock.now += 58_000
  t.equal(await guess('accepted', 'own'), undefined)
})
