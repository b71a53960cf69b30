/**
 * Explains a token to an operator. In: any text. Out: the verdict, the reason in words, and the readable
 * parts. The output omits the signature, so that the output for a valid token is not itself a token.
 */
import { errorIn, failed, type Result } from '../base/result.ts'
import type { IsRevoked, VerifiedToken } from './caller.ts'
import {
  type AcceptedTokens,
  explainClaim,
  explainUnknownKey,
  type UnverifiedToken,
} from './claim-explanations.ts'
import type { TokenIssuer } from './issuers.ts'
import { jsonObjectIn, MAX_TOKEN_BYTES, type RefusedToken, type Verify } from './verify.ts'

export type Inspection = Awaited<ReturnType<typeof inspectToken>>

type InspectedFailure = RefusedToken | { readonly reason: 'missing'; readonly invalidPart?: undefined }

interface InspectionContext {
  readonly verify: Verify
  readonly own: Pick<TokenIssuer, 'name' | 'credentialStatus'>
  readonly isRevoked: IsRevoked
  /** The settings, with which the explanation compares the token. */
  readonly rules: AcceptedTokens
  readonly now: () => number
}

type Claims = UnverifiedToken['claims']
type OwnNames = Readonly<{ accountId: string; accessKey: string }>

/**
 * A member that is not known is null, as `credentialActive` is for a trusted issuer.
 * Rejects only on an internal error.
 */
export async function inspectToken(token: string, context: InspectionContext) {
  const { verify, own, isRevoked, rules, now } = context
  const verdict: Result<VerifiedToken, InspectedFailure> =
    token === '' ? failed({ reason: 'missing' }) : await verify(token)
  const refusal = errorIn(verdict)
  const { header, claims } = readableParts(token)
  const unverified = { header: header ?? {}, claims: claims ?? {}, rules, nowMs: now() }
  const names = ownNames(unverified.claims, own.name)
  const isListed = isListedToken(names, unverified.claims, (token) => isRevoked(token, own.name))
  const credentialActive = isCredentialActive(names, own)
  const identity = verdict.ok ? verdict.value.identity : undefined
  const shownNames = identity ?? formerNames(names, refusal)
  return {
    verdict: refusal ? 'refused' : 'valid',
    reason: refusal?.reason ?? null,
    explanation: explainVerdict(verdict, credentialActive, unverified),
    kid: textOrNull(header?.['kid']),
    alg: textOrNull(header?.['alg']),
    /** The names that upstreams receive, or received before the token ended. */
    account: shownNames?.accountId ?? null,
    accessKey: shownNames?.accessKey ?? null,
    timeLeftSeconds: secondsUntil(unverified.claims['exp'], now()),
    /** Empty when the token may do nothing. */
    scope: identity?.scope?.text ?? null,
    revoked: isRevokedToken(refusal, credentialActive, isListed),
    credentialActive,
    /** Header and claims are not verified unless the signature is valid. */
    header: header ?? null,
    claims: claims ?? null,
  }
}

/** The refusal may have another reason that is found first, such as the expiry. */
function isRevokedToken(
  refusal: InspectedFailure | undefined,
  credentialActive: boolean | null,
  isListed: boolean | null,
): boolean | null {
  if (refusal === undefined) {
    return false
  }
  return refusal.reason === 'revoked' || credentialActive === false || isListed
}

/** Returns null if the token lacks what a revocation names. */
function isListedToken(
  names: OwnNames | undefined,
  { jti, iat }: Claims,
  isRevoked: (token: Parameters<IsRevoked>[0]) => boolean,
): boolean | null {
  if (names === undefined || typeof jti !== 'string' || typeof iat !== 'number') {
    return null
  }
  return isRevoked({ ...names, tokenId: jti, issuedAtSeconds: iat })
}

function readableParts(token: string) {
  const [header = '', claims = ''] = token.replace(/^bearer\s+/i, '').split('.', 2)
  return { header: readablePart(header), claims: readablePart(claims) }
}

/** A larger part may nest so deeply that it cannot be written as JSON. */
const readablePart = (part: string) => (part.length > MAX_TOKEN_BYTES ? undefined : jsonObjectIn(part))

/** Returns the names of a credential of the sidecar, as its own tokens and links have them. */
function ownNames(claims: Claims, issuer: string): OwnNames | undefined {
  const { iss, parent_iss: parentIssuer, sub, client_id: clientId } = claims
  const isOfOwnToken = parentIssuer === undefined || parentIssuer === issuer // only links have a parent
  const isOwn = iss === issuer && isOfOwnToken
  if (!isOwn || typeof sub !== 'string' || typeof clientId !== 'string') {
    return undefined
  }
  return { accountId: sub, accessKey: clientId }
}

function isCredentialActive(
  names: OwnNames | undefined,
  { credentialStatus }: InspectionContext['own'],
): boolean | null {
  if (names === undefined || credentialStatus === undefined) {
    return null
  }
  return credentialStatus(names.accountId, names.accessKey).active
}

/** Only tokens with a valid signature are called revoked or expired. */
function formerNames(names: OwnNames | undefined, refusal: InspectedFailure | undefined) {
  const wasValid = refusal?.reason === 'revoked' || refusal?.reason === 'expired'
  return wasValid ? names : undefined
}

const secondsUntil = (exp: unknown, nowMs: number) =>
  typeof exp === 'number' ? Math.max(0, Math.ceil(exp - nowMs / 1000)) : null

const textOrNull = (value: unknown) => (typeof value === 'string' ? value : null)

type FixedReason = Exclude<InspectedFailure['reason'], 'claims' | 'unknown_key'>

const EXPLANATIONS: Readonly<Record<FixedReason, string>> = {
  missing: 'There is no token.',
  malformed:
    'It is not three parts in canonical base64url without padding, separated by dots; ' +
    `or it begins with a scheme such as Bearer, or has more than ${MAX_TOKEN_BYTES} characters.`,
  algorithm: 'The alg differs from that of the key, so the content is unproven.',
  signature: 'The signature is not by the key that kid names, so the content is unproven.',
  unavailable: 'The keys of its issuer have not been fetched yet, so the content is unproven.',
  expired: 'The token was valid and has expired.',
  revoked: 'The token was valid and has been revoked: by its jti, its account or its access key.',
}

function explainVerdict(
  verdict: Result<VerifiedToken, InspectedFailure>,
  credentialActive: boolean | null,
  unverified: UnverifiedToken,
): string {
  return verdict.ok
    ? explainAcceptance(verdict.value)
    : explainRefusal(verdict.error, credentialActive, unverified)
}

function explainAcceptance({ link }: VerifiedToken): string {
  if (link === undefined) {
    return 'The token is accepted.'
  }
  return `It is a link: it is accepted as link_token of its ${link.method} request, and refused as a bearer token.`
}

function explainRefusal(
  { reason, invalidPart }: InspectedFailure,
  credentialActive: boolean | null,
  unverified: UnverifiedToken,
): string {
  if (reason === 'malformed' && invalidPart !== undefined) {
    return `Its header has no valid ${invalidPart}.`
  }
  if (reason === 'claims') {
    return explainClaim(invalidPart ?? 'payload', unverified)
  }
  if (reason === 'unknown_key') {
    return explainUnknownKey(unverified)
  }
  if (reason === 'revoked' && credentialActive === false) {
    return 'The credential that the token was issued for is disabled, removed or expired.'
  }
  return EXPLANATIONS[reason]
}
