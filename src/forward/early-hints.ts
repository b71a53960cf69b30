/**
 * Informational responses on their way to the client.
 *
 * Only 103 passes, with its `Link` headers (RFC 8297), which is all that it is for. 100 is our own to give, since the
 * token is checked before it; 102 tells the client nothing.
 *
 * @module
 */
import { headerValues } from '../http/client-request.ts'
import type { Exchange } from '../http/exchange.ts'
import type { ResponseHead } from './response-parser.ts'

/** Passes on early hints. */
export function earlyHints({ req, res }: Pick<Exchange, 'req' | 'res'>, head: ResponseHead): void {
  // An HTTP/1.0 client would take it for the answer (RFC 9110, section 15.2).
  if (head.status === 103 && req.httpVersion !== '1.0')
    res.writeEarlyHints(headerValues(head.rawHeaders, 'link'))
}
