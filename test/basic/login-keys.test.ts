/** The keys of remembered logins, compared with `createHmac`. */
import { createHmac } from 'node:crypto'
import t from 'tap'
import { LoginKeys } from '../../src/basic/login-keys.ts'

const HEADER_BYTES = 16384

t.test('a key is an HMAC-SHA-256 of name and secret with their lengths', async (t) => {
  const secretKey = Buffer.from('0123456789abcdef0123456789abcdef')
  const keys = new LoginKeys(HEADER_BYTES, secretKey)
  for (const [name, secret] of [
    ['AK', 'secret'],
    ['', ''],
    ['märz', 'пароль 🔑'],
    ['AK', 's'.repeat(12_000)],
    ['AK', 'я'.repeat(6000)],
    ['AK', 'secret'], // again, after longer ones: the buffer is reused
  ] as const) {
    const text = `${name.length} ${secret.length} ${name}${secret}`
    const expected = createHmac('sha256', secretKey).update(text).digest('base64')
    t.equal(keys.keyOf({ name, secret }), expected, `${name.length} and ${secret.length}`)
  }
})

t.test('keys differ by name, by secret and by process', async (t) => {
  const keys = new LoginKeys(HEADER_BYTES)
  const all = [
    // The same text, if nothing separated the two.
    keys.keyOf({ name: 'ab', secret: 'c' }),
    keys.keyOf({ name: 'a', secret: 'bc' }),
    keys.keyOf({ name: 'a', secret: 'b c' }),
    keys.keyOf({ name: '1 1 ', secret: 'a' }),
    new LoginKeys(HEADER_BYTES).keyOf({ name: 'ab', secret: 'c' }),
  ]
  t.equal(new Set(all).size, all.length)
  t.equal(keys.keyOf({ name: 'ab', secret: 'c' }), all[0])
})
