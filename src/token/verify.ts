/**
 * Verifies tokens and links (RFC 7519, RFC 8725, RFC 9068).
 * In: a compact JWS. Out: the caller that it proves, or why it is refused.
 * The unverified `iss` selects an issuer, whose keys and rules (`issuers.ts`) then decide alone. Cheap checks come first.
 */
import type { CryptoKey, JWTPayload } from 'jose'
import * as errors from 'jose/errors'
import { jwtVerify } from 'jose/jwt/verify'
import type { FindKey } from '../keys/key-ring.ts'
import { failed, type Result } from '../values/result.ts'
import { type Caller, type Identity, identityLines } from './caller.ts'
import { LINK_TYPE, linkOf } from './links.ts'
import { intersectScopes, validScope } from './scopes.ts'

export const MAX_TOKEN_BYTES = 8192

/** In base64url. JSON must not begin with a BOM (RFC 8259, section 8.1), but jose skips it. */
const BYTE_ORDER_MARK = '77u_'

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
  'unavailable', // the keys of the issuer have not been fetched yet
] as const

export type RefusalReason = (typeof REFUSAL_REASONS)[number]

export interface Refusal {
  readonly reason: RefusalReason
  /** The invalid header parameter or claim: for `token inspect`, not for clients. */
  readonly at?: string | undefined
}

export type Verdict = Result<Caller, Refusal>

/** Rejects only on an internal error. */
export type Verify = (token: string) => Promise<Verdict>

export interface TokenIssuer {
  /** The value of `iss`. */
  readonly name: string
  readonly audience: string
  /** Refuses a `kid` that the issuer does not have, and an `alg` other than that of the key. */
  readonly findKey: FindKey
  /** The longest `exp - iat`, by the accepted values of `typ` in lower case; undefined: it may be absent. */
  readonly maxSecondsByType: ReadonlyMap<string | undefined, number>
  /** Reads the names that a verified token gives its caller. `error`: the claim that gives none. */
  readonly readNames: (claims: JWTPayload, token: string) => Result<Names>
  /** For the tokens of the issuer, and for links that these made. Absent where another sidecar has the credentials. */
  readonly credentialStatus?: ((accountId: string, accessKey: string) => CredentialStatus) | undefined
}

export type Names = Pick<Identity, 'accountId' | 'accessKey' | 'tokenId' | 'scope'>

/** Whether tokens of a credential are valid, until when (`Infinity`: always), and what they may do at most. */
export type CredentialStatus =
  | { readonly active: true; readonly endsAtMs: number; readonly scope?: string | null | undefined }
  | { readonly active: false }

export type RevocableToken = Omit<Identity, 'expiresAtSeconds' | 'scope'>

export type IsRevoked = (token: RevocableToken) => boolean

export interface VerifierOptions {
  /** The first is our own. */
  readonly issuers: readonly [TokenIssuer, ...TokenIssuer[]]
  readonly isRevoked: IsRevoked
  readonly clockToleranceSeconds: number
  readonly now: () => number
}

const refused = (reason: RefusalReason, at?: string) => failed<Refusal>({ reason, at })

export function createVerifier(options: VerifierOptions): Verify {
  const { issuers } = options
  const [own] = issuers
  const byName = new Map<unknown, TokenIssuer>(issuers.map((issuer) => [issuer.name, issuer]))
  // A token of an unknown issuer is checked as one of ours, and refused: its `kid` or its `iss` is not ours.
  const issuerOf = (token: string) =>
    (byName.size === 1 ? own : byName.get(jsonObjectIn(token.split('.')[1])?.['iss'])) ?? own
  return async (token) => {
    // jose accepts many spellings of one token, and each would take an entry of the cache.
    if (token.length > MAX_TOKEN_BYTES || !SHAPE.test(token)) return refused('malformed')
    const header = readHeader(token)
    if (!header.ok) return refused('malformed', header.error)
    const { kid, alg } = header.value
    const issuer = issuerOf(token)
    const key = await issuer.findKey(kid, alg)
    if (!key.ok) return refused(key.error)
    const signed = await verifySignature(token, key.value, header.value, issuer, options)
    return signed.ok ? callerOf(token, signed.value, header.value, issuer, options) : signed
  }
}

interface Signed {
  readonly payload: JWTPayload
  readonly isExpired: boolean
}

async function verifySignature(
  token: string,
  key: CryptoKey,
  { alg }: Header,
  { name, audience }: TokenIssuer,
  { clockToleranceSeconds, now }: VerifierOptions,
): Promise<Result<Signed, Refusal>> {
  try {
    const { payload } = await jwtVerify(token, key, {
      algorithms: [alg],
      issuer: name,
      audience,
      requiredClaims: ['iat', 'exp'],
      clockTolerance: clockToleranceSeconds,
      currentDate: new Date(now()),
    })
    return { ok: true, value: { payload, isExpired: false } }
  } catch (error) {
    // jose checks the signature first and the expiry last: only our own rules remain.
    if (error instanceof errors.JWTExpired)
      return { ok: true, value: { payload: error.payload, isExpired: true } }
    if (error instanceof errors.JWTClaimValidationFailed) return refused('claims', error.claim)
    if (error instanceof errors.JWTInvalid) return refused('claims', 'payload')
    if (error instanceof errors.JOSEError) return refused('signature')
    throw error
  }
}

/** The signature, `iss`, `aud` and `nbf` are right already. */
function callerOf(
  token: string,
  { payload, isExpired }: Signed,
  { typ }: Header,
  issuer: TokenIssuer,
  { issuers, clockToleranceSeconds, now, isRevoked }: VerifierOptions,
): Verdict {
  if (token.startsWith(BYTE_ORDER_MARK, token.indexOf('.') + 1)) return refused('claims', 'payload')
  const maxLifetimeSeconds = issuer.maxSecondsByType.get(typ)
  if (maxLifetimeSeconds === undefined) return refused('claims', 'typ')
  const { iat = Number.NaN, exp = Number.NaN } = payload
  if (!Number.isSafeInteger(iat) || iat > now() / 1000 + clockToleranceSeconds)
    return refused('claims', 'iat')
  if (!Number.isSafeInteger(exp) || exp <= iat || exp - iat > maxLifetimeSeconds)
    return refused('claims', 'exp')
  const names = issuer.readNames(payload, token)
  if (!names.ok) return refused('claims', names.error)
  const binding = typ === LINK_TYPE ? linkOf(payload) : undefined
  if (binding?.ok === false) return refused('claims', binding.error)
  const link = binding?.value
  const endsAtMs = (exp + clockToleranceSeconds) * 1000
  if (isExpired || now() >= endsAtMs) return refused('expired', 'exp')
  // A link is as good as a token of the issuer of its parent.
  const parentIssuer = link === undefined ? issuer : issuers.find(({ name }) => name === link.parentIssuer)
  if (parentIssuer === undefined) return refused('claims', 'parent_iss')
  const credential = parentIssuer.credentialStatus?.(names.value.accountId, names.value.accessKey)
  if (credential?.active === false) return refused('revoked')
  const credentialEndsAtMs = Number.isFinite(credential?.endsAtMs) ? credential?.endsAtMs : undefined
  const scope = intersectScopes(names.value.scope, validScope(credential?.scope))
  const identity: Identity = { ...names.value, scope, issuedAtSeconds: iat, expiresAtSeconds: exp }
  const parent = link && { ...identity, tokenId: link.parentId, issuedAtSeconds: link.parentIssuedAtSeconds }
  if (isRevoked(identity) || (parent && isRevoked(parent))) return refused('revoked')
  const caller = {
    identity,
    identityLines: identityLines(identity),
    issuer: parentIssuer.name,
    link,
    credentialEndsAtMs,
    recheckAtMs: Math.min(endsAtMs, credentialEndsAtMs ?? endsAtMs),
  }
  return { ok: true, value: caller }
}

/** Canonical base64url (RFC 4648, section 3.5) has no padding, and its bits that encode nothing are zero. */
const SEGMENT = '(?:[\\w-]{4})*(?:[\\w-]{4}|[\\w-][AQgw]|[\\w-]{2}[AEIMQUYcgkosw048])'
const SHAPE = new RegExp(`^${SEGMENT}\\.${SEGMENT}\\.${SEGMENT}$`)

/** Not verified. */
interface Header {
  readonly alg: string
  readonly kid: string | undefined
  /** Lower case, without `application/`; '' if the parameter is no string. */
  readonly typ: string | undefined
}

/** `error` is the invalid header parameter. */
function readHeader(token: string): Result<Header> {
  const header = jsonObjectIn(token.slice(0, token.indexOf('.')))
  if (header === undefined) return failed('JSON')
  const { alg, kid, typ }: { alg?: unknown; kid?: unknown; typ?: unknown } = header
  // Parameters that change the meaning of a token.
  const forbidden = ['crit', 'b64', 'zip', 'cty'].find((name) => name in header)
  if (forbidden !== undefined) return failed(forbidden)
  if (typeof alg !== 'string') return failed('alg')
  if (kid !== undefined && typeof kid !== 'string') return failed('kid')
  const type = typeof typ === 'string' ? typ.toLowerCase().replace(/^application\//, '') : ''
  return { ok: true, value: { alg, kid, typ: typ === undefined ? undefined : type } }
}

export function jsonObjectIn(segment = ''): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(Buffer.from(segment, 'base64url').toString())
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : undefined
  } catch {
    return undefined
  }
}
