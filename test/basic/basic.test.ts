import { Socket } from 'node:net'
import t from 'tap'
import { Basic } from '../../src/basic/basic.ts'
import { Peer } from '../../src/client/client-address.ts'
import { createCredentialChecks } from '../../src/credentials/credential-checks.ts'
import { type Credential, CredentialList } from '../../src/credentials/credential-list.ts'
import { createLoginThrottle } from '../../src/credentials/login-throttle.ts'
import { hashSecret } from '../../src/credentials/secret-hash.ts'
import type { ApiEvent } from '../../src/endpoints/api-events.ts'
import { type LoginClient, LoginService } from '../../src/endpoints/login-service.ts'
import type { BasicVerdict } from '../../src/gate/basic-logins.ts'
import type { Assertions } from '../../src/token/caller.ts'
import { basicValue } from '../support/basic.ts'
import { requestOn } from '../support/request-context.ts'

const START = Date.UTC(2030, 0, 1)
const HASH = await hashSecret('secret', 'sha256')
const OTHER_HASH = await hashSecret('other secret', 'sha256')

const RIGHT = basicValue('AK', 'secret')

interface Setup {
  readonly maxLogins?: number
  readonly signAssertions?: () => Promise<Assertions>
}

/** Remembered logins of a list that the test changes, with a clock that it sets. */
function setUp({ maxLogins = 10, signAssertions }: Setup = {}) {
  const clock = { ms: START }
  const now = () => clock.ms
  const list = { current: new CredentialList() }
  const events: ApiEvent[] = []
  const revoked = new Set<string>()
  const credentials = createCredentialChecks({ list: () => list.current, refresh: async () => true }, now)
  const throttle = createLoginThrottle({ count: 20, windowSeconds: 60 }, now)
  const recordEvent = (_req: unknown, event: ApiEvent) => {
    events.push(event)
  }
  const logins = new LoginService({ credentials, throttle, recordEvent })
  const basic = new Basic({
    cacheSeconds: 300,
    maxLogins,
    headerBytes: 16384,
    issuer: 'us',
    logins,
    credentials,
    signAssertions,
    now,
    isRevoked: ({ tokenId, accountId }, issuer) =>
      issuer === 'us' && (revoked.has(tokenId) || revoked.has(accountId)),
  })
  /** Replaces all credentials, as a reload does. */
  const load = (...all: Partial<Credential>[]) => {
    list.current = new CredentialList()
    for (const one of all) {
      const names = { accountId: 'acme', accessKey: 'AK', secretHash: HASH }
      list.current.add({ ...names, expiresAtMs: Number.POSITIVE_INFINITY, disabled: false, ...one })
    }
    basic.clear()
  }
  load({})
  /** The verdict on a request, and whether a login was made for it. */
  const check = async (value = RIGHT, who = client()) => {
    const before = events.length
    const verdict = basic.find(value) ?? (await basic.logIn(who, value))
    return { verdict, isNew: events.length > before, id: idIn(verdict) }
  }
  return { clock, events, revoked, basic, load, check }
}

const idIn = (verdict: BasicVerdict | undefined) =>
  verdict?.ok ? verdict.value.identity.tokenId : verdict?.error.reason

/** The client of a request from this address. */
function client(address = '192.0.2.1'): LoginClient & { destroyed: boolean } {
  const peer = new Peer(address, () => false, 'http', 80)
  return { req: requestOn(new Socket(), peer), destroyed: false }
}

t.test('a login is remembered until its end', async (t) => {
  const { clock, check } = setUp()
  const first = await check()
  t.equal(first.isNew, true)
  clock.ms += 299_999
  t.same(await check(), { ...first, isNew: false })
  clock.ms += 1
  const second = await check()
  t.equal(second.isNew, true)
  t.not(second.id, first.id)
})

t.test('a clock that was set back ends a login', async (t) => {
  const { clock, check } = setUp()
  const { id } = await check()
  clock.ms -= 1
  t.not((await check()).id, id)
})

t.test('name and secret are not confused, and no refusal is remembered', async (t) => {
  const { check, basic, load } = setUp()
  load({ accessKey: 'AK' }, { accessKey: 'A' })
  t.equal((await check(basicValue('AK', 'secret'))).isNew, true)
  for (const [name, secret] of [
    ['A', 'Ksecret'],
    ['AKs', 'ecret'],
    ['AK', 'secret '],
    ['AK', 'Secret'],
    ['AK ', 'secret'],
  ] as const) {
    const value = basicValue(name, secret)
    t.equal(basic.find(value), undefined, `${name} ${secret}`)
    t.match(await check(value), { id: 'credentials', isNew: true })
    t.equal(basic.find(value), undefined)
  }
})

t.test('a name by its access key and one by its account are two logins of one credential', async (t) => {
  const { check } = setUp()
  const ids = [(await check()).id, (await check(basicValue('acme~AK', 'secret'))).id]
  t.equal(new Set(ids).size, 2)
})

t.test('as many logins are remembered as tokens are cached', async (t) => {
  const { check, load } = setUp({ maxLogins: 3 })
  const names = ['a', 'b', 'c', 'd']
  load(...names.map((accessKey) => ({ accessKey })))
  for (const name of names) {
    await check(basicValue(name, 'secret'))
  }
  for (const [name, isNew] of [
    ['d', false],
    ['c', false],
    ['b', false],
    ['a', true],
  ] as const) {
    t.match(await check(basicValue(name, 'secret')), { isNew }, name)
  }
})

t.test('requests side by side are one check, whichever client stays', async (t) => {
  const { basic, events, check } = setUp()
  const clients = [client(), client(), client()]
  const checks = clients.map((one) => basic.logIn(one, RIGHT))
  for (const one of clients.slice(0, 2)) {
    one.destroyed = true
  }
  t.equal(new Set((await Promise.all(checks)).map(idIn)).size, 1)
  t.equal(events.length, 1)
  const left = client()
  left.destroyed = true
  t.match(await check(basicValue('AK', 'x'), left), { id: 'unavailable', isNew: false })
  const wrong = basicValue('AK', 'wrong')
  const addresses = ['192.0.2.1', '192.0.2.1', '198.51.100.1', '2001:db8::1', '2001:db8::2']
  const refused = await Promise.all(addresses.map((address) => basic.logIn(client(address), wrong)))
  t.same(
    refused.map(idIn),
    Array.from(addresses, () => 'credentials'),
  )
  t.equal(events.length, 4, 'one for each network')
})

t.test('a change while a login is checked counts', async (t) => {
  let act: (() => void) | undefined
  /** Assertions are signed after the secret was accepted. */
  const signAssertions = async () => {
    act?.()
    act = undefined
    return { assertions: new Map(), renewAtMs: Number.POSITIVE_INFINITY }
  }
  const { load, check, revoked, basic } = setUp({ signAssertions })
  const changes = {
    disabled: () => load({ disabled: true }),
    removed: () => load(),
    'another secret': () => load({ secretHash: OTHER_HASH }),
    revoked: () => revoked.add('acme'),
  }
  for (const [name, change] of Object.entries(changes)) {
    load({})
    act = change
    t.equal((await check()).id, 'credentials', name)
    t.equal(basic.find(RIGHT), undefined, `${name}: not remembered`)
  }
  revoked.clear()
  load({})
  act = () => load({ scope: 'storage.read:/' })
  const { verdict } = await check()
  t.match(verdict, { ok: true, value: { identity: { scope: { text: 'storage.read:/' } } } })
})

t.test('an assertion is renewed for the same login, once for all that wait', async (t) => {
  let signed = 0
  const clockOf = { now: () => START }
  const signAssertions = async () => {
    signed++
    return { assertions: new Map(), renewAtMs: clockOf.now() + 60_000 }
  }
  const { clock, basic, check, events } = setUp({ signAssertions })
  clockOf.now = () => clock.ms
  const { id } = await check()
  clock.ms += 60_000
  t.equal(basic.find(RIGHT), undefined)
  const renewed = await Promise.all([check(), check(), check()])
  t.same(
    renewed.map((one) => one.id),
    [id, id, id],
  )
  t.equal(signed, 2)
  t.equal(idIn(basic.find(RIGHT)), id)
  clock.ms = START + 299_999
  t.equal((await check()).id, id)
  clock.ms += 1
  t.equal((await check()).isNew, true, 'it ends when it would have ended')
  t.equal(events.length, 2)
})

t.test('a login is checked again by the secret that it used', async (t) => {
  const { clock, basic, load, check, revoked, events } = setUp()
  const { verdict, id } = await check()
  if (!verdict.ok) {
    throw new Error('the right secret is refused')
  }
  const again = () => basic.checkAgain(verdict.value)
  load({}, { accessKey: 'other' })
  t.equal(idIn(await again()), id, 'although it is remembered no more')
  load({ secretHash: OTHER_HASH, previousSecretHash: HASH, previousSecretExpiresAtMs: START + 10_000 })
  const former = await again()
  t.equal(former.ok && former.value.validUntilMs, START + 10_000)
  clock.ms = START + 10_000
  t.equal(idIn(await again()), 'credentials', 'the former secret has ended')
  load({ expiresAtMs: START + 400_000 })
  clock.ms = START + 300_000
  const later = await again()
  t.match(later, { ok: true, value: { validUntilMs: START + 400_000, identity: { tokenId: id } } })
  clock.ms = START + 400_000
  t.equal(idIn(await again()), 'credentials', 'the credential has ended')
  for (const state of [{ disabled: true }, { secretHash: OTHER_HASH }, { accessKey: 'other' }]) {
    load(state)
    t.equal(idIn(await again()), 'credentials')
  }
  load({})
  revoked.add(String(id))
  t.equal(idIn(await again()), 'credentials')
  t.equal(events.length, 1, 'without another login')
})

t.test('a revoked account is refused with the right secret as with a wrong one', async (t) => {
  const { check, revoked, events } = setUp()
  revoked.add('acme')
  t.match(await check(), { id: 'credentials' })
  t.match(await check(basicValue('AK', 'wrong')), { id: 'credentials' })
  t.same(
    events,
    Array.from([1, 2], () => ({ event: 'login_failed', method: 'basic', reason: 'rejected' })),
  )
})
