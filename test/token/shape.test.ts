import { randomBytes } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { hasTokenShape, MOST_TOKEN_BYTES } from '../../src/token/shape.ts'
import { respellings } from '../support/tokens.ts'

t.test('takes three segments in the spelling that an encoder writes', async (t) => {
  const octets = fc.uint8Array({ minLength: 1, maxLength: 60 })
  const encoded = fc.property(octets, octets, octets, (...segments) =>
    hasTokenShape(segments.map((bytes) => Buffer.from(bytes).toString('base64url')).join('.')),
  )
  t.doesNotThrow(() => fc.assert(encoded))
})

t.test('takes no text that an encoder would write otherwise', async (t) => {
  const character = fc.constantFrom(...'AQgwEIMz09-_.=+/ \t\n\0\u00e9\u2028')
  const text = fc.string({ unit: character, maxLength: 24 })
  const sameAsEncoder = fc.property(text, (token) => {
    const parts = token.split('.')
    const canonical = parts.map((part) => Buffer.from(part, 'base64url').toString('base64url')).join('.')
    return hasTokenShape(token) === (parts.length === 3 && !parts.includes('') && token === canonical)
  })
  t.doesNotThrow(() => fc.assert(sameAsEncoder, { numRuns: 2000 }))
})

t.test('refuses every other spelling of one token', async (t) => {
  for (const bytes of [31, 32, 33, 64]) {
    const token = `${'eyJhbGciOiJFUzI1NiJ9'}.e30.${randomBytes(bytes).toString('base64url')}`
    t.equal(hasTokenShape(token), true)
    for (const [name, respelled] of respellings(token)) {
      if (name.startsWith('trailing') && bytes % 3 === 0) continue
      t.equal(hasTokenShape(respelled), false, `${name} (${bytes})`)
    }
  }
})

t.test('refuses other numbers of segments, and empty ones', async (t) => {
  for (const token of [
    '',
    '.',
    '..',
    'AA',
    'AA.AA',
    'AA.AA.',
    '.AA.AA',
    'AA..AA',
    'AA.AA.AA.AA',
    'AA.AA.AA.AA.AA',
    '{"payload":"AA"}',
  ]) {
    t.equal(hasTokenShape(token), false, token)
  }
})

t.test('8 KiB are enough', async (t) => {
  const filled = (length: number) => `AA.AA.${'A'.repeat(length - 6)}`
  t.equal(hasTokenShape(filled(MOST_TOKEN_BYTES - 2)), true)
  t.equal(hasTokenShape(filled(MOST_TOKEN_BYTES)), true)
  t.equal(hasTokenShape(filled(MOST_TOKEN_BYTES + 1)), false)
  t.equal(hasTokenShape(filled(MOST_TOKEN_BYTES + 4)), false)
})
