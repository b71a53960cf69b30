import t from 'tap'
import { malformationOf } from '../../src/token/malformation.ts'
import { parseProtectedHeader } from '../../src/token/protected-header.ts'
import { hasTokenShape } from '../../src/token/shape.ts'
import { segment } from '../support/tokens.ts'

const part = (value: unknown) => segment(JSON.stringify(value))
const header = part({ alg: 'ES256', kid: 'k' })
const payload = part({ sub: 'acme' })

t.test('each rule of the shape has its sentence, which repeats nothing of the text', async (t) => {
  const cases: [string, RegExp][] = [
    [`Bearer ${header}.${payload}.AAAA`, /scheme/],
    ['bearer\tx', /scheme/],
    [`${header}.${payload}.${'A'.repeat(8192)}`, /^It has 8\d{3} characters; more than 8192/],
    ['secret-canary', /^It has one part/],
    [`${header}.${payload}`, /^It has 2 parts/],
    [`${header}.${payload}.AAAA.AAAA`, /^It has 4 parts/],
    [`${header}.AAAA.AAAA.AAAA.AAAA`, /^It has five parts, as an encrypted token/],
    [`.${payload}.AAAA`, /^Its header is empty/],
    [`${header}..AAAA`, /^Its payload is empty/],
    [`${header}.${payload}.`, /^Its signature is empty/],
    [`${header}.${payload}.AAA=`, /^Its signature has = at its end/],
    [`${header}.${payload} .AAAA`, /^Its payload holds characters/],
    [`${header}.${payload}.AA/A`, /^Its signature holds characters/],
    [`${header}.${payload}.AAAAA`, /^Its signature is not the one spelling .* or was cut/],
    [`${header}.${payload}.AB`, /^Its signature is not the one spelling/],
    [`secret-canary.${payload}.AAAA`, /^Its header is (not the one|no JSON)/],
  ]
  for (const [token, sentence] of cases) {
    t.equal(
      hasTokenShape(token) && parseProtectedHeader(token.slice(0, token.indexOf('.'))) !== undefined,
      false,
    )
    t.match(malformationOf(token), sentence, token.slice(0, 60))
    t.notMatch(malformationOf(token), /canary/)
  }
})

t.test('so has each rule of the header', async (t) => {
  const cases: [string, RegExp][] = [
    [segment('[]'), /^Its header is no JSON object/],
    [segment('{"alg":"ES256","alg":"ES256"}'), /names a member twice/],
    ...['crit', 'b64', 'zip', 'cty'].map((name): [string, RegExp] => [
      part({ alg: 'ES256', [name]: 'x' }),
      new RegExp(`^Its header holds ${name},`),
    ]),
    [part({ kid: 'k' }), /^Its alg is not a string/],
    [part({ alg: 'ES256', kid: 5 }), /^Its kid is not a string/],
  ]
  for (const [head, sentence] of cases) {
    t.equal(parseProtectedHeader(head), undefined)
    t.match(malformationOf(`${head}.${payload}.AAAA`), sentence)
  }
})
