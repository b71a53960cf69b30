/**
 * The caller: who a request acts as, proven by a token or a link; and the verdict on such a proof.
 */
import type { Link } from './links.ts'
import type { Scope } from './scopes.ts'

/** `expiresAtSeconds`: since the epoch. */
export interface Identity {
  readonly accountId: string
  readonly accessKey: string
  readonly tokenId: string
  readonly expiresAtSeconds: number
  /** Undefined: unrestricted. Of a verified token: what the token and its credential both allow. */
  readonly scope?: Scope | undefined
}

export interface Caller {
  readonly identity: Identity
  /** The issuer of the token, or of the token that made the link. */
  readonly issuer: string
  /** The request that the proof is bound to, if it is a link and not an access token. */
  readonly link?: Link | undefined
  /** Epoch milliseconds at which the proof must be verified again: its end at the latest, or that of its credential. */
  readonly usableUntil: number
  /** Signed identities by audience. */
  readonly assertions?: ReadonlyMap<string, string> | undefined
  /** The identity as header lines of forwarded requests. Set by `proxy/request-headers.ts` alone, once for each cached token. */
  identityLines?: string | undefined
}

/** The label `reason` of `auth_sidecar_token_checks_total`. */
export const REFUSAL_REASONS = [
  'missing',
  'malformed',
  'expired',
  'signature',
  'unknown_key',
  'algorithm',
  'claims',
  'revoked',
  'scope',
  /** There are no keys of its issuer yet. */
  'unavailable',
] as const

export type RefusalReason = (typeof REFUSAL_REASONS)[number]

export interface Refused {
  readonly ok: false
  readonly reason: RefusalReason
  /** The invalid header parameter or claim: for `token inspect`, not for clients. */
  readonly claim?: string | undefined
}

export interface Accepted {
  readonly ok: true
  readonly caller: Caller
}

export type Verdict = Accepted | Refused

/** A promise where a signature is checked or keys are fetched, otherwise a value. Rejects only on an internal fault. */
export type Verify = (token: string) => Verdict | Promise<Verdict>

/** As {@link Verify}, without a cache. */
export type VerifyUncached = (token: string) => Refused | Promise<Verdict>
