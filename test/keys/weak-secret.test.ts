import { randomBytes } from 'node:crypto'
import t from 'tap'
import { weakSecret } from '../../src/keys/weak-secret.ts'

t.test('random secrets are sound, as bytes and as text', async (t) => {
  for (let round = 0; round < 50; round++) {
    t.equal(weakSecret(randomBytes(32)), undefined)
    t.equal(weakSecret(randomBytes(64)), undefined)
    t.equal(weakSecret(Buffer.from(randomBytes(32).toString('hex'))), undefined)
    t.equal(weakSecret(Buffer.from(randomBytes(32).toString('base64url'))), undefined)
  }
})

t.test('fewer than 32 bytes are too short', async (t) => {
  for (const length of [0, 1, 31]) {
    t.equal(weakSecret(randomBytes(length)), 'the secret is shorter than 32 bytes', String(length))
  }
})

t.test('a few characters over and over are weak', async (t) => {
  for (const secret of [Buffer.alloc(32), Buffer.alloc(64, 'a'), Buffer.alloc(55, 'test123-')]) {
    t.equal(weakSecret(secret), 'the secret repeats a few characters')
  }
})

t.test('secrets that stand in manuals and public lists are weak, and are not quoted', async (t) => {
  for (const secret of [
    'a-string-secret-at-least-256-bits-long',
    'super-secret-jwt-token-with-at-least-32-characters-long',
    '<random_string_at_least_32_characters_long>',
    'my-32-character-ultra-secure-and-ultra-long-Secret',
    'CHANGE_ME_CHANGE_ME_PLEASE_CHANGE_ME',
    'ThisIsAVeryLongPasswordForMyService!',
    'qwertyuiopasdfghjklzxcvbnm1234567890',
    '01234567890123456789012345678901234',
    'reallyreallyreallyreallyverysafe',
    'r9iMKoe5CRMgvJBBtp4HrqN7QiPpUToj',
  ]) {
    t.equal(weakSecret(Buffer.from(secret)), 'the secret is a well-known one or reads like one', secret)
  }
  const rfc7515 = 'AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow'
  t.ok(weakSecret(Buffer.from(rfc7515, 'base64url')), 'the key of RFC 7515')
})

t.test('a UUID, or 16 bytes in hex, is weak though it is long enough', async (t) => {
  for (const secret of ['0a6b944d-d2fb-46fc-a85e-0295c986cd9f', '0ABC54B8F26911EAB443A45E60EFBF2D']) {
    const reason = 'the secret is a UUID or 128 bits written in hex, which is too little'
    t.equal(weakSecret(Buffer.from(secret)), reason)
  }
})
