/**
 * OAuth 2.0 (RFC 6749) for clients that speak the standard: another form of login, logout and public keys.
 * In: the settings and the parts of the Account API. Out: the endpoints on the data listener.
 *
 *   form.ts                    form bodies, read strictly
 *   client-authentication.ts   who the client says that it is
 *   token-endpoint.ts          logs a client in
 *   revocation-endpoint.ts     ends a token
 *   metadata.ts                tells others how to trust the tokens
 *   oauth-errors.ts            the errors of the standard
 */
import type { Responder } from '../client/responder.ts'
import type { Config } from '../config/config.ts'
import { oauthRevocationPath } from '../config/oauth-paths.ts'
import type { EndToken } from '../credentials/revocation-limit.ts'
import type { RecordEvent } from '../endpoints/api-events.ts'
import type { LoginService } from '../endpoints/login-service.ts'
import type { RoomEndpoint } from '../room.ts'
import type { TokenSigner } from '../token/issue.ts'
import type { Verify } from '../token/verify.ts'
import { metadataEndpoints } from './metadata.ts'
import { RevocationEndpoint } from './revocation-endpoint.ts'
import { TokenEndpoint } from './token-endpoint.ts'

export interface OAuthOptions {
  readonly config: Pick<Config, 'basic' | 'contract' | 'limits' | 'listen' | 'oauth' | 'timeouts' | 'token'>
  readonly responder: Responder
  readonly signer: TokenSigner
  readonly logins: LoginService
  readonly verify: Verify
  readonly recordEvent: RecordEvent
  readonly publicJwks: () => object | undefined
}

/** @param endToken - undefined without a database for revocations */
export function openOAuth(options: OAuthOptions, endToken: EndToken | undefined): readonly RoomEndpoint[] {
  const { config } = options
  const tokenEndpoint = new TokenEndpoint(options)
  const endpoints: RoomEndpoint[] = config.oauth.tokenPaths.map((path) => ({
    path,
    label: 'token_issue',
    respond: (res) => tokenEndpoint.respond(res),
  }))
  const revocationPath = oauthRevocationPath(config)
  if (revocationPath !== undefined && endToken !== undefined) {
    const revocationEndpoint = new RevocationEndpoint(options, endToken)
    endpoints.push({
      path: revocationPath,
      label: 'logout',
      respond: (res) => revocationEndpoint.respond(res),
    })
  }
  return [...endpoints, ...metadataEndpoints(options)]
}
