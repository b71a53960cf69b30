import fc from 'fast-check'
import t from 'tap'
import { stringify } from 'yaml'
import { readPlainAccount } from '../../src/credentials/accounts-plain.ts'
import { parseAccountsText } from '../../src/credentials/accounts-text.ts'
import { readAccountsYaml, readAccountYaml } from '../../src/credentials/accounts-yaml.ts'
import { atOnce } from '../../src/files/in-slices.ts'

const HASH = `$sha256$${'A'.repeat(43)}`
const SCRYPT = `$scrypt$ln=14,r=8,p=5$${'A'.repeat(22)}$${'A'.repeat(43)}`

const read = (text: string) => atOnce(readPlainAccount(text))

const ACCOUNT = `- accountId: acme
  credentials:
    - accessKey: one
      secretHash: ${HASH}
`

t.test('what commands and other programs write is read without YAML', async (t) => {
  const texts = [
    ACCOUNT,
    ACCOUNT.replaceAll('\n', '\r\n'),
    ACCOUNT.trimEnd(),
    ACCOUNT.replaceAll(/^/gm, '    '),
    ACCOUNT.replaceAll('\n    ', '\n  '),
    ACCOUNT.replaceAll(/: (\S+)/g, ': "$1"'),
    ACCOUNT.replaceAll(/: (\S+)/g, ":   '$1'  # note: this"),
    ACCOUNT.replaceAll('\n', ' # note\n\n# note\n'),
    `- credentials:\n    - secretHash: ${HASH}\n      accessKey: one\n  accountId: acme\n`,
  ]
  for (const text of texts) {
    t.match(
      read(text),
      { ok: true, account: { accountId: 'acme', credentials: [{ accessKey: 'one' }] } },
      text,
    )
  }
  const more = `      expiresAt: 2027-01-31T08:00:00Z\n      disabled: true\n    - { accessKey: two }\n`
  t.match(read(ACCOUNT + more), { ok: false, line: 7 })
  t.match(read(ACCOUNT + more.split('\n', 2).join('\n')), {
    account: { credentials: [{ expiresAt: Date.parse('2027-01-31T08:00:00Z'), disabled: true }] },
  })
  t.match(read('- accountId: a\n  credentials: []\n'), { ok: true, account: { credentials: [] } })
  t.match(read(ACCOUNT.replace(HASH, SCRYPT)), { ok: true })
})

t.test('what YAML has to say something of is left to it, with the line', async (t) => {
  const texts: [string, number][] = [
    ['accountId: acme\n', 1],
    ['# note\n- accountId: acme\n', 1],
    [ACCOUNT.replace('one', '1e5'), 3],
    [ACCOUNT.replace('one', ''), 3],
    [`${ACCOUNT}      disabled: "true"\n`, 5],
    [`${ACCOUNT}      disabled: maybe\n`, 5],
    [`${ACCOUNT}      disabled: true\n      disabled: true\n`, 6],
    [`${ACCOUNT}  accountId: other\n`, 5],
    [`${ACCOUNT}   accountId: other\n`, 5],
    ['- credentials:\n  accountId: a\n', 2],
    ['- accountId: a\n  credentials:\n', 1],
    ['- accountId: a\n  credentials: []\n  - accessKey: a\n', 3],
    [`- credentials:\n${ACCOUNT.slice(ACCOUNT.indexOf('    -'))}  accountId: a\n    - accessKey: b\n`, 5],
  ]
  for (const [text, line] of texts) t.same(read(text), { ok: false, line }, text)
})

t.test('where an account has its name is told', async (t) => {
  t.match(read(ACCOUNT), { line: 1, column: 14 })
  t.match(read(`- credentials: []\n  accountId:   'a'`), { line: 2, column: 16 })
})

/** Lines to make accounts of: most of them right, to which end the first value is given more often than others. */
const member = (name: string, [right, ...others]: readonly [fc.Arbitrary<string>, ...string[]]) =>
  fc
    .tuple(
      fc.oneof({ weight: 30, arbitrary: fc.constant(name) }, fc.constantFrom('accountId', 'other')),
      fc.oneof({ weight: 5, arbitrary: right }, fc.constantFrom(...others)),
    )
    .map((pair) => pair.join(': '))
const plainName = fc.stringMatching(/^[\w$][\w$.+/=,@:-]{0,4}[\w$.+/=,@-]$/)
const NAMES = [
  'one',
  'two',
  '12345678-1234-1234-1234-123456789012',
  '"1"',
  "'true'",
  '"a b: #c"',
  "'it''s'",
  '"\\x41"',
  '山田',
  'a b',
  '-',
  '~',
  '0x1f',
  '0o17',
  '1e5',
  '1.',
  '.5',
  '.inf',
  '+1',
  'null',
  'True',
  'yes',
  'a:b',
  'a:',
  'a#b',
  'a #b',
  'a,b',
  '[]',
  '{}',
  '&a b',
  '*a',
  '!x y',
  '"',
  '""',
  '',
  '|',
  '>-',
  '"a\u0085b"',
  '2027-01-31',
]
const credential = fc.tuple(
  fc.boolean(),
  fc.subarray(['accessKey', 'secretHash', 'expiresAt', 'disabled'], { minLength: 1 }),
  member('accessKey', [plainName, ...NAMES]),
  member('secretHash', [fc.constant(HASH), `"${HASH}"`, SCRYPT, 'hush', `${HASH}=`]),
  member('expiresAt', [fc.constant('2027-01-31T08:00:00Z'), '"2027-01-31T08:00:00Z"', '2027-01-31', '1', '']),
  member('disabled', [fc.constant('true'), 'false', '"true"', 'True', 'yes', '1', '']),
)
const NOISE = [
  '',
  '',
  '',
  '',
  '# note',
  '',
  '# note',
  '   ',
  '\t',
  ' # note',
  'text',
  '- text',
  '---',
  '...',
  '? a',
  '"',
]

/** A block list of accounts, most of it in the plain form, with what people and programs do to it. */
const file = fc
  .tuple(
    fc.array(
      fc.tuple(
        member('accountId', [plainName, ...NAMES]),
        fc.array(credential, { maxLength: 3 }),
        fc.integer({ min: 0, max: 20 }),
      ),
      { minLength: 1, maxLength: 3 },
    ),
    fc.integer({ min: 0, max: 4 }),
    fc.integer({ min: 0, max: 4 }),
    fc.array(fc.tuple(fc.nat(40), fc.constantFrom(...NOISE), fc.nat(12)), { maxLength: 1 }),
    fc.constantFrom('\n', '\n', '\r\n'),
  )
  .map(([accounts, outer, inner, noise, newline]) => {
    const lines = ['accounts:']
    const indent = ' '.repeat(outer)
    for (const [name, credentials, order] of accounts) {
      const list = credentials.flatMap(([valid, names, ...members]) => {
        const all = ['accessKey', 'secretHash', 'expiresAt', 'disabled']
        const kept = members.filter((_, at) => (valid ? at < 2 : names.includes(all[at] ?? '')))
        return kept.map((text, at) => `${' '.repeat(inner)}${at === 0 ? '- ' : '  '}${text}`)
      })
      const head = list.length === 0 && order % 2 === 0 ? 'credentials: []' : 'credentials:'
      const members = order % 3 === 0 ? [head, ...list, name] : [name, head, ...list]
      lines.push(...members.map((text, at) => `${indent}${at === 0 ? '- ' : '  '}${text}`))
    }
    for (const [at, text, spaces] of noise) {
      if (text !== '' && at < lines.length) lines.splice(at, 0, ' '.repeat(spaces) + text)
    }
    return lines.join(newline) + newline
  })

t.test('whatever is written, cut or whole, it means what YAML says it means', async (t) => {
  let good = 0
  const property = fc.asyncProperty(file, async (text) => {
    const whole = readAccountsYaml(text)
    const cut = await parseAccountsText(text)
    if (cut.ok) {
      good++
      t.strictSame(whole.problems, [], text)
      t.strictSame(cut.accounts, whole.accounts, text)
    } else {
      if (whole.problems.length === 0) t.fail(text)
      // Where YAML cannot be read at all, the whole of it says so in other places and words.
      const isYaml = ![...cut.problems, ...whole.problems].some((problem) =>
        /YAML (here|aliases)/.test(problem),
      )
      if (isYaml) t.strictSame([...cut.problems].sort(), [...whole.problems].sort(), text)
    }
  })
  await t.resolves(fc.assert(property, { numRuns: 2000 }))
  t.ok(good > 100, `${good} of them are good`)
})

t.test('what it takes means the same to YAML, whatever the names', async (t) => {
  const name = fc.oneof(fc.constantFrom(...NAMES), fc.string({ unit: 'binary', minLength: 1, maxLength: 8 }))
  const property = fc.property(
    name,
    name,
    fc.constantFrom('PLAIN' as const, 'QUOTE_DOUBLE' as const, 'QUOTE_SINGLE' as const),
    (accountId, accessKey, style) => {
      const text = stringify([{ accountId, credentials: [{ accessKey, secretHash: HASH }] }], {
        defaultStringType: style,
      })
      const plain = read(text)
      if (!plain.ok) return true
      const { accounts } = readAccountYaml(text, { line: 1, index: 0 })
      return (
        accounts[0]?.accountId === plain.account.accountId &&
        accounts[0].credentials[0]?.accessKey === plain.account.credentials[0]?.accessKey
      )
    },
  )
  t.doesNotThrow(() => fc.assert(property, { numRuns: 500 }))
})
