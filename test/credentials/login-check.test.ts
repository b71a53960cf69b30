import t from 'tap'
import { type Account, type Credential, createAccounts } from '../../src/credentials/accounts.ts'
import { createHashQueue, type HashQueue } from '../../src/credentials/hash-queue.ts'
import { createCredentialStore } from '../../src/credentials/login-check.ts'
import { hashSecret, parseSecretHash, type SecretHash } from '../../src/credentials/secret-hash.ts'
import type { Login } from '../../src/credentials/store.ts'

const NOW = 1_800_000_000_000
const SECRET = 'right'

async function hashed(secret: string, scheme: SecretHash['scheme']): Promise<SecretHash> {
  const parsed = parseSecretHash(await hashSecret(secret, scheme))
  if (!parsed.ok) throw new Error(parsed.problem)
  return parsed.hash
}

const fast = await hashed(SECRET, 'sha256')
const slow = await hashed(SECRET, 'scrypt')

function credential(accessKey: string, secretHash: SecretHash, more: Partial<Credential> = {}): Credential {
  return { accessKey, secretHash, expiresAt: Number.POSITIVE_INFINITY, disabled: false, ...more }
}

function login(accessKey: string, secret = SECRET, accountId = 'acme'): Login {
  return { accountId, accessKey, secret }
}

/** A store whose slow hashing is counted, over accounts that a test can replace. */
function makeStore(list: readonly Account[], queue: HashQueue = createHashQueue()) {
  const state = {
    accounts: createAccounts(list),
    runs: 0,
    now: NOW,
    faults: [] as unknown[],
    clients: [] as string[],
  }
  const hashQueue: HashQueue = {
    run(client, job) {
      state.runs++
      state.clients.push(client)
      return queue.run(client, job)
    },
  }
  const store = createCredentialStore({
    accounts: () => state.accounts,
    hashQueue,
    now: () => state.now,
    onFault: (cause) => state.faults.push(cause),
  })
  return { store, state }
}

const generatedOnly: Account = {
  accountId: 'acme',
  credentials: [
    credential('fast', fast),
    credential('disabled', fast, { disabled: true }),
    credential('expired', fast, { expiresAt: NOW }),
  ],
}

const mixed: Account = {
  accountId: 'acme',
  credentials: [
    ...generatedOnly.credentials,
    credential('slow', slow),
    credential('slow-disabled', slow, { disabled: true }),
    credential('slow-expired', slow, { expiresAt: NOW }),
  ],
}

t.test('the right secret is accepted', async (t) => {
  const { store, state } = makeStore([mixed])
  t.equal(await store.authenticate(login('fast')), 'accepted')
  t.equal(state.runs, 0, 'a generated secret needs no slow hash')
  t.equal(await store.authenticate(login('slow')), 'accepted')
  t.equal(state.runs, 1)
})

t.test('without scrypt credentials a failed login costs no slow hash', async (t) => {
  const { store, state } = makeStore([generatedOnly])
  const failing = [
    login('fast', 'wrong'),
    login('fast', ''),
    login('unknown'),
    login('fast', SECRET, 'unknown'),
    login('disabled'),
    login('expired'),
  ]
  for (const attempt of failing) t.equal(await store.authenticate(attempt), 'rejected')
  t.equal(state.runs, 0)
})

t.test('with any scrypt credential every failed login costs exactly one scrypt run', async (t) => {
  const { store, state } = makeStore([mixed])
  const failing = [
    login('fast', 'wrong'),
    login('unknown'),
    login('fast', SECRET, 'unknown'),
    login('fast', SECRET, '__proto__'),
    login('disabled'),
    login('expired'),
    login('slow', 'wrong'),
    login('slow-disabled'),
    login('slow-disabled', 'wrong'),
    login('slow-expired'),
  ]
  for (const [index, attempt] of failing.entries()) {
    t.equal(await store.authenticate(attempt), 'rejected', attempt.accessKey)
    t.equal(state.runs, index + 1)
  }
})

t.test('where scrypt prices differ, a name always costs the same one', async (t) => {
  const prices = [
    { cost: 2 ** 13, blockSize: 8, parallelization: 10 },
    { cost: 2 ** 14, blockSize: 8, parallelization: 5 },
  ]
  const drawn: string[] = []
  const scryptCosts = new Proxy(prices, {
    get(list, key) {
      if (key !== 'length') drawn.push(String(key))
      return Reflect.get(list, key)
    },
  })
  const store = createCredentialStore({
    accounts: () => ({ has: () => false, find: () => undefined, scryptCosts }),
    hashQueue: { run: async () => ({ ran: false }) },
    now: () => NOW,
  })
  for (let name = 0; name < 100; name++) {
    await store.authenticate(login('key', SECRET, `account ${name}`))
    await store.authenticate(login('key', 'another secret', `account ${name}`))
    t.equal(drawn.at(-1), drawn.at(-2))
  }
  t.same(new Set(drawn), new Set(['0', '1']), 'and every price is drawn for some name')
})

t.test('a full queue is busy, whatever the login would have failed on', async (t) => {
  const full: HashQueue = { run: async () => ({ ran: false }) }
  const { store } = makeStore([mixed], full)
  for (const attempt of [login('slow'), login('slow', 'wrong'), login('unknown'), login('fast', 'wrong')]) {
    t.equal(await store.authenticate(attempt), 'busy')
  }
  t.equal(await store.authenticate(login('fast')), 'accepted', 'a generated secret does not queue')
})

t.test('clients take turns at slow hashing, one for each network', async (t) => {
  const { store, state } = makeStore([mixed])
  for (const address of ['192.0.2.1', '::ffff:192.0.2.1', '2001:db8::1', '2001:db8::2']) {
    await store.authenticate(login('slow'), address)
  }
  await store.authenticate(login('unknown'))
  t.same(state.clients, ['192.0.2.1', '192.0.2.1', '2001:db8:0:0:0:0:0:0/64', '2001:db8:0:0:0:0:0:0/64', ''])
})

t.test(
  'names that nobody has, invented at one address, turn away no right secret from another',
  async (t) => {
    const hashQueue = createHashQueue()
    const { store } = makeStore([mixed], hashQueue)
    const flood = Array.from({ length: 40 }, (_, at) =>
      store.authenticate(login('key', 'guess', `invented ${at}`), '192.0.2.66'),
    )
    const elsewhere = ['198.51.100.1', '198.51.100.2', '198.51.100.3'].map((address) =>
      store.authenticate(login('slow'), address),
    )
    t.same(await Promise.all(elsewhere), ['accepted', 'accepted', 'accepted'])
    const verdicts = await Promise.all(flood)
    t.ok(verdicts.includes('busy'), 'the flood itself is told to come back')
    t.equal(verdicts.filter((verdict) => verdict === 'rejected').length, 17 - elsewhere.length)
  },
)

t.test('a fault while hashing is told and makes the store unavailable, never an exception', async (t) => {
  const broken: HashQueue = { run: () => Promise.reject(new Error('no memory')) }
  const { store, state } = makeStore([mixed], broken)
  t.equal(await store.authenticate(login('slow')), 'unavailable')
  t.match(state.faults, [{ message: 'no memory' }])

  const quiet = createCredentialStore({
    accounts: () => createAccounts([mixed]),
    hashQueue: broken,
    now: () => NOW,
  })
  t.equal(await quiet.authenticate(login('slow')), 'unavailable')
})

t.test('what changes while a secret is hashed decides', async (t) => {
  const another = await hashed('another', 'scrypt')
  const changes: [string, readonly Account[], 'accepted' | 'rejected'][] = [
    [
      'disabled',
      [{ accountId: 'acme', credentials: [credential('slow', slow, { disabled: true })] }],
      'rejected',
    ],
    [
      'expired',
      [{ accountId: 'acme', credentials: [credential('slow', slow, { expiresAt: NOW })] }],
      'rejected',
    ],
    ['removed', [], 'rejected'],
    ['given another secret', [{ accountId: 'acme', credentials: [credential('slow', another)] }], 'rejected'],
    ['joined by another', [mixed, { accountId: 'new', credentials: [] }], 'accepted'],
  ]
  for (const [what, list, verdict] of changes) {
    const { store, state } = makeStore([mixed])
    const attempt = store.authenticate(login('slow'))
    state.accounts = createAccounts(list)
    t.equal(await attempt, verdict, what)
  }
})

t.test('standing says until when tokens of a credential are good', async (t) => {
  const { store, state } = makeStore([
    { accountId: 'acme', credentials: [credential('ends', fast, { expiresAt: NOW + 1500 })] },
    generatedOnly,
  ])
  state.accounts = createAccounts([
    {
      accountId: 'acme',
      credentials: [...generatedOnly.credentials, credential('ends', fast, { expiresAt: NOW + 1500 })],
    },
  ])
  t.same(store.standing('acme', 'fast'), { inForce: true, until: Number.POSITIVE_INFINITY })
  t.same(store.standing('acme', 'ends'), { inForce: true, until: NOW / 1000 + 1.5 })
  for (const key of ['disabled', 'expired', 'unknown', '__proto__']) {
    t.same(store.standing('acme', key), { inForce: false }, key)
  }
  t.same(store.standing('unknown', 'fast'), { inForce: false })
  state.now += 1500
  t.same(store.standing('acme', 'ends'), { inForce: false }, 'not at the very moment it expires')
})
