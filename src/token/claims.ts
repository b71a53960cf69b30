/**
 * Checks the claims of a token whose signature holds (RFC 7519, section 4.1; RFC 9068, section 2.2).
 *
 * In: the payload's bytes and what we expect. Out: the identity, or that the token ran out, or that the
 * claims are not those of a token for us. A token is called expired only when nothing else is wrong with it.
 *
 * @module
 */
import { nameProblem } from '../names.ts'
import { isJsonObject, parseStrictJson } from '../strict-json.ts'
import { isPlainNumber } from './plain-number.ts'
import type { Identity, RejectReason } from './verdict.ts'

/** What the claims of a token must say. */
export interface ClaimRules {
  /** `iss` must equal it. */
  readonly issuer: string
  /** `aud` must equal it, or be an array that holds it. */
  readonly audience: string
  /** The most that `exp - iat` may be. */
  readonly maxLifetimeSeconds: number
  /** How far another clock may differ from ours. */
  readonly clockToleranceSeconds: number
}

/** The outcome of the check. */
export type ClaimsVerdict =
  | {
      readonly ok: true
      readonly identity: Identity
      /** Claim `iat`, in epoch seconds. */
      readonly issuedAt: number
    }
  | {
      readonly ok: false
      readonly reason: Extract<RejectReason, 'claims' | 'expired'>
      /** The claim at fault, for explaining a token to its operator; absent when it is the payload as a whole. */
      readonly claim?: string
    }

/** The longest `jti` taken, in UTF-16 units: it becomes a header line of the forwarded request. */
const MOST_ID_LENGTH = 256

/**
 * Checks a payload.
 *
 * @param payload - the JSON text that was signed
 * @param now - epoch milliseconds
 */
export function checkClaims(payload: Uint8Array, rules: ClaimRules, now: number): ClaimsVerdict {
  const parsed = parseStrictJson(payload)
  if (!parsed.ok || !isJsonObject(parsed.value)) return faulty()
  const { iss, aud, sub, client_id, jti, iat, exp, nbf } = parsed.value
  if (iss !== rules.issuer) return faulty('iss')
  if (!names(aud, rules.audience)) return faulty('aud')
  if (!isName(sub)) return faulty('sub')
  if (!isName(client_id)) return faulty('client_id')
  if (!isName(jti) || jti.length > MOST_ID_LENGTH) return faulty('jti')
  const text = Buffer.from(payload.buffer, payload.byteOffset, payload.length).toString('latin1')
  if (!isWholeNumber(iat) || !isPlainNumber(text, 'iat')) return faulty('iat')
  if (!isWholeNumber(exp) || !isPlainNumber(text, 'exp')) return faulty('exp')
  if (exp <= iat || exp - iat > rules.maxLifetimeSeconds) return faulty('exp')
  const latestStart = now + rules.clockToleranceSeconds * 1000
  if (iat * 1000 > latestStart) return faulty('iat')
  if (nbf !== undefined && !(typeof nbf === 'number' && nbf * 1000 <= latestStart)) return faulty('nbf')
  if (now >= (exp + rules.clockToleranceSeconds) * 1000) return { ok: false, reason: 'expired', claim: 'exp' }
  const identity: Identity = { accountId: sub, accessKey: client_id, tokenId: jti, expiresAt: exp }
  return { ok: true, identity, issuedAt: iat }
}

function faulty(claim?: string): ClaimsVerdict {
  return { ok: false, reason: 'claims', ...(claim !== undefined && { claim }) }
}

function names(aud: unknown, audience: string): boolean {
  return aud === audience || (Array.isArray(aud) && aud.includes(audience))
}

/** A name goes into a header of the forwarded request and into logs, where a control character could forge a line. */
function isName(value: unknown): value is string {
  return typeof value === 'string' && nameProblem(value) === undefined
}

function isWholeNumber(value: unknown): value is number {
  return Number.isSafeInteger(value)
}
