/**
 * Verifies bearer tokens.
 *
 * In: a compact JWS. Out: the identity it proves and for how long that may be remembered, or the reason it
 * was refused. An accepted token was signed by one of our keys, names us in `aud`, is inside its lifetime
 * (RFC 7519, section 4.1; RFC 9068, section 4), belongs to a credential that is in force and has not been
 * revoked. Cheap checks come first, and nothing the token says about itself chooses how it is checked: the key decides (RFC 8725,
 * section 3.1).
 *
 * @module
 */
import { compactVerify, errors } from 'jose'
import type { Standing } from '../credentials/store.ts'
import { isKid } from '../keys/jwk.ts'
import type { KeyRing, VerificationKey } from '../keys/key-ring.ts'
import { type ClaimRules, checkClaims } from './claims.ts'
import { isAccessTokenType, type ProtectedHeader, parseProtectedHeader } from './protected-header.ts'
import type { IsRevoked } from './revocations.ts'
import { hasTokenShape } from './shape.ts'
import type { Identity, RejectReason } from './verdict.ts'

/** The outcome of a full check. A positive one says until when it holds if nothing is changed meanwhile. */
export type Verified =
  | {
      readonly ok: true
      readonly identity: Identity
      /** Epoch milliseconds: from then on the token or its credential is no longer good. */
      readonly usableUntil: number
    }
  | {
      readonly ok: false
      readonly reason: RejectReason
      /** The header parameter or claim at fault, where it is one: for explaining, not for clients. */
      readonly claim?: string
    }

/** Checks a token. What is refused without a look at the signature is refused at once. */
export type Verify = (token: string) => Extract<Verified, { ok: false }> | Promise<Verified>

/** What a verifier works with. */
export interface VerifierOptions extends ClaimRules {
  /** The keys in force. */
  readonly keys: () => KeyRing
  /**
   * Looks for keys that are newer than those in force, where they come from elsewhere: called for a kid that is not
   * known and that a key can have, as often as tokens name one. Says whether it is known now. Does not reject.
   */
  readonly refreshKeys?: ((kid: string) => Promise<boolean>) | undefined
  /** Whether the credential that a token was issued for is in force; absent where credentials are kept elsewhere. */
  readonly standing?: ((accountId: string, accessKey: string) => Standing) | undefined
  /** Whether a token is withdrawn before it expires, by the revocations in force; without it, none is. */
  readonly isRevoked?: IsRevoked
  /** The clock, in epoch milliseconds. */
  readonly now: () => number
}

/** One refusal per reason, made once: refusing is what happens most under attack. */
const REFUSALS = {
  malformed: { ok: false, reason: 'malformed' },
  unknown_key: { ok: false, reason: 'unknown_key' },
  algorithm: { ok: false, reason: 'algorithm' },
  signature: { ok: false, reason: 'signature' },
  type: { ok: false, reason: 'claims', claim: 'typ' },
  revoked: { ok: false, reason: 'revoked' },
} as const satisfies Record<string, Verified>

const ALWAYS_IN_FORCE: Standing = { inForce: true, until: Number.POSITIVE_INFINITY }

/**
 * Makes a verifier that checks every token from the start. Put {@link withCache} around it.
 *
 * What can be refused without a signature is refused at once: under a flood of such tokens the promises would be a third
 * of the cost.
 *
 * @returns a function whose promise rejects only on a fault of our own, whatever the token
 */
export function createVerifier(options: VerifierOptions): Verify {
  const { keys, refreshKeys, clockToleranceSeconds, now } = options
  const { standing = () => ALWAYS_IN_FORCE, isRevoked = () => false } = options
  return function verify(token) {
    if (!hasTokenShape(token)) return REFUSALS.malformed
    const header = parseProtectedHeader(token.slice(0, token.indexOf('.')))
    if (header === undefined) return REFUSALS.malformed
    const { kid } = header
    // What no key can be called is not looked for elsewhere.
    if (kid === undefined || !isKid(kid)) return REFUSALS.unknown_key
    const key = keys().verification.get(kid)
    if (key !== undefined) return verifyWith(key, token, header)
    // A key that signs since a moment ago may be one that we have not heard of yet.
    return refreshKeys === undefined
      ? REFUSALS.unknown_key
      : refreshKeys(kid).then((isThere) => {
          const fresh = isThere ? keys().verification.get(kid) : undefined
          return fresh === undefined ? REFUSALS.unknown_key : verifyWith(fresh, token, header)
        })
  }

  function verifyWith(key: VerificationKey, token: string, header: ProtectedHeader): ReturnType<Verify> {
    if (header.alg !== key.alg) return REFUSALS.algorithm
    return isAccessTokenType(header.typ) ? verifySigned(key, token) : REFUSALS.type
  }

  async function verifySigned(key: VerificationKey, token: string): Promise<Verified> {
    const payload = await signedPayload(token, key)
    if (payload === undefined) return REFUSALS.signature
    const claims = checkClaims(payload, options, now())
    if (!claims.ok) return claims
    const { identity, issuedAt } = claims
    const credential = standing(identity.accountId, identity.accessKey)
    if (!credential.inForce || isRevoked({ ...identity, issuedAt })) return REFUSALS.revoked
    const until = Math.min(identity.expiresAt + clockToleranceSeconds, credential.until)
    return { ok: true, identity, usableUntil: until * 1000 }
  }
}

/** The payload, if the signature is the key's. jose checks the algorithm once more, by the key alone. */
async function signedPayload(token: string, key: VerificationKey): Promise<Uint8Array | undefined> {
  try {
    return (await compactVerify(token, key.key, { algorithms: [key.alg] })).payload
  } catch (error) {
    if (error instanceof errors.JOSEError) return undefined
    throw error
  }
}
