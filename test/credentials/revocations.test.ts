import { execFileSync } from 'node:child_process'
import { mkdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { parse, stringify } from 'yaml'
import {
  createRevocations,
  createRevocationsLoader,
  parse as parseBytes,
  type RevocableToken,
  type Revocation,
} from '../../src/credentials/revocations.ts'

const TIME = '2026-01-01T00:00:00Z'
const time = Date.parse(TIME)
const parseRevocations = (text: string) => parseBytes(Buffer.from(text))
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

t.test('issuedBefore spares tokens issued at that moment and later', async (t) => {
  for (const name of [{ accountId: 'acme' }, { accessKey: 'AK' }]) {
    t.equal(revoked([{ ...name, issuedBefore: 1_000_001 }]), true)
    t.equal(revoked([{ ...name, issuedBefore: 1_000_000 }]), false)
    t.equal(revoked([name], { issuedAt: Number.MAX_SAFE_INTEGER }), true)
  }
})

t.test('several entries for one name revoke what any of them revokes, in any order', async (t) => {
  const early = { accountId: 'acme', issuedBefore: 1 }
  const late = { accountId: 'acme', issuedBefore: 1_000_001 }
  for (const list of [
    [early, late],
    [late, early],
    [{ accountId: 'acme' }, early],
  ]) {
    t.equal(revoked(list), true)
  }
  t.equal(createRevocations([early, late]).size, 2)
})

t.test('every form that YAML has for a list is read', async (t) => {
  const block = `revocations:
- jti: 3f0c2a5e-6f0e-4c57-9d0b-2f4c8f3a7b11
- accountId: acme-backups
  issuedBefore: ${TIME}
- issuedBefore: 2026-01-01T01:00:00+01:00
  accountId: 'a b'
- { accessKey: "1" } # note`
  for (const text of [
    block,
    `\uFEFF# note\n${block}\n`,
    block.replaceAll('\n', '\r\n'),
    JSON.stringify(parse(block)),
    stringify(parse(block), { collectionStyle: 'flow' }),
  ]) {
    const parsed = parseRevocations(text)
    t.match(parsed.ok && parsed.value, [
      { jti: '3f0c2a5e-6f0e-4c57-9d0b-2f4c8f3a7b11' },
      { accountId: 'acme-backups', issuedBefore: time },
      { accountId: 'a b', issuedBefore: time },
      { accessKey: '1' },
    ])
  }
  t.same(parseRevocations('revocations: []'), { ok: true, value: [], warnings: [] })
})

t.test('every problem is reported at once with its place, and no value', async (t) => {
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
  const time = 'must be an RFC 3339 time with its zone, such as 2027-01-31T08:00:00Z'
  t.same(parseRevocations(text), {
    ok: false,
    problems: [
      '3:19: revocations[0].issuedBefore must not stand beside jti',
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

t.test('a text that is not a list of revocations is refused with what it should be', async (t) => {
  for (const [text, problem] of [
    ['', /^1:1: must be a map .+ without entries, write `revocations: \[\]`$/],
    ['# nothing\n', /must be a map/],
    ['revocations:\n', /^1:\d+: revocations must be a list; without entries, write `revocations: \[\]`$/],
    ['revocations: {}', /must be a list/],
    ['[]', /must be a map with the one member revocations/],
    ['canary', /must be a map/],
    ['{}', /revocations must be a list/],
    ['revocations:\n- jti: abcdef\n  jti: abcdef\n', /^3:3: is not valid YAML: /],
    ['revocations:\n- jti: "canary\n', /^[23]:\d+: is not valid YAML: /],
    ['revocations:\n- jti: abcdef\n---\nrevocations: []\n', /more than one YAML document/],
    ['revocations: [*a]', /alias/],
    ['revocations:\n-\n', /must be a map/],
  ] as const) {
    const parsed = parseRevocations(text)
    t.match(parsed.ok ? undefined : parsed.problems[0], problem, JSON.stringify(text))
    t.notMatch(JSON.stringify(parsed), 'canary')
  }
})

t.test('the default file may be missing until it has been there once', async (t) => {
  const file = join(t.testdir({}), 'file')
  const missing = { ok: false, problems: [`${file}: cannot be read: there is no such file or directory`] }
  t.same(await createRevocationsLoader({ file, required: true })(), missing)
  const load = createRevocationsLoader({ file, required: false })
  for (const _again of [1, 2]) t.match(await load(), { ok: true, value: { size: 0 } })
  writeFileSync(file, 'revocations: [jti: j]')
  const loaded = await load()
  t.equal(loaded.ok && loaded.value.isRevoked(token), true)
  rmSync(file)
  t.same(await load(), missing)
})

t.test('what cannot be a file of revocations is reported with its path, without waiting', async (t) => {
  const directory = t.testdir({ bad: 'revocations:\n- jti: 1\n' })
  const path = (name: string) => join(directory, name)
  mkdirSync(path('directory'))
  execFileSync('mkfifo', [path('pipe')])
  writeFileSync(path('latin1'), Buffer.from('revocations: [{ jti: caf\xe9 }]', 'latin1'))
  writeFileSync(path('huge'), '')
  truncateSync(path('huge'), 33_554_433)
  for (const [name, problem] of [
    ['bad', ':2:8: revocations[0].jti must be a string: quote it (YAML reads it as a number)'],
    ['directory', ': is not a file'],
    ['pipe', ': is not a file'],
    ['latin1', ':1:1: is not UTF-8 text'],
    ['huge', ': is larger than 33554432 bytes'],
  ] as const) {
    const loaded = await createRevocationsLoader({ file: path(name), required: true })()
    t.same(loaded, { ok: false, problems: [`${path(name)}${problem}`] })
  }
})

t.test('a large file is read and checked without blocking the event loop', async (t) => {
  const entries = Array.from({ length: 20_000 }, (_, at) => `- jti: token-${at}\n`)
  const file = join(t.testdir({ file: `revocations:\n${entries.join('')}` }), 'file')
  const load = createRevocationsLoader({ file, required: true })
  const started = performance.now()
  let longest = 0
  let last = started
  const timer = setInterval(() => {
    longest = Math.max(longest, performance.now() - last)
    last = performance.now()
  }, 1)
  const loaded = await load()
  clearInterval(timer)
  t.ok(longest < (last - started) / 2, `${longest} of ${last - started} ms`)
  t.equal(loaded.ok && loaded.value.isRevoked({ ...token, tokenId: 'token-19999' }), true)
  writeFileSync(file, `revocations:\n${entries.join('')}- 7\n`)
  t.match(await load(), { ok: false, problems: [`${file}:20002:3: revocations[20000] must be a map`] })
})
