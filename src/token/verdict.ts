/** What a token check answers: the identity that the token proves, or the reason for its refusal. Never the token itself. */

/** Who a verified token speaks for. */
export interface Identity {
  /** Claim `sub`: the account, any Unicode text without control characters. */
  readonly accountId: string
  /** Claim `client_id`: the access key the token was issued for. */
  readonly accessKey: string
  /** Claim `jti`. */
  readonly tokenId: string
  /** Claim `exp`, in epoch seconds. */
  readonly expiresAt: number
}

/** Every reason for a refusal; the label `reason` of `auth_sidecar_token_checks_total`. */
export const REJECT_REASONS = [
  'missing',
  'malformed',
  'expired',
  'signature',
  'unknown_key',
  'algorithm',
  'claims',
  'revoked',
] as const

/** Why a token was refused. `missing` and `malformed` also apply to the `Authorization` header. */
export type RejectReason = (typeof REJECT_REASONS)[number]

/** A token that may pass. */
export interface Accepted {
  readonly ok: true
  readonly identity: Identity
  /** The identity as a JWS for the upstream, where `identity.assertion` is enabled. Replaced on renewal: read it when it is sent. */
  readonly assertion?: string | undefined
}

/** A token that may not. */
export interface Refused {
  readonly ok: false
  readonly reason: RejectReason
  /** The header parameter or claim at fault: for `token inspect`, not for clients. */
  readonly claim?: string
}

/** The outcome of a token check. A refusal is a value, never an exception. */
export type Verdict = Accepted | Refused

/**
 * Checks one compact JWS. Returns a cached verdict as a value, any other as a promise, which rejects only when the check itself
 * breaks.
 */
export type Verify = (token: string) => Verdict | Promise<Verdict>
