import t from 'tap'
import { parseBasicAuthorization } from '../../src/http/basic-authorization.ts'

const base64 = (text: string) => Buffer.from(text).toString('base64')

const read = (text: string) => parseBasicAuthorization(`Basic ${base64(text)}`)

t.test('a name and a secret are split at the first colon', async (t) => {
  t.same(read('acme:secret'), { name: 'acme', secret: 'secret' })
  t.same(read('acme~key:a:b:'), { name: 'acme~key', secret: 'a:b:' })
  t.same(read(':secret'), { name: '', secret: 'secret' })
  t.same(read('acme:'), { name: 'acme', secret: '' })
  t.same(read(':'), { name: '', secret: '' })
})

t.test('text is UTF-8, of which nothing is left out', async (t) => {
  t.same(read('märz:пароль 🔑'), { name: 'märz', secret: 'пароль 🔑' })
  t.same(read('\ufeffacme:\ufeff'), { name: '\ufeffacme', secret: '\ufeff' }, 'byte order marks stay')
  t.same(read(' acme : s '), { name: ' acme ', secret: ' s ' }, 'spaces stay')
})

t.test('the scheme is read in any case, before one space or several', async (t) => {
  const encoded = base64('acme:secret')
  for (const scheme of ['Basic ', 'basic ', 'BASIC ', 'bAsIc    ']) {
    t.same(parseBasicAuthorization(scheme + encoded), { name: 'acme', secret: 'secret' }, scheme)
  }
})

t.test('every other form is refused', async (t) => {
  const encoded = base64('acme:secret!')
  const unpadded = base64('acme:secret').replace(/=+$/, '')
  const bytes = (...list: number[]) => Buffer.from(list).toString('base64')
  const values = {
    'nothing at all': '',
    'the scheme alone': 'Basic',
    'the scheme and a space': 'Basic ',
    'no space': `Basic${encoded}`,
    'a tab': `Basic\t${encoded}`,
    'a space and a tab': `Basic \t${encoded}`,
    'a space before': ` Basic ${encoded}`,
    'a space behind': `Basic ${encoded} `,
    'a line break behind': `Basic ${encoded}\n`,
    'a line break within': `Basic ${encoded.slice(0, 4)}\r\n${encoded.slice(4)}`,
    'a space within': `Basic ${encoded.slice(0, 4)} ${encoded.slice(4)}`,
    'a list': `Basic ${encoded}, Basic ${encoded}`,
    'a comma behind': `Basic ${encoded},`,
    'two schemes': `Basic Bearer ${encoded}`,
    'another scheme': `Bearer ${encoded}`,
    'a longer scheme': `Basics ${encoded}`,
    'a parameter': `Basic ${encoded}; charset=UTF-8`,
    quotes: `Basic "${encoded}"`,
    'no padding': `Basic ${unpadded}`,
    'too much padding': `Basic ${unpadded}==`,
    'padding alone': 'Basic ==',
    'padding within': 'Basic YQ==YTpi',
    'stray last bits': 'Basic YTpiYR==',
    'the URL-safe alphabet': `Basic ${Buffer.from('acme:???>>>').toString('base64url')}`,
    'no colon': `Basic ${base64('acme')}`,
    'an empty text': `Basic ${base64('')}`,
    'a NUL': `Basic ${base64('acme:a\0b')}`,
    'a line break in the name': `Basic ${base64('ac\nme:a')}`,
    'a DEL': `Basic ${base64('acme:a\x7f')}`,
    'a cut UTF-8 sequence': `Basic ${bytes(0x61, 0x3a, 0xc3)}`,
    'Latin-1': `Basic ${bytes(0xe4, 0x3a, 0x61)}`,
    'an overlong sequence': `Basic ${bytes(0x61, 0x3a, 0xc0, 0xaf)}`,
    'a surrogate': `Basic ${bytes(0x61, 0x3a, 0xed, 0xa0, 0x80)}`,
    'UTF-16': `Basic ${Buffer.from('a:b', 'utf16le').toString('base64')}`,
  }
  for (const [what, value] of Object.entries(values)) {
    t.equal(parseBasicAuthorization(value), undefined, what)
  }
})

t.test('a long value takes no longer than its length', async (t) => {
  const secret = 'x'.repeat(100_000)
  t.same(read(`acme:${secret}`), { name: 'acme', secret })
  t.equal(parseBasicAuthorization(`Basic${' '.repeat(100_000)}`), undefined)
  t.equal(parseBasicAuthorization(`Basic ${'A'.repeat(100_000)}!`), undefined)
})
