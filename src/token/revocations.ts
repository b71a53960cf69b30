/**
 * The revocations in force, as one immutable snapshot: which tokens are withdrawn before they expire.
 *
 * In: a list of revocations. Out: yes or no for a token, in the same time however long the list is. Several
 * entries for one account or access key revoke what any of them revokes.
 *
 * @module
 */

import { atOnce, inSlices } from '../files/in-slices.ts'

/** One revocation. `issuedBefore` is in epoch milliseconds; without it, every token is meant. */
export type Revocation =
  | { readonly jti: string }
  | { readonly accountId: string; readonly issuedBefore?: number }
  | { readonly accessKey: string; readonly issuedBefore?: number }

/** What a revocation looks at. */
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

/** Whether a token has been revoked. */
export type IsRevoked = (token: RevocableToken) => boolean

/** A snapshot to ask. */
export interface Revocations {
  readonly isRevoked: IsRevoked
  /** How many entries it was made of. */
  readonly size: number
}

/** Indexes revocations. */
export function createRevocations(list: Iterable<Revocation>): Revocations {
  return atOnce(indexing(list))
}

/** Indexes revocations in slices: 300,000 take some 100 ms. The list must not change meanwhile. */
export function createRevocationsInSlices(list: Iterable<Revocation>): Promise<Revocations> {
  return inSlices(indexing(list))
}

/** How many revocations are one step of the work. */
const STEP = 1024

function* indexing(list: Iterable<Revocation>): Generator<undefined, Revocations> {
  const tokens = new Set<string>()
  const accounts = new Map<string, number>()
  const accessKeys = new Map<string, number>()
  let size = 0
  for (const entry of list) {
    if (++size % STEP === 0) yield
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

/** No token was issued before it. */
const NEVER = Number.NEGATIVE_INFINITY

function extend(bounds: Map<string, number>, name: string, issuedBefore = Number.POSITIVE_INFINITY): void {
  bounds.set(name, Math.max(bounds.get(name) ?? NEVER, issuedBefore))
}
