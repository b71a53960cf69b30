import { randomBytes, randomInt } from 'node:crypto'
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

t.test('a secret that a generator drew passes, however it is written', async (t) => {
  const drawn = (alphabet: string, length: number) =>
    Array.from({ length }, () => alphabet.charAt(randomInt(alphabet.length))).join('')
  const lower = 'abcdefghijklmnopqrstuvwxyz'
  const base62 = `0123456789${lower}${lower.toUpperCase()}`
  for (let round = 0; round < 300; round++) {
    const bytes = randomBytes(32 + (round % 33))
    const texts = [
      bytes.toString('hex'),
      bytes.toString('hex').toUpperCase(),
      bytes.toString('base64'),
      randomBytes(24).toString('base64'),
      drawn(lower, 32),
      drawn(base62, 32),
      drawn(`${lower.toUpperCase()}234567`, 52),
      Array.from({ length: 10 }, () => drawn(lower, 5)).join(' '),
    ]
    for (const secret of [bytes, ...texts.map((text) => Buffer.from(text))]) {
      const weakness = weakSecret(secret)
      if (weakness !== undefined) t.fail(`${secret.toString('latin1')}: ${weakness}`)
    }
  }
})

t.test('letters of both cases with a few digits among them are no phrase', async (t) => {
  t.equal(weakSecret(Buffer.from('5yqyHocyVae7Uqhy6lsFlUsKehllqoFr')), undefined)
})

t.test(
  'a secret that manuals and tutorials print is refused, as the text and as what it stands for',
  async (t) => {
    const printed = [
      '09d25e094faa6ca2556c818166b7a9563b93f7099f6f0f4caa6cf63b88e8d3e7', // FastAPI
      '3cfa76ef14937c1c0ea519f8fc057a80fcd04a7420f8e8bcd0a7567c272e007b', // Spring Security
      '404E635266556A586E3272357538782F413F4428472B4B6250645367566B5970',
      '413F4428472B4B6250655368566D5970337336763979244226452948404D6351', // another piece of the same walk
      '5367566B59703373367639792F423F4528482B4D6251655468576D5A71347437',
    ]
    const wellKnown = 'the secret is a well-known one or reads like one'
    for (const text of printed) {
      t.equal(weakSecret(Buffer.from(text)), wellKnown)
      t.equal(weakSecret(Buffer.from(text, 'hex')), wellKnown)
      t.equal(weakSecret(Buffer.from(Buffer.from(text, 'hex').toString('base64'))), wellKnown)
    }
    const texts = [
      'a-string-secret-at-least-256-bits-long',
      'super-secret-jwt-token-with-at-least-32-characters-long',
      'django-insecure-m3k1w!8z0q5v7x2c4b6n9p',
      'VGhpc0lzTXlDdXN0b21TZWNyZXRLZXkwMTIzNDU2Nzg=',
      'ZmQ0ZGI5NjQ0MDQwY2I4MjMxY2Y3ZmI3MjdhN2ZmMjNhODViOTg1ZGE0NTBjMGM4NDA5NzYxMjdjOWMwYWRmZTBlZjlhNGY3ZTg4Y2U3YTE1ODVkZDU5Y2Y3OGYwZWE1NzUzNWQ2YjFjZDc0NGMxZWU2MmQ3MjY1NzJmNTE0MzI=',
      '3EK6FD+o0+c7tzBNVfjpMkNDi2yARAAKzQlk8O2IKoxQu4nF7EdAh8s3TwpHwrdWT6R',
      'r9iMKoe5CRMgvJBBtp4HrqN7QiPpUToj',
    ]
    for (const text of texts) t.equal(weakSecret(Buffer.from(text)), wellKnown, text)
  },
)

t.test('a secret with a pattern is refused by what is wrong with it', async (t) => {
  const counting = Buffer.from(Array.from({ length: 40 }, (_, at) => at))
  const piece = randomBytes(20)
  const cases: [Buffer, RegExp][] = [
    [counting, /sequence/],
    [Buffer.from(counting.toString('hex')), /sequence/],
    [Buffer.from('zyxwvutsrqponmlkjihgfedcba9876543210'), /sequence/],
    [Buffer.from('1q2w3e4r5t6y7u8i9o0p-azsxdcfvgbhnjmk'), /keyboard/],
    [Buffer.from('1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik,9ol.'), /keyboard/],
    [Buffer.from('ASDFGHJKLPOIUYTREWQZXCVBNMLKJHGFDSA'), /keyboard/],
    [Buffer.concat([piece, piece]), /short piece/],
    [Buffer.from('k8Fz!qWn2#Lp'.repeat(4)), /short piece/],
    [Buffer.from(Buffer.from('k8Fz!qWn2#Lp'.repeat(4)).toString('base64')), /short piece/],
    [Buffer.from('correct horse battery staple onward'), /fewer than 10 words/],
    [Buffer.from('NobodyWillEverGuessThisLongPhrase2024!'), /fewer than 10 words/],
    [Buffer.from('we_are_the_champions_of_the_world.'), /fewer than 10 words/],
    [Buffer.from('2026013194736284051739502841763950'), /too few digits/],
    [Buffer.from('amatamatapamatacamatawamatahamatag'), /holds too little/],
  ]
  for (const [secret, reason] of cases) {
    t.match(weakSecret(secret), reason, secret.toString('latin1'))
    t.notMatch(String(weakSecret(secret)), secret.toString('latin1'), 'without the secret')
  }
  t.equal(weakSecret(Buffer.concat([randomBytes(32), randomBytes(32)])), undefined)
})
