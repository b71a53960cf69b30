/**
 * Tells why an RSA public key is too weak to trust.
 *
 * In: modulus and exponent. Out: the reason in plain words, or nothing. The length is taken from the number
 * itself: leading zero octets make no modulus longer.
 *
 * @module
 */

/** Least length of a modulus (RFC 7518, section 3.3). */
const LEAST_BITS = 2048

/**
 * The primes up to 167 that the test for CVE-2017-15361 ("ROCA") works with. Keys made by the faulty chips
 * have primes of the form `k * M + 65537^a mod M`, so their modulus is a power of 65537 modulo every small
 * prime. A sound key passes for such a one with a chance of about 2^-28.
 */
const SMALL_PRIMES = [
  3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107,
  109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167,
]

/**
 * Why this public key must not be used; `undefined` when nothing speaks against it.
 *
 * @param n - the modulus, big-endian
 * @param e - the public exponent, big-endian
 */
export function weakRsa(n: Uint8Array, e: Uint8Array): string | undefined {
  const modulus = integer(n)
  const exponent = integer(e)
  if (modulus.toString(2).length < LEAST_BITS) return `the RSA modulus is shorter than ${LEAST_BITS} bits`
  if (modulus % 2n === 0n) return 'the RSA modulus is even'
  // FIPS 186-5, section 5.4 (e); an exponent of 1 makes every message its own signature.
  if (exponent < 65537n || exponent >= 2n ** 256n || exponent % 2n === 0n) {
    return 'the RSA exponent must be odd and at least 65537'
  }
  if (SMALL_PRIMES.every((prime) => powersOf65537(prime).has(Number(modulus % BigInt(prime))))) {
    return 'the RSA key was made by a faulty generator (ROCA, CVE-2017-15361)'
  }
  return undefined
}

function integer(bytes: Uint8Array): bigint {
  return BigInt(`0x0${Buffer.from(bytes).toString('hex')}`)
}

function powersOf65537(prime: number): ReadonlySet<number> {
  const powers = new Set<number>()
  for (let power = 1; !powers.has(power); power = (power * 65537) % prime) powers.add(power)
  return powers
}
