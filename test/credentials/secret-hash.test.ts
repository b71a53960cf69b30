import { scryptSync } from 'node:crypto'
import t from 'tap'
import {
  dummyHash,
  generateSecret,
  hashSecret,
  secretHashProblem,
  verifySecret,
} from '../../src/credentials/secret-hash.ts'

const SALT = 'AAAAAAAAAAAAAAAAAAAAAA'
const DIGEST = 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'

t.test('a generated secret is 256 random bits in base64url', async (t) => {
  const secrets = new Set(Array.from({ length: 100 }, generateSecret))
  t.equal(secrets.size, 100)
  for (const secret of secrets) t.match(secret, /^[\w-]{43}$/)
})

t.test('stored hashes have the documented form', async (t) => {
  // SHA-256 of "abc" (FIPS 180-4), in the PHC alphabet.
  t.equal(await hashSecret('abc', 'sha256'), '$sha256$ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0')
  const stored = await hashSecret('abc', 'scrypt')
  t.match(stored, /^\$scrypt\$ln=14,r=8,p=5\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/)
  const [, , , salt = '', digest = ''] = stored.split('$')
  const expected = scryptSync('abc', Buffer.from(salt, 'base64'), 32, { N: 2 ** 14, r: 8, p: 5 })
  t.same(Buffer.from(digest, 'base64'), expected)
  t.not(await hashSecret('abc', 'scrypt'), stored, 'with a salt of its own')
})

t.test('only the exact bytes of the secret match', async (t) => {
  const secret = ` é${'x'.repeat(80)} `.normalize('NFC')
  const others = [
    secret.trim(),
    secret.slice(0, 72),
    secret.slice(0, -1),
    `${secret} `,
    `${secret}\n`,
    `${secret}\0`,
    secret.normalize('NFD'),
    secret.toUpperCase(),
    '',
  ]
  const sha256 = await hashSecret(secret, 'sha256')
  t.equal(await verifySecret(secret, sha256), true)
  for (const other of others) t.equal(await verifySecret(other, sha256), false)

  const scrypt = await hashSecret(secret, 'scrypt')
  t.equal(await verifySecret(secret, scrypt), true)
  for (const other of others.slice(1, 3)) t.equal(await verifySecret(other, scrypt), false)
})

t.test('a dummy hash has the parameters asked for and matches nothing', async (t) => {
  // The weakest set of OWASP, and the most expensive that is allowed.
  for (const prefix of ['$sha256', '$scrypt$ln=13,r=8,p=10', '$scrypt$ln=16,r=8,p=4']) {
    const dummy = dummyHash(prefix)
    t.ok(dummy.startsWith(`${prefix}$`))
    t.equal(secretHashProblem(dummy), undefined)
    t.equal(await verifySecret('', dummy), false, prefix)
  }
})

t.test('weaker and more expensive parameters are refused', async (t) => {
  for (const parameters of ['ln=12,r=8,p=20', 'ln=14,r=8,p=4', 'ln=14,r=1,p=5', 'ln=1,r=1,p=1']) {
    const result = secretHashProblem(`$scrypt$${parameters}$${SALT}$${DIGEST}`)
    t.match(result, /too weak/, parameters)
  }
  for (const parameters of ['ln=17,r=8,p=1', 'ln=14,r=64,p=1', 'ln=14,r=8,p=17', 'ln=99,r=999,p=999']) {
    const result = secretHashProblem(`$scrypt$${parameters}$${SALT}$${DIGEST}`)
    t.match(result, /cost too much/, parameters)
  }
})

t.test('anything but a complete canonical hash is refused, and not echoed', async (t) => {
  const others = [
    '',
    'a plain secret',
    `$sha256$${DIGEST}=`,
    `$sha256$${DIGEST.slice(1)}`,
    `$sha256$${DIGEST.slice(0, -1)}B`, // stray last bits: a second spelling of the same digest
    `$SHA256$${DIGEST}`,
    ` $sha256$${DIGEST}`,
    `$sha256$${DIGEST}\n`,
    `$2b$12$${DIGEST}`,
    `$scrypt$${SALT}$${DIGEST}`,
    `$scrypt$ln=014,r=8,p=5$${SALT}$${DIGEST}`,
    `$scrypt$r=8,ln=14,p=5$${SALT}$${DIGEST}`,
    `$scrypt$ln=14,r=8,p=5$AAAA$${DIGEST}`,
    `$scrypt$ln=14,r=8,p=5$${SALT.slice(0, -1)}B$${DIGEST}`,
    `$scrypt$ln=14,r=8,p=5$${SALT}$${DIGEST.slice(0, -1)}B`,
  ]
  for (const other of others) {
    t.equal(
      secretHashProblem(other),
      'must be a complete $sha256$ or $scrypt$ hash, as `credentials add` writes it',
      other,
    )
  }
})
