import { createHook } from 'node:async_hooks'
import t from 'tap'
import { hashSecret } from '../../src/credentials/secret-hash.ts'
import {
  type Credential,
  CredentialIndex,
  createCredentialStore,
  type Login,
} from '../../src/credentials/store.ts'

const NOW = 1_800_000_000_000
const SECRET = 'right'
const fast = await hashSecret(SECRET, 'sha256')
const slow = await hashSecret(SECRET, 'scrypt')
const slowAgain = await hashSecret(SECRET, 'scrypt')

let scryptRuns = 0
createHook({
  init(_id, type) {
    if (type === 'SCRYPTREQUEST') scryptRuns++
  },
}).enable()

function credential(accessKey: string, secretHash: string, more: Partial<Credential> = {}): Credential {
  const expiresAtMs = Number.POSITIVE_INFINITY
  return { accountId: 'acme', accessKey, secretHash, expiresAtMs, disabled: false, ...more }
}

function indexOf(list: readonly Credential[]): CredentialIndex {
  const index = new CredentialIndex()
  for (const one of list) index.add(one)
  return index
}

function login(accessKey: string, secret = SECRET, accountId = 'acme'): Login {
  return { accountId, accessKey, secret }
}

/** A store over credentials that a test can replace. */
function makeStore(list: readonly Credential[]) {
  const state = { credentials: indexOf(list), now: NOW }
  const store = createCredentialStore(
    () => state.credentials,
    () => state.now,
  )
  return { store, state }
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
  for (const other of others) t.same(drawn(other), drawn(list))
  t.notSame(drawn([list[1], credential('a', slowAgain)]), drawn(list), 'and a stranger cannot compute them')
  t.end()
})

t.test('surplus logins of one network are refused as busy while another network can log in', async (t) => {
  const { store } = makeStore(mixed)
  const flood = Array.from({ length: 200 }, (_, at) =>
    store.authenticate(login('key', 'guess', `invented ${at}`), 'one'),
  )
  const elsewhere = ['two', 'three'].map((client) => store.authenticate(login('slow'), client))
  t.equal(await store.authenticate(login('fast'), 'one'), 'accepted', 'a generated secret does not queue')
  t.same(await Promise.all(elsewhere), ['accepted', 'accepted'])
  const verdicts = await Promise.all(flood)
  t.equal(verdicts.filter((verdict) => verdict === 'rejected').length, 9)
  t.equal(verdicts.filter((verdict) => verdict === 'busy').length, 191)
  t.equal(await store.authenticate(login('slow'), 'one'), 'accepted', 'and afterwards there is room')
})

t.test('a change made while a secret is being hashed takes effect', async (t) => {
  const another = await hashSecret('another', 'scrypt')
  const changes: [string, readonly Credential[], 'accepted' | 'rejected'][] = [
    ['disabled', [credential('slow', slow, { disabled: true })], 'rejected'],
    ['removed', [], 'rejected'],
    ['given another secret', [credential('slow', another)], 'rejected'],
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
    t.same(store.credentialStatus('acme', key), { active: false }, key)
  }
  t.same(store.credentialStatus('unknown', 'fast'), { active: false })
  state.now += 1500
  t.same(store.credentialStatus('acme', 'ends'), { active: false }, 'not at the very moment it expires')
})
