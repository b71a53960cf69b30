import t from 'tap'
import { networkFailureOf } from '../../src/http/upstream-failures.ts'

t.test('a socket error has a name of RFC 9209', async (t) => {
  const table = {
    connection_refused: ['ECONNREFUSED', 'ENOENT', 'EACCES', 'EPERM'],
    dns_error: ['ENOTFOUND', 'EAI_AGAIN', 'EAI_FAIL'],
    connection_timeout: ['ETIMEDOUT'],
    destination_ip_unroutable: ['ENETUNREACH', 'EHOSTUNREACH', 'EADDRNOTAVAIL'],
    connection_terminated: ['ECONNRESET', 'EPIPE', 'EMFILE'],
    tls_protocol_error: ['EPROTO', 'ERR_SSL_WRONG_VERSION_NUMBER', 'ERR_TLS_HANDSHAKE_TIMEOUT'],
    tls_certificate_error: [
      ...['CERT_HAS_EXPIRED', 'DEPTH_ZERO_SELF_SIGNED_CERT', 'SELF_SIGNED_CERT_IN_CHAIN', 'INVALID_CA'],
      ...['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'ERR_TLS_CERT_ALTNAME_INVALID', 'PATH_LENGTH_EXCEEDED'],
      ...['INVALID_PURPOSE', 'UNSPECIFIED'],
    ],
    undefined: ['ERR_INVALID_ARG_TYPE', 'ERR_HTTP_HEADERS_SENT', ''],
  }
  for (const [failure, codes] of Object.entries(table))
    for (const code of codes)
      t.equal(String(networkFailureOf(Object.assign(new Error('any text'), { code }))), failure, code)
  for (const thrown of [new TypeError('x'), Object.assign(new Error(), { code: 5 }), 'ECONNREFUSED', null])
    t.equal(networkFailureOf(thrown), undefined)
})
