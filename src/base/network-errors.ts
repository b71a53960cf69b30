/** Names the failure of a connection to another server, by the code of Node, OpenSSL or the system. */
import type { ForwardingFailure } from './errors.ts'

const BY_CODE: Readonly<Record<string, ForwardingFailure>> = {
  ECONNREFUSED: 'connection_refused',
  ENOENT: 'connection_refused', // a unix socket that does not exist
  EACCES: 'connection_refused',
  EPERM: 'connection_refused',
  ENOTFOUND: 'dns_error',
  ETIMEDOUT: 'connection_timeout',
  ENETUNREACH: 'destination_ip_unroutable',
  EHOSTUNREACH: 'destination_ip_unroutable',
  EADDRNOTAVAIL: 'destination_ip_unroutable',
  EPROTO: 'tls_protocol_error',
  // OpenSSL verification results without `CERT` in their name.
  INVALID_CA: 'tls_certificate_error',
  INVALID_PURPOSE: 'tls_certificate_error',
  PATH_LENGTH_EXCEEDED: 'tls_certificate_error',
  UNSPECIFIED: 'tls_certificate_error', // Node has no name for some results, such as a key that is too small
}

/** Returns the `code` of an error of Node, OpenSSL or the system. A code holds no address and no bytes of the peer. */
export const codeOf = (error: unknown): string | undefined =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined

/** Returns undefined for an error that is no network error. An unknown system error is `connection_terminated`. */
export function networkFailureOf(error: unknown): ForwardingFailure | undefined {
  const code = codeOf(error) ?? ''
  const known = BY_CODE[code]
  if (known !== undefined) return known
  if (code.startsWith('EAI_')) return 'dns_error'
  if (code.startsWith('ERR_SSL_') || code.startsWith('ERR_TLS_HANDSHAKE')) return 'tls_protocol_error'
  // OpenSSL's verification results, such as SELF_SIGNED_CERT_IN_CHAIN, and Node's check of the host name.
  if (code.includes('CERT') || code.startsWith('UNABLE_TO_')) return 'tls_certificate_error'
  return code === '' || code.startsWith('ERR_') ? undefined : 'connection_terminated'
}
