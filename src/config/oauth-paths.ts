/** The paths that OAuth 2.0 takes on the data listener. No other endpoint may have one of them. */
import {
  JWKS_PATH,
  OAUTH_METADATA_PATH,
  OAUTH_REVOCATION_PATH,
  OAUTH_TOKEN_PATH,
} from '../http/request-target.ts'

interface PathSettings {
  readonly listen: { readonly basePath: string }
  readonly oauth: { readonly tokenPaths: readonly string[] }
  readonly contract: { readonly logout: boolean }
  readonly token: { readonly issuer: string }
}

/** At least one. */
export function oauthTokenPaths({ listen, oauth }: Pick<PathSettings, 'listen' | 'oauth'>): string[] {
  return oauth.tokenPaths.length > 0 ? [...oauth.tokenPaths] : [listen.basePath + OAUTH_TOKEN_PATH]
}

/** Undefined where clients cannot end tokens. */
export const oauthRevocationPath = ({ listen, contract }: Pick<PathSettings, 'listen' | 'contract'>) =>
  contract.logout ? listen.basePath + OAUTH_REVOCATION_PATH : undefined

/**
 * The paths of metadata (RFC 8414) and keys. None unless the issuer is the URL of a host: others look
 * for the metadata of an issuer with a path at another place.
 */
export const oauthMetadataPaths = ({ token }: Pick<PathSettings, 'token'>): readonly string[] =>
  HTTPS_HOST.test(token.issuer) && URL.canParse(token.issuer) ? [OAUTH_METADATA_PATH, JWKS_PATH] : []

const HTTPS_HOST = /^https:\/\/(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?$/i

/** All paths but those of the token endpoint, which the rules name by their setting. */
export const otherOAuthPaths = (settings: PathSettings): readonly string[] => {
  const revocationPath = oauthRevocationPath(settings)
  const metadataPaths = oauthMetadataPaths(settings)
  return revocationPath === undefined ? metadataPaths : [revocationPath, ...metadataPaths]
}
