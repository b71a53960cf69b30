import t from 'tap'
import { HeaderKind, headerKind } from '../../src/http/headers.ts'

t.test('a header name is classified as a lenient upstream would read it', async (t) => {
  const table: Readonly<Partial<Record<keyof typeof HeaderKind, readonly string[]>>> = {
    host: ['Host', 'HOST'],
    contentLength: ['CONTENT-LENGTH'],
    transferEncoding: ['transfer-Encoding'],
    authorization: ['AuthoriZation'],
    hopByHop: ['Proxy-Connection', 'Proxy-Authorization', 'Proxy-Authenticate', 'TE', 'HTTP2-Settings'],
    forwarded: ['X-Forwarded-For', 'x-forwarded-host', 'X-FORWARDED-PROTO', 'X-Forwarded-Port', 'Forwarded'],
    // Refused: they decide where a request ends, whose it is and which host it addresses.
    refusedLookAlike: [
      ...['Content_Length', 'CONTENT.LENGTH', 'Content~Length', 'content|length', 'Transfer_Encoding'],
      ...['transfer.encoding', 'Transfer-Encoding_', '_Transfer-Encoding', '-transfer-encoding-', 'Host_'],
      ...['Authorization_', '.Authorization', '__authorization__', '-Host', '+host'],
    ],
    // Removed: claims of an identity (CVE-2025-64484).
    identity: [
      ...['X-Authenticated-Account-Id', 'x-authenticated-anything-else', 'X-Authenticated-'],
      ...['X_Authenticated_', 'X_Authenticated_Account_Id', 'X-Authenticated_Account-Id'],
      ...['x.authenticated.account.id', 'x~authenticated~account~id', '_X-Authenticated-Account-Id'],
      ...['-x-authenticated-token-id-', "X'Authenticated*Account`Id"],
      ...[`X-Authenticated-${'a'.repeat(10_000)}`],
    ],
    // Removed: spellings of headers that the sidecar sets.
    removedLookAlike: [
      ...['X_Request_Id', 'x.request.id', 'X-Request-Id_', '_X-Forwarded-For', 'X_Forwarded_Host'],
      ...['x-forwarded_proto', 'X~Forwarded~Port', 'Forwarded_', '.forwarded'],
    ],
    // No tokens (RFC 9110, section 5.6.2).
    invalid: [
      ...['', ' Host', 'Host ', 'Host\t', 'Ho st', 'X\0', 'X\x7f', 'Caf\xe9', 'X(Y)', 'X:', '"X"', 'X/Y'],
      '\r',
    ],
    other: [
      ...['x-amz-meta-my_key', 'X-Authenticated', 'Not-X-Authenticated-Account-Id', 'X-Auth-Token'],
      ...['Content-Length2', 'X-Content-Length', 'Content--Length', 'ContentLength', 'X-Forwarded-Prefix'],
      ...['X-Real-IP', 'Hosts', 'traceparent', 'constructor', '__proto__', '_', '-', 'Keep_Alive', 'Expect.'],
      ...['Proxy_Authorization', 'Connection_', 'TE_', "!#$%&'*+.^`|~"],
    ],
  }
  for (const [kind, names] of Object.entries(table))
    for (const name of names)
      t.equal(
        headerKind(name),
        HeaderKind[kind as keyof typeof HeaderKind],
        JSON.stringify(name.slice(0, 60)),
      )
})

t.test('thousands of other names do not change how a name is classified', async (t) => {
  for (let n = 0; n < 5000; n++) headerKind(`X-Filler-${n}`)
  t.equal(headerKind('X_authenticated.UNSEEN_spelling'), HeaderKind.identity)
  t.equal(headerKind('content_LENGTH'), HeaderKind.refusedLookAlike)
  t.equal(headerKind('X-Unseen'), HeaderKind.other)
})

t.test('a name is classified in time linear in its length', async (t) => {
  for (const filler of ['-', '_', '-a', 'a', '-_']) {
    const name = `x${filler.repeat(30_000 / filler.length)}y`
    const before = process.cpuUsage()
    t.equal(headerKind(name), HeaderKind.other)
    const { user } = process.cpuUsage(before)
    t.ok(user < 20_000, `${user / 1000} ms for 30,000 characters of ${filler}`)
  }
})
