import t from 'tap'
import { isJsonObject, MOST_NESTED, parseStrictJson } from '../src/strict-json.ts'

const bytes = (text: string) => new TextEncoder().encode(text)

t.test('takes any JSON value as it stands', async (t) => {
  for (const text of [
    '{"a":{"a":[{"a":1},{"a":2}]},"b":"{\\"b\\":1,\\"b\\":2}"}',
    '[]',
    '"\\\\"',
    ' null ',
    '{"a":[":"]}',
  ]) {
    t.same(parseStrictJson(bytes(text)), { ok: true, value: JSON.parse(text) }, text)
  }
})

t.test('names a key that stands twice in one object, at any depth and however it is spelled', async (t) => {
  for (const text of [
    '{"a":1,"a":2}',
    '{"x":[{"a":1,"b":{},"a":2}]}',
    '{"a":1,"\\u0061":2}',
    '{"a":{"b":1},"c":[],"a":2}',
  ]) {
    t.same(parseStrictJson(bytes(text)), { ok: false, repeatedKey: 'a' }, text)
  }
  t.same(parseStrictJson(bytes('{"__proto__":1,"__proto__":2}')), { ok: false, repeatedKey: '__proto__' })
})

t.test('refuses what is not one well-formed UTF-8 JSON text', async (t) => {
  for (const text of ['', '{', '{"a":1,}', '{"a":NaN}', '// x\n{}', '{} {}', '\uFEFF{}']) {
    t.same(parseStrictJson(bytes(text)), { ok: false }, JSON.stringify(text))
  }
  t.same(parseStrictJson(Uint8Array.of(0x22, 0xff, 0x22)), { ok: false }, 'invalid UTF-8')
  t.same(parseStrictJson(Uint8Array.of(0xff, 0xfe, 0x7b, 0, 0x7d, 0)), { ok: false }, 'UTF-16')
})

t.test('is not brought down by depth', async (t) => {
  const deep = '['.repeat(100_000)
  t.same(parseStrictJson(bytes(deep)).ok, false)
  t.same(parseStrictJson(bytes(`${deep}{"a":1,"a":1}${']'.repeat(100_000)}`)).ok, false)
})

const exact = { exact: true }

t.test('asked to be exact, it refuses what another reader would take for something else', async (t) => {
  const places = [
    (it: string) => it,
    (it: string) => `[${it}]`,
    (it: string) => `{"a":{"b":[1,${it}]},"c":2}`,
  ]
  const numbers = ['1e999', '-1e999', '1E+400', `9${'0'.repeat(400)}`, `-${'9'.repeat(310)}.5`, '1.8e308']
  const surrogates = ['"\\ud800"', '"\\uDFFF x"', '"a\\udc00\\ud800"', '"\\ud83d\\u0041"', '{"\\ud800":1}']
  for (const value of [...numbers, ...surrogates]) {
    for (const place of places) {
      const text = place(value)
      t.same(parseStrictJson(bytes(text), exact), { ok: false, inexact: JSON.parse(text) }, text)
      t.equal(parseStrictJson(bytes(text)).ok, true, 'which others need not mind')
    }
  }
  const plain = [
    '1.7e308',
    '-0',
    '1e-999',
    '12345678901234567890',
    '"1e999"',
    '"\\ud83d\\ude00"',
    '"\\\\ud800"',
  ]
  for (const value of plain) {
    for (const place of places) t.equal(parseStrictJson(bytes(place(value)), exact).ok, true, place(value))
  }
  t.same(parseStrictJson(bytes('{"a":1e999,"a":1}'), exact), { ok: false, repeatedKey: 'a' })
})

t.test('asked to be exact, it nests as deep as anything useful, and no deeper', async (t) => {
  const nested = (depth: number) => `${'['.repeat(depth)}${']'.repeat(depth)}`
  const objects = (depth: number) => `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`
  for (const text of [nested(MOST_NESTED), objects(MOST_NESTED), `[${nested(MOST_NESTED - 1)},[],[]]`]) {
    t.equal(parseStrictJson(bytes(text), exact).ok, true)
  }
  for (const depth of [MOST_NESTED + 1, 6000]) {
    t.equal(parseStrictJson(bytes(nested(depth)), exact).ok, false, `${depth} arrays`)
    t.equal(parseStrictJson(bytes(objects(depth)), exact).ok, false, `${depth} objects`)
  }
})

t.test('keeps the names of one object apart from those of another', async (t) => {
  for (const text of ['[{"a":1},{"a":1}]', '{"a":{"a":{"a":1}},"b":[{"a":1}]}', '{"1 a":1,"a":{"1 a":1}}']) {
    t.equal(parseStrictJson(bytes(text)).ok, true, text)
  }
  t.same(parseStrictJson(bytes('{"":1,"":2}')), { ok: false, repeatedKey: '' })
})

t.test('tells an object from every other value', async (t) => {
  t.equal(isJsonObject({}), true)
  for (const value of [[], null, 'a', 1, true, undefined]) t.equal(isJsonObject(value), false)
})
