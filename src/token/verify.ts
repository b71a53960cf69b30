/**
 * Verifies bearer tokens (RFC 7519, RFC 8725, RFC 9068).
 * In: a compact JWS. Out: its identity and the end of its validity, or the reject reason.
 * The key selects the algorithm, not the token. Cheap checks come first.
 */
import type { JWTPayload } from 'jose'
import * as errors from 'jose/errors'
import { jwtVerify } from 'jose/jwt/verify'
import { nameProblem, namesProblem } from '../credentials/names.ts'
import type { IsRevoked } from '../credentials/revocations.ts'
import type { CredentialStatus } from '../credentials/store.ts'
import { isKid } from '../keys/jwk.ts'
import type { KeyRing, VerificationKey } from '../keys/key-ring.ts'

export interface Identity {
  readonly accountId: string
  readonly accessKey: string
  readonly tokenId: string
  /** Epoch seconds. */
  readonly expiresAt: number
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
] as const

export type RefusalReason = (typeof REFUSAL_REASONS)[number]

export interface Accepted {
  readonly ok: true
  readonly identity: Identity
  readonly assertion?: string | undefined
}

export interface Refused {
  readonly ok: false
  readonly reason: RefusalReason
  /** The invalid header parameter or claim: for `token inspect`, not for clients. */
  readonly claim?: string
}

export type Verdict = Accepted | Refused

/** A promise where a signature is checked or keys are fetched, otherwise a value. Rejects only on an internal fault. */
export type Verify = (token: string) => Verdict | Promise<Verdict>

export const MAX_TOKEN_BYTES = 8192

/** Header parameters that change the meaning of a token. */
export const REFUSED_PARAMETERS = ['crit', 'b64', 'zip', 'cty'] as const

/** In UTF-16 units: `jti` becomes a header line of the forwarded request. */
const MAX_JTI_LENGTH = 256

/** In base64url. JSON must not begin with it (RFC 8259, section 8.1), but jose skips it. */
const BYTE_ORDER_MARK = '77u_'

export interface Verified extends Accepted {
  /** Epoch milliseconds: the end of the token or of its credential. */
  readonly usableUntil: number
}

/** As {@link Verify}, without a cache. */
export type VerifyUncached = (token: string) => Refused | Promise<Verified | Refused>

export interface VerifierOptions {
  readonly keys: () => KeyRing
  /** Fetches newer keys of another issuer; called for an unknown but valid `kid`. Does not reject. */
  readonly fetchKeysFor?: ((kid: string) => Promise<unknown>) | undefined
  /** Absent where another sidecar has the credentials. */
  readonly credentialStatus?: ((accountId: string, accessKey: string) => CredentialStatus) | undefined
  readonly isRevoked?: IsRevoked
  readonly issuer: string
  readonly audience: string
  readonly maxLifetimeSeconds: number
  readonly clockToleranceSeconds: number
  readonly now: () => number
}

const MALFORMED: Refused = { ok: false, reason: 'malformed' }
const UNKNOWN_KEY: Refused = { ok: false, reason: 'unknown_key' }
const ALGORITHM: Refused = { ok: false, reason: 'algorithm' }

export function createVerifier(options: VerifierOptions): VerifyUncached {
  const { keys, fetchKeysFor } = options
  return (token) => {
    const header = hasTokenShape(token) ? readHeader(token) : undefined
    if (header === undefined) return MALFORMED
    const { alg, kid } = header
    if (kid === undefined || !isKid(kid)) return UNKNOWN_KEY
    const check = () => {
      const key = keys().verification.get(kid)
      if (key === undefined) return UNKNOWN_KEY
      return key.alg === alg ? verifySigned(token, key, options) : ALGORITHM
    }
    return fetchKeysFor === undefined || keys().verification.has(kid)
      ? check()
      : fetchKeysFor(kid).then(check)
  }
}

async function verifySigned(
  token: string,
  { key, alg }: VerificationKey,
  options: VerifierOptions,
): Promise<Verified | Refused> {
  const { clockToleranceSeconds, issuer, audience, now, credentialStatus, isRevoked } = options
  let payload: JWTPayload
  let isExpired = false
  try {
    const verified = await jwtVerify(token, key, {
      algorithms: [alg],
      typ: 'at+jwt',
      issuer,
      audience,
      requiredClaims: ['sub', 'client_id', 'jti', 'iat', 'exp'],
      clockTolerance: clockToleranceSeconds,
      currentDate: new Date(now()),
    })
    payload = verified.payload
  } catch (error) {
    // jose checks the signature first and the expiry last: only our own rules remain.
    if (error instanceof errors.JWTExpired) {
      isExpired = true
      payload = error.payload
    } else if (error instanceof errors.JWTClaimValidationFailed) return invalid(error.claim)
    else if (error instanceof errors.JWTInvalid) return invalid('payload')
    else if (error instanceof errors.JOSEError) return { ok: false, reason: 'signature' }
    else throw error
  }
  if (token.startsWith(BYTE_ORDER_MARK, token.indexOf('.') + 1)) return invalid('payload')
  const read = readClaims(payload, options)
  if (!read.ok) return read
  const { identity, issuedAt } = read
  const expiresAt = identity.expiresAt + clockToleranceSeconds
  if (isExpired || now() >= expiresAt * 1000) return { ok: false, reason: 'expired', claim: 'exp' }
  const credential = credentialStatus?.(identity.accountId, identity.accessKey)
  if (credential?.active === false || isRevoked?.({ ...identity, issuedAt })) {
    return { ok: false, reason: 'revoked' }
  }
  return { ok: true, identity, usableUntil: Math.min(expiresAt, credential?.until ?? expiresAt) * 1000 }
}

/** A segment in canonical base64url (RFC 4648, section 3.5): no padding, and bits that encode nothing are zero. */
const SEGMENT = '(?:[\\w-]{4})*(?:[\\w-]{4}|[\\w-][AQgw]|[\\w-]{2}[AEIMQUYcgkosw048])'
const SHAPE = new RegExp(`^${SEGMENT}\\.${SEGMENT}\\.${SEGMENT}$`)

/** Canonical: jose accepts many spellings of one token, and each would take an entry of the cache. */
function hasTokenShape(token: string): boolean {
  return token.length <= MAX_TOKEN_BYTES && SHAPE.test(token)
}

/** The unverified `alg` and `kid` of the protected header. */
function readHeader(token: string): { readonly alg: string; readonly kid: string | undefined } | undefined {
  let header: unknown
  try {
    header = JSON.parse(Buffer.from(token.slice(0, token.indexOf('.')), 'base64url').toString())
  } catch {
    return undefined
  }
  if (typeof header !== 'object' || header === null) return undefined
  if (REFUSED_PARAMETERS.some((name) => name in header)) return undefined
  const { alg, kid }: { alg?: unknown; kid?: unknown } = header
  if (typeof alg !== 'string' || (kid !== undefined && typeof kid !== 'string')) return undefined
  return { alg, kid }
}

/** Checks the claims that jose does not: the names, and the bounds of `iat` and `exp`. */
function readClaims(
  { sub, client_id, jti, iat, exp }: JWTPayload,
  { maxLifetimeSeconds, clockToleranceSeconds, now }: VerifierOptions,
): { readonly ok: true; readonly identity: Identity; readonly issuedAt: number } | Refused {
  if (!isName(sub)) return invalid('sub')
  if (!isName(client_id) || namesProblem(sub, client_id) !== undefined) return invalid('client_id')
  if (!isName(jti) || jti.length > MAX_JTI_LENGTH) return invalid('jti')
  if (!isInteger(iat) || iat > now() / 1000 + clockToleranceSeconds) return invalid('iat')
  if (!isInteger(exp) || exp <= iat || exp - iat > maxLifetimeSeconds) return invalid('exp')
  return {
    ok: true,
    identity: { accountId: sub, accessKey: client_id, tokenId: jti, expiresAt: exp },
    issuedAt: iat,
  }
}

function invalid(claim: string): Refused {
  return { ok: false, reason: 'claims', claim }
}

/** A name becomes part of a header and a log line: a control character could forge another. */
function isName(value: unknown): value is string {
  return typeof value === 'string' && nameProblem(value) === undefined
}

function isInteger(value: unknown): value is number {
  return Number.isSafeInteger(value)
}
