import t from 'tap'
import { weakRsa } from '../../src/keys/weak-rsa.ts'
import { makeKey } from '../support/keys.ts'

const octets = (value: bigint) => {
  const hex = value.toString(16)
  return Buffer.from(hex.length % 2 === 0 ? hex : `0${hex}`, 'hex')
}
const F4 = octets(65537n)
const sound = Buffer.from(String((await makeKey('RS256')).publicJwk.n), 'base64url')

t.test('a key of 2048 bits with the usual exponent is sound', async (t) => {
  t.equal(weakRsa(sound, F4), undefined)
  t.equal(weakRsa(sound, octets(2n ** 256n - 1n)), undefined)
})

t.test('a short modulus is weak, however many zeros stand before it', async (t) => {
  const reason = 'the RSA modulus is shorter than 2048 bits'
  const bits2047 = octets(2n ** 2047n - 1n)
  t.equal(weakRsa(bits2047, F4), reason)
  t.equal(weakRsa(Buffer.concat([Buffer.alloc(128), sound.subarray(0, 128)]), F4), reason)
  t.equal(weakRsa(new Uint8Array(), F4), reason)
})

t.test('an even modulus is weak', async (t) => {
  t.equal(weakRsa(octets(2n ** 2048n), F4), 'the RSA modulus is even')
})

t.test('an exponent of 1 or another small or even one is weak', async (t) => {
  for (const e of [0n, 1n, 3n, 17n, 65535n, 65536n, 65538n, 2n ** 256n + 1n]) {
    t.equal(weakRsa(sound, octets(e)), 'the RSA exponent must be odd and at least 65537', String(e))
  }
})

t.test('a modulus as the faulty generator made them is weak', async (t) => {
  // Both primes were powers of 65537 modulo the product of the small primes, and so is what they multiply to.
  const primes = Array.from({ length: 167 }, (_, n) => n + 1).filter(
    (n) => n > 1 && Array.from({ length: n }, (_, d) => d).every((d) => d < 2 || n % d !== 0),
  )
  const product = primes.reduce((all, prime) => all * BigInt(prime), 1n)
  let power = 1n
  for (let exponent = 0; exponent < 12345; exponent++) power = (power * 65537n) % product
  const modulus = (2n ** 2047n / product + 2n) * product + power
  t.equal(weakRsa(octets(modulus), F4), 'the RSA key was made by a faulty generator (ROCA, CVE-2017-15361)')
  t.equal(weakRsa(octets(modulus + 2n), F4), undefined)
})
