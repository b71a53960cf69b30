import { type AddressInfo, connect, createServer } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { ERRORS } from '../../src/errors.ts'
import { faultError, faultOf, UPSTREAM_OUTCOMES } from '../../src/forward/upstream-fault.ts'
import { MessageFault } from '../../src/http1/message-fault.ts'

t.test('an error of a socket is told in the words of RFC 9209', async (t) => {
  const table: Readonly<Record<string, readonly string[]>> = {
    connection_refused: ['ECONNREFUSED', 'ENOENT', 'EACCES', 'EPERM'],
    dns_error: ['ENOTFOUND', 'EAI_AGAIN', 'EAI_FAIL', 'EAI_NODATA', 'EAI_MEMORY'],
    connection_timeout: ['ETIMEDOUT'],
    destination_ip_unroutable: ['ENETUNREACH', 'EHOSTUNREACH', 'EADDRNOTAVAIL'],
    connection_terminated: ['ECONNRESET', 'EPIPE', 'EMFILE', 'ENOTCONN'],
    tls_protocol_error: ['EPROTO', 'ERR_SSL_WRONG_VERSION_NUMBER', 'ERR_TLS_HANDSHAKE_TIMEOUT'],
    tls_certificate_error: [
      'CERT_HAS_EXPIRED',
      'CERT_NOT_YET_VALID',
      'DEPTH_ZERO_SELF_SIGNED_CERT',
      'SELF_SIGNED_CERT_IN_CHAIN',
      'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
      'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
      'ERR_TLS_CERT_ALTNAME_INVALID',
      'INVALID_CA',
      'INVALID_PURPOSE',
      'PATH_LENGTH_EXCEEDED',
      'UNSPECIFIED',
    ],
    proxy_internal_error: ['ERR_INVALID_ARG_TYPE', 'ERR_HTTP_HEADERS_SENT'],
  }
  for (const [fault, codes] of Object.entries(table))
    for (const code of codes) t.equal(faultOf(Object.assign(new Error('any text'), { code })), fault, code)
})

t.test('a response that cannot be understood is not an error of ours, and anything unknown is', async (t) => {
  t.equal(faultOf(new MessageFault('two lengths')), 'http_protocol_error')
  t.equal(faultOf(new TypeError('undefined is not a function')), 'proxy_internal_error')
  t.equal(faultOf(Object.assign(new Error(), { code: 5 })), 'proxy_internal_error')
  for (const thrown of ['ECONNREFUSED', undefined, null, { code: 'ECONNREFUSED' }])
    t.equal(faultOf(thrown), 'proxy_internal_error')
})

t.test('the client is told to come back, unless what it would meet is a mistake', async (t) => {
  for (const outcome of UPSTREAM_OUTCOMES) {
    if (outcome === 'ok' || outcome === 'client_aborted' || outcome === 'client_idle') continue
    const mistake = outcome === 'http_protocol_error' || outcome === 'proxy_internal_error'
    t.equal(faultError(outcome), mistake ? ERRORS.internalError : ERRORS.serviceNotReady, outcome)
  }
})

t.test('what a machine really says', async (t) => {
  const says = (options: { path: string } | { host: string; port: number }) =>
    new Promise((resolve) => connect(options).once('error', (error) => resolve(faultOf(error))))
  t.equal(await says({ path: join(t.testdir(), 'nobody.sock') }), 'connection_refused')
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  t.equal(await says({ host: '127.0.0.1', port }), 'connection_refused')
})
