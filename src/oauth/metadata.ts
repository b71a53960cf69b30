/**
 * The metadata of the authorization server (RFC 8414) and its public keys (RFC 7517), by which other services
 * trust its tokens without a setting for each endpoint.
 */
import type { SidecarResponse } from '../client/response.ts'
import type { Config } from '../config/config.ts'
import { oauthMetadataPaths, oauthRevocationPath } from '../config/oauth-paths.ts'
import { JWKS_PATH, OAUTH_METADATA_PATH } from '../http/request-target.ts'
import type { RoomEndpoint } from '../room.ts'
import type { OAuthOptions } from './oauth.ts'
import { OAuthRefusals } from './oauth-errors.ts'

const MAX_AGE_SECONDS = 300

const AUTH_METHODS = ['client_secret_basic', 'client_secret_post']

/** None unless the issuer is the URL of a host. */
export function metadataEndpoints(options: OAuthOptions): RoomEndpoint[] {
  const { config, responder, publicJwks } = options
  const refusals = new OAuthRefusals(responder, config.basic.realm)
  const metadata = metadataOf(config)
  const documents = new Map([
    [OAUTH_METADATA_PATH, () => metadata],
    [JWKS_PATH, publicJwks],
  ])
  return oauthMetadataPaths(config).map((path) => ({
    path,
    label: 'public',
    respond(res: SidecarResponse): void {
      const { method = '' } = res.req
      if (method !== 'GET' && method !== 'HEAD') {
        refusals.refuseMethod(res, 'GET, HEAD')
        return
      }
      const document = documents.get(path)?.()
      if (document === undefined) {
        refusals.refuseUnavailable(res)
        return
      }
      responder.sendCacheable(res, document, MAX_AGE_SECONDS)
    },
  }))
}

function metadataOf(config: Pick<Config, 'oauth' | 'listen' | 'contract' | 'token'>): object {
  const { issuer } = config.token
  const [tokenPath = ''] = config.oauth.tokenPaths
  const revocationPath = oauthRevocationPath(config)
  const revocation = revocationPath !== undefined && {
    revocation_endpoint: issuer + revocationPath,
    revocation_endpoint_auth_methods_supported: AUTH_METHODS,
  }
  return {
    issuer,
    token_endpoint: issuer + tokenPath,
    jwks_uri: issuer + JWKS_PATH,
    ...revocation,
    grant_types_supported: ['client_credentials'],
    token_endpoint_auth_methods_supported: AUTH_METHODS,
    scopes_supported: ['storage.read:/', 'storage.create:/', 'storage.modify:/'],
    response_types_supported: ['none'],
  }
}
