import { deepStrictEqual } from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { parse, stringify } from 'yaml'
import { parseRevocationsText } from '../../src/token/revocations-text.ts'

const UUID = '3f0c2a5e-6f0e-4c57-9d0b-2f4c8f3a7b11'
const TIME = '2026-01-01T00:00:00Z'
const time = Date.parse(TIME)

async function accepted(text: string) {
  const parsed = await parseRevocationsText(text)
  return parsed.ok ? parsed.revocations : parsed.problems
}

async function refused(text: string) {
  const parsed = await parseRevocationsText(text)
  return parsed.ok ? [] : parsed.problems
}

t.test('every form that YAML has for a list is read', async (t) => {
  const expected = [
    { jti: UUID },
    { accountId: 'acme-backups', issuedBefore: time },
    { accountId: 'a b', issuedBefore: time },
    { accessKey: '1' },
  ]
  const members = [
    `- jti: ${UUID}`,
    `- accountId: acme-backups\n  issuedBefore: ${TIME}`,
    `- issuedBefore: 2026-01-01T01:00:00+01:00\n  accountId: 'a b'`,
    `- { accessKey: "1" } # note`,
  ]
  const block = `revocations:\n${members.join('\n')}`
  const list = parse(block)
  for (const text of [
    block,
    `# note\n${block}\n`,
    block.replaceAll('\n', '\n  '),
    block.replaceAll('\n', '\r\n'),
    block.replaceAll('\n', '\n\n'),
    JSON.stringify(list),
    JSON.stringify(list, null, 2),
    stringify(list),
    stringify(list, { defaultStringType: 'QUOTE_DOUBLE' }),
    stringify(list, { defaultStringType: 'QUOTE_SINGLE' }),
    stringify(list, { collectionStyle: 'flow' }),
  ]) {
    t.same(await accepted(text), expected, text)
  }
  for (const text of ['revocations: []', 'revocations:\n  []\n', '{"revocations":[]}'])
    t.same(await accepted(text), [], text)
})

t.test('issuedBefore revokes what was issued in the same second, however short before it', async (t) => {
  const second = Date.parse('2026-01-01T00:00:13Z')
  for (const fraction of ['.001', '.0001', '.000000001', '.9999999']) {
    for (const text of [
      `revocations:\n- accountId: acme-backups\n  issuedBefore: 2026-01-01T00:00:13${fraction}Z\n`,
      `revocations: [{ accessKey: a, issuedBefore: "2026-01-01T01:00:13${fraction}+01:00" }]`,
    ]) {
      const [entry] = await accepted(text)
      const bound = typeof entry === 'object' && 'issuedBefore' in entry ? (entry.issuedBefore ?? 0) : 0
      t.ok(bound > second && bound <= second + 1000, text)
    }
  }
})

t.test('whatever the names, cut or whole, a list means what YAML says it means', async (t) => {
  const name = fc.oneof(
    fc.constantFrom(
      'null',
      'true',
      'Infinity',
      '1e5555',
      '0x1F',
      '12345678',
      '.inf',
      'yes',
      '~',
      'a: b',
      '- a',
    ),
    fc.stringMatching(/^[\w.#:'" -]{1,12}$/),
    fc.string({ minLength: 1, unit: 'grapheme' }).filter((text) => !/\p{Cc}/u.test(text)),
  )
  const when = fc.constantFrom({}, { issuedBefore: TIME }, { issuedBefore: '2026-01-01T00:00:00.5+02:00' })
  const entry = fc.oneof(
    name.map((jti) => ({ jti })),
    fc.tuple(name, when).map(([accountId, rest]) => ({ accountId, ...rest })),
    fc.tuple(name, when).map(([accessKey, rest]) => ({ accessKey, ...rest })),
  )
  const style = fc.constantFrom('PLAIN' as const, 'QUOTE_DOUBLE' as const, 'QUOTE_SINGLE' as const)
  const property = fc.asyncProperty(
    fc.array(entry, { minLength: 1 }),
    style,
    async (list, defaultStringType) => {
      const text = stringify({ revocations: list }, { defaultStringType })
      deepStrictEqual(await accepted(text), await accepted(JSON.stringify({ revocations: list })))
    },
  )
  // Not an assertion for each: tap takes some of these texts for orders to itself.
  await t.resolves(fc.assert(property, { numRuns: 200 }))
})

t.test('what YAML takes for something else than a string is never taken for one', async (t) => {
  for (const value of ['123456', '1e5', '0x1F', 'null', 'true', 'False', '.inf', '12345678e-1234', '~', '']) {
    const [problem] = await refused(`revocations:\n  - jti: ${value}`)
    t.match(problem, /^2:\d+: revocations\[0\]\.jti must be a string/, value)
  }
})

t.test('every problem is told at once with its place, cut or whole, and nothing of the values', async (t) => {
  const block = `revocations:
  - jti: canary-1
    issuedBefore: ${TIME}
  - accountId: canary-2
    accessKey: canary-3
    issuedBefore: canary-4
  - accountId: "canary\\n5"
    note: canary-6
    canary.7: 1
  - canary-8
  - issuedBefore: 2026-01-01
  - accessKey: 17
  - accessKey: acme-backups
    issuedBefore: 2026-02-30T00:00:00Z
  - accessKey: acme-backups
`
  const problems = [
    '3:19: revocations[0].issuedBefore must not stand beside jti',
    '5:16: revocations[1].accessKey must not stand beside accountId',
    '6:19: revocations[1].issuedBefore must be an RFC 3339 time with its zone, such as 2027-01-31T08:00:00Z',
    '8:5: revocations[2] has a member that is not known here: note',
    '9:5: revocations[2] has a member that is not known here',
    '7:16: revocations[2].accountId must not hold control characters',
    '10:5: revocations[3] must be a map with one of jti, accountId and accessKey',
    '11:5: revocations[4] must have one of jti, accountId and accessKey',
    '11:19: revocations[4].issuedBefore must be an RFC 3339 time with its zone, such as 2027-01-31T08:00:00Z',
    '12:16: revocations[5].accessKey must be a string: quote it (YAML reads it as a number)',
    '14:19: revocations[6].issuedBefore must be an RFC 3339 time with its zone, such as 2027-01-31T08:00:00Z',
  ]
  t.same(await refused(block), problems)
  t.same(await refused(block.replace('revocations:', 'revocations: !!seq')), problems, 'whole')
  t.notMatch(problems.join('\n'), 'canary')
})

t.test('a text that is no list of revocations says what it should be', async (t) => {
  const table: readonly (readonly [text: string, problem: RegExp | string])[] = [
    ['', '1:1: is empty; without entries, write `revocations: []`'],
    ['# nothing\n', /is empty/],
    ['revocations:\n', /^1:\d+: revocations must be a list; without entries, write `revocations: \[\]`$/],
    ['revocations: {}', /must be a list/],
    ['[]', /must be a map with the one member revocations$/],
    ['canary', /must be a map/],
    ['{}', '1:1: revocations is missing'],
    ['revocations:\n- jti: abcdef\nrevocation: 1\n', '3:1: has a member that is not known here: revocation'],
    ['revocations:\n- jti: abcdef\n  jti: abcdef\n', /^3:3: is not valid YAML: /],
    ['revocations:\n- jti: "abcdef\n', /^[23]:\d+: is not valid YAML: /],
    ['revocations:\n- jti: [abcdef\n- jti: b]\n', /^[23]:\d+: is not valid YAML: /],
    ['revocations:\n- accountId: foobar  issuedBefore: 2026-01-01T00:00:00Z\n', /is not valid YAML/],
    ['revocations:\n- jti: abcdef\n---\nrevocations: []\n', /more than one YAML document/],
    ['revocations:\n- &a jti: abcdef\n- *a\n', /./],
    ['revocations: [*a]', /alias/],
    ['revocations:\n- jti: abcdef\r- jti: bcdefg\n', /./],
    ['revocations:\n- - jti: abcdef\n', /must be a map/],
    ['revocations:\n-\n', /must be a map/],
  ]
  for (const [text, problem] of table) {
    const problems = await refused(text)
    t.match(problems[0], problem, JSON.stringify(text))
    t.notMatch(problems.join('\n'), 'canary')
  }
})

t.test('while 100,000 entries are read, others get their turn', async (t) => {
  let text = 'revocations:\n'
  for (let index = 0; index < 100_000; index++) {
    const hex = index.toString(16).padStart(12, '0')
    text +=
      index % 3
        ? `  - jti: 3f0c2a5e-6f0e-4c57-9d0b-${hex}\n`
        : `  - accountId: acc-${index}\n    issuedBefore: ${TIME}\n`
  }
  let turns = 0
  const others = setInterval(() => turns++, 1)
  const parsed = await parseRevocationsText(text)
  clearInterval(others)
  t.equal(parsed.ok && parsed.revocations.length, 100_000)
  t.ok(turns >= 5, `${turns} turns`)
})
