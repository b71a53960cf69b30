/**
 * Verifies tokens and links (RFC 7519, RFC 8725, RFC 9068).
 * In: a compact JWS. Out: what it proves, or why it is refused.
 * The unverified `iss` selects an issuer. Only the keys and rules of this issuer (`issuers.ts`) then decide.
 */
import type { CryptoKey, JWTPayload } from 'jose'
import * as errors from 'jose/errors'
import { jwtVerify } from 'jose/jwt/verify'
import pLimit from 'p-limit'
import type { TokenFailure } from '../base/errors.ts'
import { parseJsonObject } from '../base/json.ts'
import { failed, ok, type Result } from '../base/result.ts'
import { type Identity, type IsRevoked, isCallerRevoked, type VerifiedToken } from './caller.ts'
import type { TokenIssuer } from './issuers.ts'
import { LINK_TYPE, readLink } from './links.ts'
import { intersectScopes, parseStoredScope } from './scopes.ts'

export const MAX_TOKEN_BYTES = 8192

/**
 * As many as libuv has threads. More at once would only delay requests with cached tokens:
 * a burst of new tokens would complete, and be forwarded, in the same turns of the event loop.
 */
const MAX_SIGNATURE_CHECKS = 4

/** The mark in base64url. JSON must not begin with the mark (RFC 8259, section 8.1), but jose skips it. */
const BYTE_ORDER_MARK = '77u_'

export interface RefusedToken {
  readonly reason: TokenFailure
  /**
   * A header parameter, a claim, `JSON` or `payload`. `token inspect` shows it. Clients do not receive it.
   */
  readonly invalidPart?: string | undefined
  /** For `expired` and `revoked`: what the token proved while it was good. It is for the log alone. */
  readonly identity?: Identity | undefined
}

export type Verdict<Accepted = VerifiedToken> = Result<Accepted, RefusedToken>

/** Rejects only on an internal error. */
export type Verify = (token: string) => Promise<Verdict>

export interface VerifierOptions {
  /** The sidecar's own issuer is the first. */
  readonly issuers: readonly [TokenIssuer, ...TokenIssuer[]]
  readonly isRevoked: IsRevoked
  /** Whether too little is known of the credentials to accept any token. */
  readonly isUnavailable?: (() => boolean) | undefined
  /** How far `iat` and `nbf` may lie ahead. The expiry is never stretched. */
  readonly clockToleranceSeconds: number
  readonly now: () => number
}

export function createVerifier(options: VerifierOptions): Verify {
  const verify = issuerVerifier(options)
  const { isUnavailable } = options
  if (isUnavailable === undefined) {
    return verify
  }
  return async (token) => (isUnavailable() ? refused('unavailable') : verify(token))
}

function issuerVerifier(options: VerifierOptions): Verify {
  const [own] = options.issuers
  const limitChecks = pLimit(MAX_SIGNATURE_CHECKS)
  const byName = new Map<unknown, TokenIssuer>(options.issuers.map((issuer) => [issuer.name, issuer]))
  return async (token) => {
    // jose accepts many spellings of one token, and each would take an entry of the cache.
    if (token.length > MAX_TOKEN_BYTES || !CANONICAL.test(token)) {
      return refused('malformed')
    }
    const header = readHeader(token)
    if (!header.ok) {
      return refused('malformed', header.error)
    }
    const { kid, alg, typ } = header.value
    // A token of an unknown issuer goes to the sidecar's own issuer, which refuses its `kid` or its `iss`.
    const issuer = byName.get(jsonObjectIn(token.split('.')[1])?.['iss']) ?? own
    const key = await issuer.findKey(kid, alg)
    if (!key.ok) {
      return refused(key.error)
    }
    const claims = await limitChecks(() => verifyJwt(token, key.value, alg, issuer, options))
    if (!claims.ok) {
      return claims
    }
    const claimed = applyIssuerRules(token, typ, claims.value, issuer, options)
    return claimed.ok ? checkStatus(claimed.value, issuer, options) : claimed
  }
}

/** What the claims say, before the status of the credential and the revocations are known. */
type ClaimedToken = Pick<VerifiedToken, 'identity' | 'link'> & { readonly expiresAtMs: number }

const refused = (reason: TokenFailure, invalidPart?: string) => failed<RefusedToken>({ reason, invalidPart })
const ended = (reason: 'expired' | 'revoked', identity: Identity, invalidPart?: string) =>
  failed<RefusedToken>({ reason, invalidPart, identity })

/**
 * Lets jose check the signature, `iss`, `aud` and `nbf`, and that `iat` and `exp` are present.
 * Returns the claims.
 */
async function verifyJwt(
  token: string,
  key: CryptoKey,
  alg: string,
  { name, audience }: TokenIssuer,
  { clockToleranceSeconds, now }: VerifierOptions,
): Promise<Verdict<JWTPayload>> {
  try {
    const { payload } = await jwtVerify(token, key, {
      algorithms: [alg],
      issuer: name,
      audience,
      requiredClaims: ['iat', 'exp'],
      clockTolerance: clockToleranceSeconds,
      // jose drops the fraction of the second. `applyIssuerRules` checks all times exactly.
      currentDate: new Date(Math.ceil(now() / 1000) * 1000),
    })
    return ok(payload)
  } catch (error) {
    // jose checks the expiry last, so all else is valid.
    if (error instanceof errors.JWTExpired) {
      return ok(error.payload)
    }
    if (error instanceof errors.JWTClaimValidationFailed) {
      return refused('claims', error.claim)
    }
    if (error instanceof errors.JWTInvalid) {
      return refused('claims', 'payload')
    }
    if (error instanceof errors.JOSEError) {
      return refused('signature')
    }
    throw error
  }
}

/** Applies the rules of the issuer. The expiry is last: a token with another defect is not called expired. */
function applyIssuerRules(
  token: string,
  typ: string | undefined,
  claims: JWTPayload,
  issuer: TokenIssuer,
  { clockToleranceSeconds, now }: VerifierOptions,
): Verdict<ClaimedToken> {
  if (token.startsWith(BYTE_ORDER_MARK, token.indexOf('.') + 1)) {
    return refused('claims', 'payload')
  }
  const maxLifetimeSeconds = issuer.maxSecondsByType.get(typ)
  if (maxLifetimeSeconds === undefined) {
    return refused('claims', 'typ')
  }
  const { iat = Number.NaN, exp = Number.NaN, nbf = 0 } = claims
  const latestSeconds = now() / 1000 + clockToleranceSeconds
  if (!isTime(iat, issuer) || iat > latestSeconds) {
    return refused('claims', 'iat')
  }
  if (nbf > latestSeconds) {
    return refused('claims', 'nbf')
  }
  if (!isTime(exp, issuer) || exp <= iat || exp - iat > maxLifetimeSeconds) {
    return refused('claims', 'exp')
  }
  const claimed = issuer.readIdentity(claims, token)
  if (!claimed.ok) {
    return refused('claims', claimed.error)
  }
  const link = typ === LINK_TYPE ? readLink(claims) : undefined
  if (link?.ok === false) {
    return refused('claims', link.error)
  }
  const expiresAtMs = exp * 1000
  const identity = { ...claimed.value, issuedAtSeconds: iat, expiresAtSeconds: Math.floor(exp) }
  if (now() >= expiresAtMs) {
    return ended('expired', identity, 'exp')
  }
  return ok({ identity, link: link?.value, expiresAtMs })
}

/** RFC 7519, section 2: a NumericDate may have a fraction. */
const isTime = (seconds: number, { allowsFractions }: TokenIssuer) =>
  allowsFractions ? Math.abs(seconds) <= Number.MAX_SAFE_INTEGER : Number.isSafeInteger(seconds)

/** Checks what can change while a token lives: its credential and the revocations. */
function checkStatus(
  { identity: claimed, link, expiresAtMs }: ClaimedToken,
  issuer: TokenIssuer,
  { issuers, isRevoked }: VerifierOptions,
): Verdict {
  // A link ends with the credential of the token that made it. Another issuer may have signed that token.
  const credentialIssuer = link ? issuers.find(({ name }) => name === link.parentIssuer) : issuer
  if (credentialIssuer === undefined) {
    return refused('claims', 'parent_iss')
  }
  const credential = credentialIssuer.credentialStatus?.(claimed.accountId, claimed.accessKey)
  if (credential?.active === false) {
    return ended('revoked', claimed)
  }
  const identity = { ...claimed, scope: intersectScopes(claimed.scope, parseStoredScope(credential?.scope)) }
  if (isCallerRevoked({ identity, issuer: issuer.name, link }, isRevoked)) {
    return ended('revoked', identity)
  }
  const validUntilMs = Math.min(expiresAtMs, credential?.endsAtMs ?? expiresAtMs)
  return ok({ identity, issuer: issuer.name, link, validUntilMs })
}

/** Canonical base64url (RFC 4648, section 3.5) has no padding, and its unused bits are zero. */
const SEGMENT = '(?:[\\w-]{4})*(?:[\\w-]{4}|[\\w-][AQgw]|[\\w-]{2}[AEIMQUYcgkosw048])'
const CANONICAL = new RegExp(`^${SEGMENT}\\.${SEGMENT}\\.${SEGMENT}$`)

/** Reads the unverified header. `typ` is in lower case without `application/`, or '' if it is no string. */
function readHeader(token: string) {
  const header = jsonObjectIn(token.split('.')[0])
  if (header === undefined) {
    return failed('JSON')
  }
  const { alg, kid, typ }: { alg?: unknown; kid?: unknown; typ?: unknown } = header
  // Parameters that change the meaning of a token.
  const forbidden = ['crit', 'b64', 'zip', 'cty'].find((name) => name in header)
  if (forbidden !== undefined) {
    return failed(forbidden)
  }
  if (typeof alg !== 'string') {
    return failed('alg')
  }
  if (kid !== undefined && typeof kid !== 'string') {
    return failed('kid')
  }
  const type = typeof typ === 'string' ? typ.toLowerCase().replace(/^application\//, '') : ''
  return ok({ alg, kid, typ: typ === undefined ? undefined : type })
}

export const jsonObjectIn = (segment = '') => parseJsonObject(Buffer.from(segment, 'base64url').toString())
