import t from 'tap'
import { MAX_NAMES_BYTES, nameProblem, namesProblem, secretProblem } from '../../src/credentials/names.ts'

t.test('a field has 1 to 1024 code points, whatever the script', async (t) => {
  for (const text of ['a', ' ', 'é'.normalize('NFD'), 'a'.repeat(1024), '😀'.repeat(1024)]) {
    t.equal(nameProblem(text), undefined)
    t.equal(secretProblem(text), undefined)
  }
  for (const text of ['', 'a'.repeat(1025), 'a'.repeat(2049), '😀'.repeat(1025)]) {
    t.equal(nameProblem(text), 'must be 1 to 1024 characters long')
    t.equal(secretProblem(text), 'must be 1 to 1024 characters long')
  }
})

t.test('a lone surrogate, which has no UTF-8 form, is refused', async (t) => {
  for (const text of ['a\ud800', '\udc00', '\udc00\ud800']) {
    t.equal(nameProblem(text), 'must be well-formed Unicode')
    t.equal(secretProblem(text), 'must be well-formed Unicode')
  }
})

t.test('a control character is refused in a name and allowed in a secret', async (t) => {
  for (const text of ['\0', 'a\r\nb', '\x7f', 'a\x85', '\t']) {
    t.equal(nameProblem(text), 'must not hold control characters')
    t.equal(secretProblem(text), undefined)
  }
})

t.test('two names fit into one token unless both are long and of multi-byte characters', async (t) => {
  for (const name of ['a', '"', '\\', 'я']) {
    t.equal(namesProblem(name.repeat(1024), name.repeat(1024)), undefined, name)
    t.equal(namesProblem('😀'.repeat(1024), 'a'.repeat(1024)), undefined)
    t.equal(namesProblem('a'.repeat(1024), '😀'.repeat(1024)), undefined)
  }
  t.equal(MAX_NAMES_BYTES, 5120)
  const expected = 'must be shorter: account and access key together may have 5120 bytes in UTF-8'
  t.equal(namesProblem('密'.repeat(1024), '密'.repeat(682)), undefined)
  t.equal(namesProblem('密'.repeat(1024), '密'.repeat(683)), expected)
  t.equal(
    namesProblem('😀'.repeat(1024), `${'a'.repeat(1022)}я"`),
    expected,
    'an escape counts as it is written',
  )
})
