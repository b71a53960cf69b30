import t from 'tap'
import {
  createRevocations,
  createRevocationsInSlices,
  type RevocableToken,
  type Revocation,
} from '../../src/token/revocations.ts'

const token: RevocableToken = { tokenId: 'j', accountId: 'acme', accessKey: 'AK', issuedAt: 1000 }
const revoked = (list: readonly Revocation[], changed: Partial<RevocableToken> = {}) =>
  createRevocations(list).isRevoked({ ...token, ...changed })

t.test('a token is revoked by its id, its account or its access key, and by nothing else', async (t) => {
  t.equal(revoked([]), false)
  t.equal(revoked([{ jti: 'j' }]), true)
  t.equal(revoked([{ accountId: 'acme' }]), true)
  t.equal(revoked([{ accessKey: 'AK' }]), true)
  t.equal(revoked([{ jti: 'acme' }, { jti: 'AK' }, { accountId: 'AK' }, { accessKey: 'acme' }]), false)
  t.equal(revoked([{ jti: 'J' }, { accountId: 'acme ' }, { accessKey: 'ak' }]), false)
  t.equal(revoked([{ jti: '__proto__' }, { accountId: 'constructor' }]), false)
  t.equal(revoked([{ accountId: '__proto__' }], { accountId: '__proto__' }), true)
})

t.test('issuedBefore spares tokens issued in that very moment and later', async (t) => {
  for (const name of [{ accountId: 'acme' }, { accessKey: 'AK' }]) {
    t.equal(revoked([{ ...name, issuedBefore: 1_000_001 }]), true)
    t.equal(revoked([{ ...name, issuedBefore: 1_000_000 }]), false)
    t.equal(revoked([{ ...name, issuedBefore: 999_999 }]), false)
    t.equal(revoked([name], { issuedAt: Number.MAX_SAFE_INTEGER }), true)
  }
})

t.test('of several entries for one name the furthest holds, in whatever order', async (t) => {
  const early = { accountId: 'acme', issuedBefore: 1 }
  const late = { accountId: 'acme', issuedBefore: 1_000_001 }
  t.equal(revoked([early, late]), true)
  t.equal(revoked([late, early]), true)
  t.equal(revoked([{ accountId: 'acme' }, early]), true)
  t.equal(createRevocations([early, late]).size, 2)
})

t.test('a list of 100,000 is asked as quickly as a short one', async (t) => {
  const list = Array.from({ length: 100_000 }, (_, index) =>
    index % 2 ? { jti: `token-${index}` } : { accountId: `account-${index}`, issuedBefore: 1 },
  )
  const { isRevoked, size } = createRevocations(list)
  t.equal(size, 100_000)
  const started = performance.now()
  for (let round = 0; round < 10_000; round++) isRevoked(token)
  // A walk through the list would take some 10 s.
  t.ok(performance.now() - started < 1000)
  t.equal(isRevoked({ ...token, tokenId: 'token-99999' }), true)
})

t.test('a list of any length is indexed while others get their turn', async (t) => {
  const list = Array.from({ length: 300_000 }, (_, at): Revocation => ({ jti: `token-${at}` }))
  let turns = 0
  let going = true
  const turn = () => {
    turns++
    if (going) setImmediate(turn)
  }
  setImmediate(turn)
  const began = performance.now()
  const { size, isRevoked } = await createRevocationsInSlices(list)
  going = false
  const ms = performance.now() - began
  t.equal(size, 300_000)
  t.equal(isRevoked({ tokenId: 'token-299999', accountId: 'a', accessKey: 'k', issuedAt: 1 }), true)
  t.ok(turns >= ms / 100, `${turns} turns in ${Math.round(ms)} ms`)
})
