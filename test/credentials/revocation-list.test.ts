import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { loadRevocationsFile } from '../../src/credentials/list-files.ts'
import { parseRevocations, type Revocation, RevocationList } from '../../src/credentials/revocation-list.ts'
import type { RevocableToken } from '../../src/token/caller.ts'
import { ISSUER } from '../support/tokens.ts'

const TIME = '2026-01-01T00:00:00Z'
const parse = (text: string) => parseRevocations(Buffer.from(text))
const token: RevocableToken = { tokenId: 'j', accountId: 'acme', accessKey: 'AK', issuedAtSeconds: 1000 }
function indexOf(list: readonly Revocation[]): RevocationList {
  const index = new RevocationList()
  for (const one of list) {
    index.add(one)
  }
  return index
}
const revoked = (list: readonly Revocation[], changed: Partial<RevocableToken> = {}, issuer = ISSUER) =>
  indexOf(list).isRevoked({ ...token, ...changed }, issuer)

t.test('a token is revoked by its id, account or access key, and by nothing else', async (t) => {
  t.equal(revoked([]), false)
  t.equal(revoked([{ jti: 'j' }]), true)
  t.equal(revoked([{ accountId: 'acme' }]), true)
  t.equal(revoked([{ accessKey: 'AK' }]), true)
  t.equal(revoked([{ jti: 'acme' }, { jti: 'AK' }, { accountId: 'AK' }, { accessKey: 'acme' }]), false)
  t.equal(revoked([{ jti: 'J' }, { accountId: 'acme ' }, { accessKey: 'ak' }]), false)
  t.equal(revoked([{ jti: '__proto__' }, { accountId: 'constructor' }]), false)
  t.equal(revoked([{ accountId: '__proto__' }], { accountId: '__proto__' }), true)
})

t.test('a token id revokes the token of its issuer, or without an issuer those of all', async (t) => {
  t.equal(revoked([{ jti: 'j', issuer: ISSUER }]), true)
  t.equal(revoked([{ jti: 'j', issuer: 'https://other' }]), false)
  t.equal(revoked([{ jti: 'j', issuer: 'https://other' }], {}, 'https://other'), true)
  t.equal(revoked([{ jti: 'j' }], {}, 'https://other'), true)
  t.equal(revoked([{ jti: 'j', issuer: '__proto__' }]), false)
})

t.test('issuedBefore spares tokens issued at that time or later', async (t) => {
  for (const name of [{ accountId: 'acme' }, { accessKey: 'AK' }]) {
    t.equal(revoked([{ ...name, issuedBeforeMs: 1_000_001 }]), true)
    t.equal(revoked([{ ...name, issuedBeforeMs: 1_000_000 }]), false)
    t.equal(revoked([name], { issuedAtSeconds: Number.MAX_SAFE_INTEGER }), true)
  }
})

t.test('several entries for one name are combined, in any order', async (t) => {
  const early = { accountId: 'acme', issuedBeforeMs: 1 }
  const late = { accountId: 'acme', issuedBeforeMs: 1_000_001 }
  for (const list of [
    [early, late],
    [late, early],
    [{ accountId: 'acme' }, early],
  ]) {
    t.equal(revoked(list), true)
  }
  t.equal(indexOf([early, late]).size, 2)
})

t.test('a list is read in any YAML layout', async (t) => {
  const text = `\uFEFFrevocations:\r
- jti: 3f0c2a5e-6f0e-4c57-9d0b-2f4c8f3a7b11\r
- issuedBefore: 2026-01-01T01:00:00+01:00
  accountId: 'a b'
- { accessKey: "1" } # note`
  t.match(parse(text), {
    ok: true,
    value: [
      { jti: '3f0c2a5e-6f0e-4c57-9d0b-2f4c8f3a7b11' },
      { accountId: 'a b', issuedBeforeMs: Date.parse(TIME) },
      { accessKey: '1' },
    ],
  })
  t.same(parse('revocations: []'), { ok: true, value: [], warnings: [] })
})

t.test('all problems are reported with their locations and without values', async (t) => {
  const text = `revocations:
  - jti: canary-1
    issuedBefore: ${TIME}
  - accountId: canary-2
    accessKey: canary-3
  - accountId: "canary\\n5"
    canary: canary-6
  - canary-8
  - issuedBefore: 2026-01-01
  - accessKey: 17
  - accessKey: acme
    issuedBefore: 2026-02-30T00:00:00Z
  - accessKey: acme
    issuedBefore: 2026-01-01T00:00:00
  - accessKey: ~
canary: 1
`
  const time = 'must be an RFC 3339 time with its zone, in UTC before the year 10000: 2027-12-31T23:59:59Z'
  t.same(parse(text), {
    ok: false,
    problems: [
      '3:19: revocations[0].issuedBefore cannot be combined with jti',
      '4:5: revocations[1] must have exactly one of jti, accountId and accessKey',
      '6:16: revocations[2].accountId must not hold control characters',
      '7:5: revocations[2] has a member that is not known here: canary',
      '8:5: revocations[3] must be a map with one of jti, accountId and accessKey',
      `9:19: revocations[4].issuedBefore ${time}`,
      '10:16: revocations[5].accessKey must be a string: quote it (YAML reads it as a number)',
      `12:19: revocations[6].issuedBefore ${time}`,
      `14:19: revocations[7].issuedBefore ${time}`,
      '15:16: revocations[8].accessKey must be a string',
      '16:1: has a member that is not known here: canary',
    ],
  })
})

t.test('text that is not a list of revocations is refused with the expected shape', async (t) => {
  for (const [text, problem] of [
    ['', /^1:1: must be a map .+ without entries, write `revocations: \[\]`$/],
    ['revocations:\n', /^1:\d+: revocations must be a list; without entries, write `revocations: \[\]`$/],
    ['[]', /must be a map with the one member revocations/],
    ['{}', /revocations must be a list/],
    ['revocations:\n- jti: abcdef\n  jti: abcdef\n', /^3:3: is not valid YAML: /],
    ['revocations:\n-\n', /must be a map/],
  ] as const) {
    const parsed = parse(text)
    t.match(parsed.ok ? undefined : parsed.problems[0], problem, JSON.stringify(text))
    t.notMatch(JSON.stringify(parsed), 'canary')
  }
})

t.test('a file that is not required may be missing until it has had revocations', async (t) => {
  const file = join(t.testdir({}), 'file')
  const missing = { ok: false, problems: [`${file}: cannot be read: there is no such file or directory`] }
  t.match(await loadRevocationsFile(file, true), missing)
  t.match(await loadRevocationsFile(file, false), { ok: true, value: { size: 0 } })
  t.match(await loadRevocationsFile(file, false, new RevocationList()), { ok: true })
  writeFileSync(file, 'revocations: [jti: j]')
  const loaded = await loadRevocationsFile(file, false)
  if (!loaded.ok) {
    throw new Error(loaded.problems.join())
  }
  t.equal(loaded.value.isRevoked(token, ISSUER), true)
  rmSync(file)
  t.match(await loadRevocationsFile(file, false, loaded.value), missing)
})
