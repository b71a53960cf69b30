/**
 * What the check of a bearer token says: the identity it proves, or why it was refused.
 *
 * These types are shared by everything that checks a token or acts on the outcome; they carry no behaviour
 * and never the token itself.
 *
 * @module
 */

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

/** Every reason a token can be refused for; the label `reason` of `auth_sidecar_token_checks_total`. */
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

/** Why a token was refused. `missing` and `malformed` are also said of the `Authorization` header. */
export type RejectReason = (typeof REJECT_REASONS)[number]

/** The outcome of a token check. A refusal is a value, never an exception. */
export type Verdict =
  | { readonly ok: true; readonly identity: Identity }
  | { readonly ok: false; readonly reason: RejectReason }

/**
 * What is kept of the token that came last on a connection: clients repeat theirs, and hashing it anew for each
 * request would be the dearest part of a check. It lives and dies with the connection.
 */
export interface LastToken {
  token: string
  /** Its SHA-256. */
  digest: string
  /** That it was refused, where it would be again. */
  refusal?: LastingRefusal | undefined
}

/** A refusal that holds as long as nothing is changed and the clock is not set back. */
export interface LastingRefusal {
  readonly verdict: Extract<Verdict, { ok: false }>
  /** How often keys, credentials and revocations had changed by then. */
  readonly generation: number
  /** Epoch milliseconds. */
  readonly time: number
}

/**
 * Checks one compact JWS. Answers at once when the verdict is remembered, with a promise otherwise, so that
 * a remembered token costs no turn of the event loop. The promise rejects only on a fault of our own.
 */
export type Verify = (token: string, last?: LastToken) => Verdict | Promise<Verdict>
