import fc from 'fast-check'
import t from 'tap'
import { createPeers } from '../../src/client/client-address.ts'
import { requestHeadText } from '../../src/proxy/request-headers.ts'
import { encodeIdentityValue } from '../../src/token/caller.ts'
import { requestContext } from '../support/request-context.ts'
import { admission, admitted, type HeadParts, type Line } from '../support/request-heads.ts'
import { makeCaller } from '../support/tokens.ts'

const caller = makeCaller()
const socket = { remoteAddress: '192.0.2.7' }
const untrusted = createPeers([])(socket, false, 8080)

const REQUEST_ID = 'X-Request-Id: created-here\r\n'
const FORWARDED =
  'X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Port: 8080\r\n' +
  'X-Forwarded-Host: storage.example\r\nForwarded: for=192.0.2.7;proto=http;host="storage.example"\r\n'
const IDENTITY =
  'X-Authenticated-Account-Id: acme\r\nX-Authenticated-Access-Key: AK\r\n' +
  'X-Authenticated-Token-Id: token-1\r\nX-Authenticated-Token-Expires: 2000000000\r\n'
/** The end of every head. */
const OURS = `${REQUEST_ID}${FORWARDED}${IDENTITY}\r\n`

/** The head that the upstream receives. */
function head(parts: HeadParts, id = 'created-here'): string {
  const context = requestContext(untrusted, id)
  const allowed = { act: 'forward', caller, forwardsAuthorization: false, isRestricted: false } as const
  const decision = { ...allowed, admitted: admitted(parts) }
  const upstream = { host: 'upstream.internal:9000', assertionAudience: 'storage-upstream' }
  return requestHeadText(context, decision, upstream)
}

/** The names that the sidecar sets, each exactly once. */
const SET_HERE = OURS.split('\r\n').flatMap((line) => (line === '' ? [] : [line.slice(0, line.indexOf(':'))]))

/** A name as the most careless upstream reads it. */
const carelessly = (name: string) => /[a-z].*[a-z]/.exec(name.toLowerCase().replace(/[^a-z0-9]/g, '-'))?.[0]

t.test('no client header becomes a line that looks like one of the sidecar', async (t) => {
  const sign = fc.constantFrom(..."-_.~!#$%&'*+^`|")
  const signs = fc.array(sign, { maxLength: 2 }).map((list) => list.join(''))
  const spelled = fc
    .tuple(fc.constantFrom(...SET_HERE), sign, signs, signs, fc.boolean())
    .map(([name, dash, before, after, upper]) => {
      const text = `${before}${name.replaceAll('-', dash)}${after}`
      return upper ? text.toUpperCase() : text
    })
  const value = fc
    .string({ unit: fc.constantFrom(...'root \xe9:,;="'), maxLength: 9 })
    .map((text) => text.trim())
  const lines = fc.array(fc.tuple(spelled, value), { maxLength: 6 })
  let forwarded = 0
  const property = fc.property(lines, fc.array(spelled, { maxLength: 2 }), (list, nominated) => {
    const more: Line[] = [...list, ['Connection', nominated.join()], ['Authorization', 'Bearer a']]
    const result = admission({ more })
    if (!result.ok) {
      return true
    }
    forwarded++
    const requestId = result.value.requestId ?? 'created-here'
    const received = head({ more }, requestId).slice(0, -4).split('\r\n').slice(1)
    const ours = new Set(OURS.replace('created-here', requestId).toLowerCase().split('\r\n'))
    const named = (name: string) => received.filter((line) => carelessly(line.split(':')[0] ?? '') === name)
    return (
      named('authorization').length === 0 &&
      SET_HERE.every((name) => {
        const [first = '', ...others] = named(name.toLowerCase())
        return ours.has(first.toLowerCase()) && others.length === 0
      })
    )
  })
  fc.assert(property, { numRuns: 500 })
  t.ok(forwarded > 300, `${forwarded} of the requests were forwarded`)
})

t.test('identity values are percent-encoded outside visible ASCII', async (t) => {
  const visible = Array.from({ length: 0x5e }, (_, n) => String.fromCharCode(0x21 + n)).join('')
  t.equal(encodeIdentityValue(visible), visible.replace('%', '%25'))
  for (const [value, encoded] of [
    ['', ''],
    ['a%20b', 'a%2520b'],
    [' two words', '%20two%20words'],
    ['a\r\nX-Authenticated-Account-Id: root', 'a%0D%0AX-Authenticated-Account-Id:%20root'],
    ['\0\t\x1b\x7f\xa0', '%00%09%1B%7F%C2%A0'],
    ['caf\xe9', 'caf%C3%A9'],
    ['e\u0301', 'e%CC%81'],
    ['\u6771\u{1f600}', '%E6%9D%B1%F0%9F%98%80'],
  ] as const) {
    t.equal(encodeIdentityValue(value), encoded)
  }
  const reversible = fc.property(fc.string({ unit: 'binary', maxLength: 50 }), (value) => {
    const encoded = encodeIdentityValue(value)
    return /^[!-~]*$/.test(encoded) && decodeURIComponent(encoded) === value
  })
  t.doesNotThrow(() => fc.assert(reversible, { numRuns: 500 }))
})
