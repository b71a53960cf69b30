/** What the token and link endpoints share: `expirationSec`, and the revocation of a token or link. */
import { ERRORS, type LoginFailure } from '../base/errors.ts'
import { failed } from '../base/result.ts'
import type { SidecarRequest } from '../client/request.ts'
import type { Responder } from '../client/responder.ts'
import type { SidecarResponse } from '../client/response.ts'
import type { Config } from '../config/config.ts'
import type { EndedToken, NotRevoked, RevokeToken } from '../credentials/throttles.ts'
import type { TokenSigner } from '../token/issue.ts'

/** What a request did, for the audit log and the metrics. The caller is the `identityForLog` of the request context. */
export type AuditEvent =
  | { readonly event: 'login' | 'logout' }
  | { readonly event: 'login_failed'; readonly reason: LoginFailure }
  | { readonly event: 'link_created' | 'link_ended'; readonly linkId: string }

export interface EndpointOptions {
  readonly config: Pick<Config, 'contract' | 'links' | 'listen' | 'timeouts'>
  readonly responder: Responder
  readonly signer: TokenSigner
  /** Absent without a database for revocations. */
  readonly revokeToken: RevokeToken | undefined
  readonly audit: { request(req: SidecarRequest, what: AuditEvent): void }
  readonly now: () => number
}

export class Endpoint<Options extends EndpointOptions = EndpointOptions> {
  protected readonly options: Options

  constructor(options: Options) {
    this.options = options
  }

  /** Returns the whole seconds until a token or link ends. 0 after its end, even while the clock tolerance accepts it. */
  protected expirationSec(expiresAtSeconds: number): number | string {
    const { config, now } = this.options
    const left = Math.max(0, Math.floor(expiresAtSeconds - now() / 1000))
    return config.contract.expirationSec === 'string' ? String(left) : left
  }

  /** Revokes a token or a link, and writes `event` to the audit log. Rejects only on an internal error. */
  protected async revoke(res: SidecarResponse, ended: EndedToken, event: AuditEvent): Promise<void> {
    const { responder, revokeToken, audit } = this.options
    const revoked = (await revokeToken?.(ended)) ?? failed<NotRevoked>({ reason: 'unavailable' })
    if (revoked.ok) {
      audit.request(res.req, event)
      return responder.sendEmpty(res, 204)
    }
    const { reason, retryAfterSeconds } = revoked.error
    responder.fail(res, reason, ERRORS.serviceNotReady, { retryAfterSeconds })
  }
}
