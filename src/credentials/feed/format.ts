/**
 * The documents of the feed, by which issuing sidecars serve their credentials and revocations to a fleet,
 * and what followers make of them. `parser.ts` reads them.
 */
import type { CredentialName } from '../credential-list.ts'
import type { Revocation } from '../revocation-list.ts'

export const FEED_FORMAT = 1

/** A credential that may be used now. The feed holds no secret and no hash. Times are RFC 3339. */
export interface FeedCredential extends CredentialName {
  readonly expiresAt?: string
  readonly scope?: string
}

/**
 * Has one of `jti`, `accountId` and `accessKey`. Two entries that differ in `expiresAt` alone are the same.
 * The state is a set: a revocation that the hub's source has twice is sent once, and removed with the last.
 */
export interface FeedRevocation {
  readonly jti?: string
  readonly issuer?: string
  readonly accountId?: string
  readonly accessKey?: string
  readonly issuedBefore?: string
  /** When the last token that it revokes has ended. */
  readonly expiresAt?: string
}

/** `from`: the version that the changes apply to. Null: the document is the whole state. */
export interface FeedDocument {
  readonly format: typeof FEED_FORMAT
  readonly version: string
  readonly from: string | null
  readonly credentials: {
    readonly set: readonly FeedCredential[]
    readonly removed: readonly CredentialName[]
  }
  readonly revocations: {
    readonly set: readonly FeedRevocation[]
    readonly removed: readonly FeedRevocation[]
  }
}

/** A credential of the feed in memory. */
export interface FollowedCredential extends CredentialName {
  readonly expiresAtMs: number
  readonly scope: string | undefined
}

/** A checked document, whose times are epoch milliseconds. */
export interface FeedUpdate {
  readonly version: string
  readonly from: string | null
  readonly credentials: {
    readonly set: readonly FollowedCredential[]
    readonly removed: readonly CredentialName[]
  }
  readonly revocations: { readonly set: readonly Revocation[]; readonly removed: readonly Revocation[] }
}

/** Names hold no control characters, so U+0001 separates them. */
export const credentialKey = ({ accountId, accessKey }: CredentialName) => `${accountId}\u0001${accessKey}`

/** Equal for revocations that revoke the same tokens. */
export function revocationKey({ jti, issuer, accountId, accessKey, issuedBeforeMs }: Revocation): string {
  if (jti != null) {
    return `jti\u0001${jti}\u0001${issuer ?? ''}`
  }
  const bound = issuedBeforeMs ?? ''
  if (accountId != null) {
    return `accountId\u0001${accountId}\u0001${bound}`
  }
  return `accessKey\u0001${accessKey}\u0001${bound}`
}
