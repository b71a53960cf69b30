import fc from 'fast-check'
import t from 'tap'
import { HeaderKind, headerKind } from '../../src/gate/header-names.ts'

t.test('a name is known in any case', async (t) => {
  const table: readonly [string, HeaderKind][] = [
    ['Host', HeaderKind.host],
    ['CONTENT-LENGTH', HeaderKind.contentLength],
    ['transfer-Encoding', HeaderKind.transferEncoding],
    ['AuthoriZation', HeaderKind.authorization],
    ['connection', HeaderKind.connection],
    ['Keep-Alive', HeaderKind.hopByHop],
    ['Proxy-Connection', HeaderKind.hopByHop],
    ['Proxy-Authorization', HeaderKind.hopByHop],
    ['TE', HeaderKind.hopByHop],
    ['HTTP2-Settings', HeaderKind.hopByHop],
    ['Upgrade', HeaderKind.upgrade],
    ['Expect', HeaderKind.expect],
    ['Trailer', HeaderKind.trailer],
    ['X-Request-ID', HeaderKind.requestId],
    ['X-Forwarded-For', HeaderKind.forwarded],
    ['x-forwarded-host', HeaderKind.forwarded],
    ['X-FORWARDED-PROTO', HeaderKind.forwarded],
    ['X-Forwarded-Port', HeaderKind.forwarded],
    ['Forwarded', HeaderKind.forwarded],
    ['X-Authenticated-Account-Id', HeaderKind.identity],
    ['x-authenticated-anything-else', HeaderKind.identity],
    ['X-Authenticated-', HeaderKind.identity],
  ]
  for (const [name, kind] of table) t.equal(headerKind(name), kind, name)
})

t.test('other names mean nothing, whatever characters they hold', async (t) => {
  for (const name of [
    'x-amz-meta-my_key',
    'X_Custom.Thing',
    'X-Authenticated',
    'X-Authenticate-Account-Id',
    'Not-X-Authenticated-Account-Id',
    'X-Auth-Token',
    'Content-Length2',
    'X-Content-Length',
    'Content--Length',
    'ContentLength',
    'X-Forwarded-Prefix',
    'X-Real-IP',
    'X-Original-URL',
    'X-HTTP-Method-Override',
    'Hosts',
    'traceparent',
    'constructor',
    '__proto__',
    '_',
    '-',
    '',
    '_Connection',
    'Keep_Alive',
    'Proxy_Connection',
    'Proxy_Authorization',
    "Upgrade'",
    'Expect.',
    'Trailer_',
    'TE_',
    'HTTP2_Settings',
  ]) {
    t.equal(headerKind(name), HeaderKind.other, JSON.stringify(name))
  }
})

t.test('a name that reads as framing, authorization or host is a look-alike', async (t) => {
  for (const name of [
    'Content_Length',
    'CONTENT.LENGTH',
    'Content~Length',
    'content|length',
    'Transfer_Encoding',
    'transfer.encoding',
    'Transfer-Encoding_',
    '_Transfer-Encoding',
    '-transfer-encoding-',
    'Authorization_',
    'Authorization.',
    '.Authorization',
    '-Authorization',
    '__authorization__',
    'Host_',
    '-Host',
    '+host',
  ]) {
    t.equal(headerKind(name), HeaderKind.lookAlike, name)
  }
})

t.test('a name that reads as a header we set is a spoof, or an identity', async (t) => {
  for (const name of [
    'X_Request_Id',
    'x.request.id',
    'X-Request-Id_',
    '_X-Forwarded-For',
    'X_Forwarded_Host',
    'x-forwarded_proto',
    'X~Forwarded~Port',
    'Forwarded_',
    '.forwarded',
  ]) {
    t.equal(headerKind(name), HeaderKind.spoof, name)
  }
  for (const name of [
    'X_Authenticated_Account_Id',
    'X-Authenticated_Account-Id',
    'x.authenticated.account.id',
    'X_AUTHENTICATED_ACCESS_KEY',
    'x~authenticated~account~id',
    '_X-Authenticated-Account-Id',
    '-x-authenticated-token-id-',
    '..X.Authenticated.Token.Expires',
    "X'Authenticated*Account`Id",
    'X_Authenticated_',
  ]) {
    t.equal(headerKind(name), HeaderKind.identity, name)
  }
})

t.test('a name is judged alike however many were judged before it, and however long it is', async (t) => {
  const names = fc.string({ unit: fc.constantFrom(...'aZ09-_.~'), minLength: 1, maxLength: 80 })
  const judge = (name: string) => [
    headerKind(name),
    headerKind(`X-Authenticated-${name}`),
    headerKind(`x_authenticated_${name}`),
  ]
  const before = fc.sample(names, { numRuns: 50, seed: 1 }).map(judge)
  for (let n = 0; n < 5000; n++) headerKind(`X-Filler-${n}`)
  t.same(fc.sample(names, { numRuns: 50, seed: 1 }).map(judge), before)
  t.equal(headerKind('X_authenticated.UNSEEN_spelling'), HeaderKind.identity)
  t.equal(headerKind('content_LENGTH'), HeaderKind.lookAlike)
  t.equal(headerKind(`X-Authenticated-${'a'.repeat(10_000)}`), HeaderKind.identity)
})
