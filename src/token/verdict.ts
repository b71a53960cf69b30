/** The result of a token check: the identity of the token, or the reason for its refusal. Never the token itself. */

/** The identity in a verified token. */
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

/** `missing` and `malformed` also apply to the `Authorization` header. */
export type RejectReason = (typeof REJECT_REASONS)[number]

export interface Accepted {
  readonly ok: true
  readonly identity: Identity
  /** The identity as a JWS, if `identity.assertion` is on. Replaced on renewal: read it when it is sent. */
  readonly assertion?: string | undefined
}

export interface Refused {
  readonly ok: false
  readonly reason: RejectReason
  /** The invalid header parameter or claim: for `token inspect`, not for clients. */
  readonly claim?: string
}

/** The outcome of a token check. A refusal is a value, never an exception. */
export type Verdict = Accepted | Refused

/**
 * Checks one compact JWS. Returns a cached verdict as a value, any other as a promise, which rejects only on an internal
 * fault.
 */
export type Verify = (token: string) => Verdict | Promise<Verdict>
