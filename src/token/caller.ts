/** The caller of a request, proven by a token or a link, and its identity as headers. */
import { flatCopy, headerText } from '../http/headers.ts'
import type { Link } from './links.ts'
import type { Scope } from './scopes.ts'

export interface Identity {
  readonly accountId: string
  readonly accessKey: string
  readonly tokenId: string
  /** Of a trusted issuer, it may have a fraction. */
  readonly issuedAtSeconds: number
  /** The whole second in which the token ends. */
  readonly expiresAtSeconds: number
  /** What the token and its credential both allow. */
  readonly scope?: Scope | undefined
}

/** What a revocation can name, and the time that it compares with `issuedBefore`. */
export type RevocableToken = Pick<Identity, 'accountId' | 'accessKey' | 'tokenId' | 'issuedAtSeconds'>

/** @param issuer - that of the token. A revocation of one token may count for its issuer only */
export type IsRevoked = (token: RevocableToken, issuer: string) => boolean

export interface VerifiedToken {
  readonly identity: Identity
  /** The issuer that signed the token. Only the sidecar signs links. */
  readonly issuer: string
  readonly link: Link | undefined
  /** Epoch milliseconds: the end of the token, or the end of its credential if that is earlier. */
  readonly validUntilMs: number
}

/** A verified token, with the values that are computed once for all its requests. */
export interface Caller extends VerifiedToken {
  readonly identityLines: string
  /** The assertions by their audience; undefined where none are signed. */
  readonly assertions: ReadonlyMap<string, string> | undefined
  /** Epoch milliseconds: when the token must be verified again. */
  readonly recheckAtMs: number
}

export interface Assertions {
  /** The assertions by their audience. */
  readonly assertions: ReadonlyMap<string, string>
  /**
   * Epoch milliseconds:
   * the middle of the assertions' lifetime, or its end if the token ends at the same time.
   */
  readonly renewAtMs: number
}

export interface CallerOptions {
  /** Undefined if upstreams receive no assertions. */
  readonly signAssertions?: ((identity: Identity) => Promise<Assertions | undefined>) | undefined
  /** `cache.maxAgeSeconds`. */
  readonly maxAgeSeconds: number
  readonly now: () => number
}

/** Computes what all requests of a verified token share. Rejects only on an internal error. */
export async function callerOf(
  { identity, issuer, link, validUntilMs }: VerifiedToken,
  { signAssertions, maxAgeSeconds, now }: CallerOptions,
): Promise<Caller> {
  const { assertions, renewAtMs = Number.POSITIVE_INFINITY } = (await signAssertions?.(identity)) ?? {}
  const recheckAtMs = Math.min(validUntilMs, renewAtMs, now() + maxAgeSeconds * 1000)
  const identityLines = flatCopy(headerText(identityHeaders(identity)))
  // A spread object would take more memory.
  return { identity, issuer, link, validUntilMs, identityLines, assertions, recheckAtMs }
}

/** Whether a revocation names the token. A link is also revoked with the token that made it. */
export function isCallerRevoked(
  { identity, issuer, link }: Pick<VerifiedToken, 'identity' | 'issuer' | 'link'>,
  isRevoked: IsRevoked,
): boolean {
  if (isRevoked(identity, issuer)) {
    return true
  }
  if (link === undefined) {
    return false
  }
  const parent = { ...identity, tokenId: link.parentId, issuedAtSeconds: link.parentIssuedAtSeconds }
  return isRevoked(parent, link.parentIssuer)
}

export function identityHeaders(identity: Identity, assertion?: string): string[] {
  const headers = [
    ['X-Authenticated-Account-Id', encodeIdentityValue(identity.accountId)],
    ['X-Authenticated-Access-Key', encodeIdentityValue(identity.accessKey)],
    ['X-Authenticated-Token-Id', encodeIdentityValue(identity.tokenId)],
    ['X-Authenticated-Token-Expires', String(identity.expiresAtSeconds)],
  ]
  if (identity.scope !== undefined) {
    headers.push(['X-Authenticated-Scope', identity.scope.text])
  }
  if (assertion !== undefined) {
    headers.push(['X-Authenticated-Assertion', assertion])
  }
  return headers.flat()
}

/**
 * Encodes `%` and every character outside `!` to `~`.
 * The result is reversible, and no value can inject a header line.
 */
export const encodeIdentityValue = (value: string): string =>
  value.toWellFormed().replace(/[^!-$&-~]/gu, encodeURIComponent)
