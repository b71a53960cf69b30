/**
 * The differ against a slow model: whatever the states, and in however many steps a follower
 * receives what lies between them, it ends with the last one.
 */
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { type Credential, CredentialList } from '../../src/credentials/credential-list.ts'
import { FollowedState } from '../../src/credentials/feed/state.ts'
import { parseFeed } from '../../src/credentials/feed/updates.ts'
import { type Revocation, RevocationList } from '../../src/credentials/revocation-list.ts'
import {
  type Changes,
  diff,
  type FeedState,
  joined,
  touchedCredentials,
  touchedRevocations,
} from '../../src/feed/diff.ts'
import { Documents } from '../../src/feed/documents.ts'
import { History } from '../../src/feed/history.ts'

const NOW = Date.parse('2027-01-01T00:00:00Z')
const HOUR = 3_600_000
/** Also by the clock of a hub that is wrong by a day. */
const LONG_ENDED = NOW - 25 * HOUR
const HASH = 'a-hash-that-nobody-may-read'

interface Rows {
  readonly credentials: readonly Credential[]
  readonly file: readonly Revocation[]
  readonly database: readonly Revocation[]
}

const name = fc.constantFrom('a', 'b', 'c', 'ä', '%')
const credential = fc.record({
  accountId: name,
  accessKey: name,
  secretHash: fc.constant(HASH),
  disabled: fc.boolean(),
  expiresAtMs: fc.constantFrom(NOW - HOUR, NOW + HOUR, Number.POSITIVE_INFINITY),
  scope: fc.constantFrom(undefined, null, 'storage.read:/a', 'storage.modify:/'),
})
const time = fc.constantFrom(undefined, null, LONG_ENDED, NOW + HOUR)
const revocation: fc.Arbitrary<Revocation> = fc.oneof(
  fc.record({ jti: name, issuer: fc.constantFrom(undefined, null, 'i', 'j'), expiresAtMs: time }),
  fc.record({ accountId: name, issuedBeforeMs: time }),
  fc.record({ accessKey: name, issuedBeforeMs: time }),
)
const rows: fc.Arbitrary<Rows> = fc.record({
  credentials: fc.array(credential, { maxLength: 12 }),
  file: fc.array(revocation, { maxLength: 6 }),
  database: fc.array(revocation, { maxLength: 6 }),
})

function stateOf({ credentials, file, database }: Rows): FeedState {
  const list = new CredentialList()
  const byName = new Map(credentials.map((each) => [`${each.accountId}/${each.accessKey}`, each]))
  for (const each of byName.values()) {
    list.add(each)
  }
  return { credentials: list, revocations: [revocationsOf(file), revocationsOf(database)] }
}

function revocationsOf(revocations: readonly Revocation[]): RevocationList {
  const list = new RevocationList()
  for (const each of revocations) {
    list.add(each)
  }
  return list
}

/** The model: what a follower of this state must have, as sorted text. */
function expected({ credentials, file, database }: Rows) {
  const byName = new Map<string, Credential>(
    credentials.map((each) => [`${each.accountId}/${each.accessKey}`, each]),
  )
  const usable = [...byName.values()].filter(({ disabled, expiresAtMs }) => !disabled && NOW < expiresAtMs)
  const all = [...file, ...database].map(({ jti, issuer, accountId, accessKey, issuedBeforeMs }) =>
    [jti, issuer, accountId, accessKey, issuedBeforeMs].map((value) => value ?? '').join('|'),
  )
  return {
    credentials: usable
      .map(({ accountId, accessKey, expiresAtMs, scope }) =>
        [accountId, accessKey, expiresAtMs, scope ?? ''].join('|'),
      )
      .sort(),
    revocations: [...new Set(all)].sort(),
  }
}

/** What the follower has that counts now: what has ended counts for nothing, sent or not. */
function found(state: FollowedState, alive: (key: string) => boolean) {
  const { credentials, revocations } = state.entries()
  return {
    credentials: credentials
      .filter(({ expiresAtMs }) => NOW < expiresAtMs)
      .map(({ accountId, accessKey, expiresAtMs, scope }) =>
        [accountId, accessKey, expiresAtMs, scope ?? ''].join('|'),
      )
      .sort(),
    revocations: revocations.map(readable).filter(alive).sort(),
  }
}

/** A key of `revocationKey` in the words of the model. */
function readable(key: string): string {
  const [kind, first = '', second = ''] = key.split('\u0001')
  if (kind === 'jti') {
    return [first, second, '', '', ''].join('|')
  }
  return kind === 'accountId' ? ['', '', first, '', second].join('|') : ['', '', '', first, second].join('|')
}

/** Revocations of tokens that have ended may be sent or not. */
function endedIn({ file, database }: Rows): Set<string> {
  const ended = [...file, ...database].filter(({ expiresAtMs }) => expiresAtMs != null && expiresAtMs <= NOW)
  return new Set(ended.map(({ jti, issuer }) => [jti, issuer ?? '', '', '', ''].join('|')))
}

const documents = () => new Documents(() => NOW)

async function follow(state: FeedState): Promise<FollowedState> {
  const body = await documents().whole('1', state).body('identity')
  return FollowedState.of(await checked(body))
}

const NOTHING = stateOf({ credentials: [], file: [], database: [] })

async function apply(state: FollowedState, changes: Changes): Promise<void> {
  const history = { since: () => changes, bytesSince: () => 0 }
  const document = documents().changesOrWhole('2', '1', history, NOTHING)
  state.apply(await checked(await document.body('identity')))
}

async function checked(body: Buffer) {
  t.notMatch(String(body), HASH)
  const update = await parseFeed({ bytes: body, isCompressed: false })
  if (!update.ok) {
    throw new Error(update.error)
  }
  return update.value
}

async function compare(t: Test, follower: FollowedState, last: Rows): Promise<void> {
  const ended = endedIn(last)
  const isAlive = (key: string) => !ended.has(key)
  const { credentials, revocations } = expected(last)
  t.same(found(follower, isAlive), { credentials, revocations: revocations.filter(isAlive) })
}

t.test('a follower ends with the last state, in any batching of the changes', async (t) => {
  const history = fc.tuple(fc.array(rows, { minLength: 2, maxLength: 6 }), fc.infiniteStream(fc.boolean()))
  await fc.assert(
    fc.asyncProperty(history, async ([all, joins]) => {
      const states = all.map(stateOf)
      const [first, ...later] = states
      const last = all.at(-1)
      if (first === undefined || last === undefined) {
        return
      }
      const follower = await follow(first)
      let batch: Changes[] = []
      let former = first
      for (const state of later) {
        batch.push(diff(former, state))
        former = state
        if (joins.next().value !== true) {
          await apply(follower, joined(batch))
          batch = []
        }
      }
      await apply(follower, joined(batch))
      await compare(t, follower, last)
    }),
    { numRuns: 300 },
  )
})

t.test('what was touched in a list leads to the same state as a comparison', async (t) => {
  const step = fc.tuple(rows, fc.array(revocation, { maxLength: 5 }), fc.array(fc.nat(10), { maxLength: 5 }))
  await fc.assert(
    fc.asyncProperty(step, async ([before, added, places]) => {
      const state = stateOf(before)
      const follower = await follow(state)
      const list = state.revocations[1]
      const database = [...before.database]
      const removed = places.flatMap((place) => database.splice(place, 1))
      for (const each of removed) {
        list?.remove(each)
      }
      for (const each of added) {
        list?.add(each)
      }
      const revocations = touchedRevocations([...removed, ...added], state.revocations)
      await apply(follower, { credentials: new Map(), revocations })
      await compare(t, follower, { ...before, database: [...database, ...added] })
    }),
    { numRuns: 300 },
  )
})

t.test('credentials that were touched lead to the same state as a comparison', async (t) => {
  const step = fc.tuple(rows, fc.array(credential, { maxLength: 5 }), fc.array(credential, { maxLength: 5 }))
  await fc.assert(
    fc.asyncProperty(step, async ([before, added, removed]) => {
      const state = stateOf(before)
      const follower = await follow(state)
      for (const each of removed) {
        state.credentials.remove(each)
      }
      for (const each of added) {
        state.credentials.add(each)
      }
      const credentials = touchedCredentials([...removed, ...added], state.credentials)
      await apply(follower, { credentials, revocations: new Map() })
      await compare(t, follower, { ...before, credentials: [...state.credentials.all()] })
    }),
    { numRuns: 300 },
  )
})

t.test('a list that has not changed is not compared', (t) => {
  const state = stateOf({ credentials: [], file: [{ accountId: 'a' }], database: [{ accountId: 'b' }] })
  const changes = diff(state, { ...state, revocations: state.revocations.slice(0, 1) })
  t.same([...changes.revocations.values()], [{ isSet: false, entry: { accountId: 'b' }, endsAtMs: Infinity }])
  t.end()
})

t.test('a history leads on from each version that it keeps, and forgets the oldest', (t) => {
  const changes = (accountId: string): Changes =>
    diff(
      stateOf({ credentials: [], file: [], database: [] }),
      stateOf({ credentials: [], file: [{ accountId }], database: [] }),
    )
  const history = new History(600)
  t.notOk(history.has('1'))
  history.add('1', changes('a'))
  history.add('2', changes('b'))
  t.same(
    [...history.since('1').revocations.values()].map(({ entry }) => entry),
    [{ accountId: 'a' }, { accountId: 'b' }],
  )
  t.equal(history.since('2').revocations.size, 1)
  t.ok(history.bytesSince('1') > history.bytesSince('2'))
  for (const version of ['3', '4', '5', '2']) {
    history.add(version, changes(version))
  }
  t.notOk(history.has('1'), 'too old')
  t.equal(history.since('2').revocations.size, 1, 'the last occurrence of a version that came back')
  history.add('7', changes('long'.repeat(400)))
  t.notOk(history.has('7'), 'larger than all that may be kept')
  t.end()
})

t.test('a body is built once for all followers, and again when a credential of it ends', async (t) => {
  let nowMs = NOW
  const built = new Documents(() => nowMs)
  const state = stateOf({
    credentials: [
      {
        accountId: 'a',
        accessKey: 'b',
        secretHash: HASH,
        disabled: false,
        expiresAtMs: NOW + HOUR,
        scope: undefined,
      },
    ],
    file: [],
    database: [],
  })
  const whole = built.whole('1', state)
  t.equal(await whole.body('gzip'), await built.whole('1', state).body('gzip'), 'the same bytes in memory')
  t.match(String(await whole.body('identity')), /"accessKey":"b","expiresAt":"2027-01-01T01:00:00.000Z"/)
  nowMs += HOUR
  t.notMatch(String(await built.whole('1', state).body('identity')), /accessKey/)
  built.clear()
  nowMs = NOW
  t.not(built.whole('2', state), whole)
})

t.test('changes since many versions take bounded memory: then followers share the whole state', (t) => {
  const built = new Documents(() => NOW, 1000)
  const history = { since: () => diff(NOTHING, NOTHING), bytesSince: () => 300 }
  const kindSince = (from: string) => built.changesOrWhole('9', from, history, NOTHING).kind
  t.same(['1', '2', '3', '4', '5'].map(kindSince), ['changes', 'changes', 'changes', 'whole', 'whole'])
  t.equal(kindSince('2'), 'changes', 'a document that is there is sent again')
  built.clear()
  t.equal(kindSince('4'), 'changes', 'the next version has documents of its own')
  t.end()
})

t.test('a revocation of two lists is in the whole state until the later of its ends', async (t) => {
  const ended = { jti: 'a', issuer: 'i', expiresAtMs: LONG_ENDED }
  const alive = { ...ended, expiresAtMs: NOW + HOUR }
  for (const lists of [
    { file: [ended], database: [alive] },
    { file: [alive], database: [ended] },
  ]) {
    const follower = await follow(stateOf({ credentials: [], ...lists }))
    t.strictSame(follower.entries().revocations.map(readable), ['a|i|||'])
  }
})
