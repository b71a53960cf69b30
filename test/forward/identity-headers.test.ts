import fc from 'fast-check'
import t from 'tap'
import { encodeIdentityValue, identityLines } from '../../src/forward/identity-headers.ts'

t.test('visible ASCII stands for itself, the percent sign alone does not', async (t) => {
  let visible = ''
  for (let code = 0x21; code <= 0x7e; code++) if (code !== 0x25) visible += String.fromCharCode(code)
  t.equal(encodeIdentityValue(visible), visible)
  t.equal(encodeIdentityValue('%'), '%25')
  t.equal(encodeIdentityValue('a%20b'), 'a%2520b')
})

t.test('everything else is written byte by byte, in upper case', async (t) => {
  for (const [value, encoded] of [
    ['', ''],
    ['two words', 'two%20words'],
    [' a ', '%20a%20'],
    ['a\r\nX-Authenticated-Account-Id: root', 'a%0D%0AX-Authenticated-Account-Id:%20root'],
    ['\0\t\x1b\x7f', '%00%09%1B%7F'],
    ['caf\u00e9', 'caf%C3%A9'],
    ['\u00a0\u2028', '%C2%A0%E2%80%A8'],
    ['\u6771\u4eac', '%E6%9D%B1%E4%BA%AC'],
    ['\u{1f600}', '%F0%9F%98%80'],
    ['e\u0301', 'e%CC%81'],
    ['+', '+'],
  ] as const) {
    t.equal(encodeIdentityValue(value), encoded)
  }
})

t.test('any name comes back as it was, out of visible ASCII alone', async (t) => {
  const names = fc.string({ unit: 'binary', maxLength: 50 })
  const comesBack = fc.property(names, (value) => {
    const encoded = encodeIdentityValue(value)
    return /^[!-~]*$/.test(encoded) && decodeURIComponent(encoded) === value
  })
  t.doesNotThrow(() => fc.assert(comesBack, { numRuns: 2000 }))
})

t.test('no two names read alike, not even once they are normalised', async (t) => {
  const name = fc.string({
    unit: fc.constantFrom('%', '2', '0', ' ', 'a', 'A', '\u00e9', 'e\u0301', '\u212b', '\u00c5'),
    maxLength: 6,
  })
  const differ = fc.property(name, name, (a, b) => {
    const same = encodeIdentityValue(a).normalize('NFKC') === encodeIdentityValue(b).normalize('NFKC')
    return same === (a === b)
  })
  t.doesNotThrow(() => fc.assert(differ, { numRuns: 5000 }))
})

t.test('an identity is four lines', async (t) => {
  const identity = {
    accountId: 'Acme & S\u00f6hne',
    accessKey: 'AK\r\n1',
    tokenId: 't-1',
    expiresAt: 1_900_000_000,
  }
  const lines =
    'X-Authenticated-Account-Id: Acme%20&%20S%C3%B6hne\r\n' +
    'X-Authenticated-Access-Key: AK%0D%0A1\r\n' +
    'X-Authenticated-Token-Id: t-1\r\n' +
    'X-Authenticated-Token-Expires: 1900000000\r\n'
  t.equal(identityLines(identity), lines)
  t.equal(identityLines(identity), lines, 'the second time, too')
  t.equal(
    identityLines({ ...identity, tokenId: 't-2' }),
    lines.replace('t-1', 't-2'),
    'another identity has its own',
  )
})
