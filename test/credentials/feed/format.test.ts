import { gzipSync } from 'node:zlib'
import fc from 'fast-check'
import t from 'tap'
import { errorIn } from '../../../src/base/result.ts'
import {
  credentialKey,
  type FeedCredential,
  type FeedDocument,
  type FeedRevocation,
} from '../../../src/credentials/feed/format.ts'
import { FollowedState } from '../../../src/credentials/feed/state.ts'
import { parseFeed } from '../../../src/credentials/feed/updates.ts'
import { longestTurnMs, withoutThreadTimes } from '../../support/turns.ts'

const WHOLE: FeedDocument = {
  format: 1,
  version: 'r1',
  from: null,
  credentials: { set: [{ accountId: 'acme', accessKey: 'AK' }], removed: [] },
  revocations: { set: [{ jti: 'j1' }], removed: [] },
}
const parseText = (text: string) => parseFeed({ bytes: Buffer.from(text), isCompressed: false })
const parse = (document: unknown) => parseText(JSON.stringify(document) ?? '')

async function parsed(document: FeedDocument) {
  const update = await parse(document)
  if (!update.ok) {
    throw new Error(update.error)
  }
  return update.value
}

const withCredentials = (...set: unknown[]) => ({ ...WHOLE, credentials: { set, removed: [] } })
const withRevocations = (...set: unknown[]) => ({ ...WHOLE, revocations: { set, removed: [] } })
const AK = { accountId: 'acme', accessKey: 'AK' }

t.test('a whole state and changes are read, with times as epoch milliseconds', async (t) => {
  const whole = await parsed({
    ...WHOLE,
    credentials: {
      set: [{ ...AK, expiresAt: '2027-01-01T00:00:00Z', scope: 'storage.read:/' }],
      removed: [],
    },
    revocations: { set: [{ accountId: 'acme', issuedBefore: '2026-01-01T01:00:00+01:00' }], removed: [] },
  })
  t.match(whole, {
    version: 'r1',
    from: null,
    credentials: { set: [{ ...AK, expiresAtMs: Date.UTC(2027), scope: 'storage.read:/' }] },
    revocations: { set: [{ accountId: 'acme', issuedBeforeMs: Date.UTC(2026) }] },
  })
  const changes = await parsed({
    ...WHOLE,
    version: 'r 2\n"ü"',
    from: 'r1',
    credentials: { set: [], removed: [AK] },
    revocations: { set: [], removed: [{ jti: 'j1', issuer: 'https://idp' }] },
  })
  t.match(changes, { version: 'r 2\n"ü"', from: 'r1', credentials: { removed: [AK] } })
})

t.test('a document that is not as agreed is refused as a whole, and no problem quotes it', async (t) => {
  const documents: readonly unknown[] = [
    null,
    [],
    'text',
    {},
    { ...WHOLE, format: 2 },
    { ...WHOLE, format: '1' },
    { ...WHOLE, format: undefined },
    { ...WHOLE, secret: 'SECRET' },
    { ...WHOLE, version: '' },
    { ...WHOLE, version: 7 },
    { ...WHOLE, version: 'v'.repeat(1025) },
    { ...WHOLE, version: '\ud800' },
    { ...WHOLE, from: undefined },
    { ...WHOLE, from: '' },
    { ...WHOLE, credentials: undefined },
    { ...WHOLE, credentials: [] },
    { ...WHOLE, credentials: { set: [] } },
    { ...WHOLE, credentials: { set: {}, removed: [] } },
    { ...WHOLE, credentials: { set: [], removed: [], added: [] } },
    { ...WHOLE, credentials: { set: [], removed: [AK] } },
    { ...WHOLE, revocations: { set: [], removed: [{ jti: 'j2' }] } },
    { ...WHOLE, from: 'r0', credentials: { set: [AK], removed: [AK] } },
    { ...WHOLE, from: 'r0', revocations: { set: [{ jti: 'SECRET' }], removed: [{ jti: 'SECRET' }] } },
    withCredentials(AK, { ...AK, scope: 'storage.read:/' }),
    withCredentials(null),
    withCredentials('SECRET'),
    withCredentials({ accountId: 'acme' }),
    withCredentials({ ...AK, accessKey: '' }),
    withCredentials({ ...AK, accessKey: 'A\u0001' }),
    withCredentials({ ...AK, accessKey: '\ud800' }),
    withCredentials({ ...AK, accessKey: 'ü'.repeat(1025) }),
    withCredentials({ ...AK, accountId: 1 }),
    withCredentials({ ...AK, scope: '' }),
    withCredentials({ ...AK, scope: null }),
    withCredentials({ ...AK, scope: 'storage.write:/' }),
    withCredentials({ ...AK, expiresAt: '2027-01-01' }),
    withCredentials({ ...AK, expiresAt: 1 }),
    withCredentials({ ...AK, secretHash: 'SECRET' }),
    withCredentials({ ...AK, disabled: true }),
    withRevocations({}),
    withRevocations({ jti: 'SECRET', accountId: 'acme' }),
    withRevocations({ jti: 'SECRET', issuedBefore: '2027-01-01T00:00:00Z' }),
    withRevocations({ accessKey: 'AK', issuer: 'SECRET' }),
    withRevocations({ jti: 'SECRET', scope: 'x' }),
    withRevocations({ jti: { deep: [[[]]] } }),
  ]
  for (const document of documents) {
    const problem = errorIn(await parse(document))
    t.type(problem, 'string', JSON.stringify(document)?.slice(0, 100))
    t.notMatch(problem, /SECRET/)
  }
  t.equal(errorIn(await parseText('{"format": 1')), 'is no JSON')
  t.equal(errorIn(await parseText('')), 'is no JSON')
})

t.test('__proto__ is a name like any other, and no member', async (t) => {
  const text = JSON.stringify(withCredentials({ ...AK, accountId: '__proto__' }))
  const update = await parseText(text)
  t.equal(update.ok, true)
  t.equal((await parseText(text.replace('"accountId"', '"__proto__":{},"accountId"'))).ok, false)
})

const manyEntries = (count: number): FeedDocument => ({
  ...WHOLE,
  credentials: {
    set: Array.from({ length: count }, (_, at) => ({
      accountId: `account-${at % 1000}`,
      accessKey: `AK${at}`,
    })),
    removed: [],
  },
})

const turning = 'a state of 100,000 credentials is parsed and made while the event loop keeps turning'
t.test(turning, { skip: withoutThreadTimes }, async (t) => {
  const bytes = gzipSync(JSON.stringify(manyEntries(100_000)))
  const parsing = parseFeed({ bytes, isCompressed: true })
  const parsingMs = await longestTurnMs(parsing)
  const update = await parsing
  if (!update.ok) {
    throw new Error(update.error)
  }
  const making = FollowedState.of(update.value)
  const makingMs = await longestTurnMs(making)
  t.equal((await making).size, 100_000)
  t.ok(parsingMs < 100, `${parsingMs} ms`) // without a thread: 50 ms on an idle machine, else 170
  t.ok(makingMs < 100, `${makingMs} ms`)
})

t.test(
  'a large document that is not as agreed is refused as a small one, whatever comes before',
  async (t) => {
    const large = manyEntries(2000)
    const [first] = large.credentials.set
    const repeated = { ...large, credentials: { set: [...large.credentials.set, first], removed: [] } }
    t.equal(errorIn(await parse(repeated)), 'repeats a credential')
    const member = { ...large, revocations: { set: [{ jti: 'SECRET', scope: 'x' }], removed: [] } }
    t.match(errorIn(await parse(member)), /invalid entry revocations.set\[0\]/)
    const changes = { ...large, from: 'r0', revocations: { set: [{ jti: 'j' }], removed: [{ jti: 'j' }] } }
    t.equal(errorIn(await parse(changes)), 'sets and removes one revocation')
    const stopped = new AbortController()
    const bytes = Buffer.from(JSON.stringify(large))
    const parsing = parseFeed({ bytes, isCompressed: false }, stopped.signal)
    stopped.abort()
    t.match(errorIn(await parsing), /cannot be parsed/)
  },
)

interface Model {
  readonly credentials: ReadonlyMap<string, FeedCredential>
  readonly revocations: ReadonlyMap<string, FeedRevocation>
}

/** A slow difference, to compare with. */
function changesBetween<T>(before: ReadonlyMap<string, T>, after: ReadonlyMap<string, T>) {
  const set = [...after].filter(([key, entry]) => JSON.stringify(before.get(key)) !== JSON.stringify(entry))
  const removed = [...before].filter(([key]) => !after.has(key))
  return { set: set.map(([, entry]) => entry), removed: removed.map(([, entry]) => entry) }
}

const name = fc.constantFrom('a', 'b', '__proto__', 'ü')
const credential = fc.record<FeedCredential>(
  {
    accountId: name,
    accessKey: name,
    expiresAt: fc.constantFrom('2027-01-01T00:00:00Z', '2028-01-01T00:00:00Z'),
    scope: fc.constantFrom('storage.read:/', 'storage.read:/a'),
  },
  { requiredKeys: ['accountId', 'accessKey'] },
)
const revocation = fc.oneof<fc.Arbitrary<FeedRevocation>[]>(
  fc.record({ jti: name, issuer: name }, { requiredKeys: ['jti'] }),
  fc.record(
    { accountId: name, issuedBefore: fc.constant('2026-01-01T00:00:00Z') },
    { requiredKeys: ['accountId'] },
  ),
  fc.record({ accessKey: name }),
)
const model: fc.Arbitrary<Model> = fc
  .record({ credentials: fc.array(credential), revocations: fc.array(revocation) })
  .map(({ credentials, revocations }) => ({
    credentials: new Map(credentials.map((one) => [credentialKey(one), one])),
    revocations: new Map(revocations.map((one) => [JSON.stringify(one), one])),
  }))

function documentBetween(before: Model | undefined, after: Model, number: number): FeedDocument {
  const empty: Model = { credentials: new Map(), revocations: new Map() }
  const credentials = changesBetween((before ?? empty).credentials, after.credentials)
  const removed = credentials.removed.map(({ accountId, accessKey }) => ({ accountId, accessKey }))
  return {
    format: 1,
    version: `v${number}`,
    from: before === undefined ? null : `v${number - 1}`,
    credentials: { set: credentials.set, removed },
    revocations: changesBetween((before ?? empty).revocations, after.revocations),
  }
}

t.test('changes that lead on from a state give what the whole state gives', async (t) => {
  await fc.assert(
    fc.asyncProperty(model, fc.array(model, { maxLength: 4 }), async (first, later) => {
      const state = await FollowedState.of(await parsed(documentBetween(undefined, first, 0)))
      let before = first
      for (const [index, after] of later.entries()) {
        state.apply(await parsed(documentBetween(before, after, index + 1)))
        before = after
      }
      const whole = await parsed(documentBetween(undefined, before, later.length))
      const fresh = await FollowedState.of(whole)
      t.equal(state.version, fresh.version)
      t.equal(state.fingerprint, fresh.fingerprint)
      t.equal(state.revocations.fingerprint, fresh.revocations.fingerprint)
      t.equal(state.size, fresh.size)
      t.equal(state.revocations.size, fresh.revocations.size)
      for (const account of ['a', 'b', '__proto__', 'ü']) {
        t.equal(state.hasAccount(account), fresh.hasAccount(account))
      }
    }),
    { numRuns: 200 },
  )
})

t.test('what is removed may be missing, and an entry that comes twice is one', async (t) => {
  const state = await FollowedState.of(await parsed(WHOLE))
  const other = { accountId: 'acme', accessKey: 'other' }
  const changes = { ...WHOLE, version: 'r2', from: 'r1' }
  state.apply(
    await parsed({
      ...changes,
      credentials: { set: [], removed: [other] },
      revocations: { set: [{ jti: 'j1' }, { jti: 'j1' }], removed: [{ jti: 'j2' }] },
    }),
  )
  t.equal(state.size, 1)
  t.equal(state.revocations.size, 1)
  state.apply(
    await parsed({
      ...changes,
      credentials: { set: [], removed: [AK] },
      revocations: { set: [], removed: [{ jti: 'j1' }] },
    }),
  )
  t.equal(state.hasAccount('acme'), false)
  t.equal(state.revocations.size, 0)
})

t.test('a credential ends at its time, and is found until it is removed', async (t) => {
  const state = await FollowedState.of(
    await parsed(withCredentials({ ...AK, expiresAt: '2027-01-01T00:00:00Z' }) as FeedDocument),
  )
  t.equal(state.countActive(Date.UTC(2027) - 1), 1)
  t.equal(state.countActive(Date.UTC(2027)), 0)
  t.equal(state.find(AK)?.expiresAtMs, Date.UTC(2027))
})
