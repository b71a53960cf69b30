import t from 'tap'
import { isJsonObject, parseStrictJson } from '../src/strict-json.ts'

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
