/**
 * The access line of a request.
 *
 * Says who asked for what and how it ended, never with which token or query: a query may hold a secret that
 * somebody put there by mistake. The account is that of a verified token; of a login, the one that it named, and
 * only if there is such an account.
 *
 * @module
 */
import type { Exchange } from '../http/exchange.ts'
import { type Logger, loggable } from './log.ts'

/** Which requests get a line. */
export type AccessMode = 'all' | 'errors' | 'off'

/** What the access log works with. */
export interface AccessLogOptions {
  readonly log: Logger
  readonly mode: AccessMode
  /** The client's own address, also behind trusted proxies. */
  readonly clientAddress: (exchange: Exchange) => string
}

/** Makes the function that writes the line of an exchange that is over. */
export function createAccessLog({
  log,
  mode,
  clientAddress,
}: AccessLogOptions): (exchange: Exchange, status: number, milliseconds: number) => void {
  if (mode === 'off') return () => {}
  return (exchange, status, milliseconds) => {
    if (mode === 'errors' && status < 400) return
    const { req, admitted, identity } = exchange
    const account = identity?.accountId ?? exchange.namedAccount
    const path = admitted?.path ?? originPath(String(req.url))
    log.info(
      {
        requestId: exchange.requestId,
        method: loggable(String(req.method), 32),
        path: path && loggable(path),
        route: exchange.route,
        status,
        reason: exchange.reason,
        bytesIn: exchange.bytesIn,
        bytesOut: exchange.bytesOut,
        ms: Math.round(milliseconds * 1000) / 1000,
        account: account && loggable(account),
        tokenId: identity && loggable(identity.tokenId),
        client: clientAddress(exchange),
      },
      'request',
    )
  }
}

/** The path of a target that was refused; none where it is no path: another form may hold a password. */
function originPath(target: string): string | undefined {
  return target.startsWith('/') ? target.replace(/[?#].*/s, '') : undefined
}
