/**
 * Informational responses on their way to the client.
 *
 * Only 103 passes, with its `Link` headers (RFC 8297): Node can send no other header with it. 100 is our own to
 * give, since the token is checked before it; 102 tells the client nothing.
 *
 * @module
 */
import type { Exchange } from '../http/exchange.ts'
import type { ResponseHead } from './response-parser.ts'

/** Passes on early hints. */
export function earlyHints({ req, res }: Pick<Exchange, 'req' | 'res'>, head: ResponseHead): void {
  // An HTTP/1.0 client would take it for the answer (RFC 9110, section 15.2).
  if (head.status !== 103 || req.httpVersionMinor === 0) return
  // While responses before this one are under way, Node would put the hints behind its head: into its body.
  if (res.socket === null) return
  const link: string[] = []
  for (let at = 0; at < head.rawHeaders.length; at += 2) {
    if (head.rawHeaders[at]?.toLowerCase() === 'link') link.push(head.rawHeaders[at + 1] as string)
  }
  try {
    res.writeEarlyHints({ link })
  } catch {
    // A `Link` that Node does not take; hints may always be left out.
  }
}
