/**
 * Explains a token to an operator.
 * In: any text. Out: the verdict, the reason in words, and the token's readable parts. Never the signature, so that the
 * explanation of a valid token is not itself a token.
 */
import type { IsRevoked } from '../credentials/revocations.ts'
import type { CredentialStatus } from '../credentials/store.ts'
import {
  MAX_TOKEN_BYTES,
  REFUSED_PARAMETERS,
  type RefusalReason,
  type Refused,
  type Verdict,
  type Verify,
} from './verify.ts'

export interface Inspection {
  readonly verdict: 'valid' | 'refused'
  readonly reason: RefusalReason | null
  readonly explanation: string
  readonly kid: string | null
  readonly alg: string | null
  /** What upstreams receive; null unless the token is valid. */
  readonly account: string | null
  readonly accessKey: string | null
  /** Whole seconds until `exp`, 0 afterwards; null without a valid `exp`. */
  readonly timeLeftSeconds: number | null
  /** What an accepted token may do now; null when it is unrestricted, empty when it may do nothing. */
  readonly scope: string | null
  /** Whether a revocation or the end of its credential ended it early; null when claims for that are missing. */
  readonly revoked: boolean | null
  /** Null when the token names no credential, or another sidecar keeps the credentials. */
  readonly credentialActive: boolean | null
  /** Not verified unless the signature is valid. The same holds for `claims`. */
  readonly header: Members | null
  readonly claims: Members | null
}

interface InspectOptions {
  readonly verify: Verify
  /** Credentials belong to tokens of our own. */
  readonly issuer: string
  readonly credentialStatus?: (accountId: string, accessKey: string) => CredentialStatus
  readonly isRevoked: IsRevoked
  readonly now: () => number
}

type Members = Readonly<Record<string, unknown>>

/** Segments beyond these limits, several times those of a token, are not shown. */
const MAX_SHOWN = 65_536
const MAX_BRACKETS = 64

export async function inspectToken(token: string, options: InspectOptions): Promise<Inspection> {
  const { verify, issuer, credentialStatus, isRevoked, now } = options
  const verdict: Verdict = token === '' ? { ok: false, reason: 'missing' } : await verify(token)
  const [header = null, claims = null] = token
    .replace(/^bearer\s+/i, '')
    .split('.', 2)
    .map(members)
  const { iss, sub, client_id: clientId, jti, iat, exp } = claims ?? {}
  const named = iss === issuer && typeof sub === 'string' && typeof clientId === 'string'
  const credentialActive = (named ? credentialStatus?.(sub, clientId).active : undefined) ?? null
  const isListed =
    named && typeof jti === 'string' && typeof iat === 'number'
      ? isRevoked({ tokenId: jti, accountId: sub, accessKey: clientId, issuedAt: iat })
      : null
  return {
    verdict: verdict.ok ? 'valid' : 'refused',
    reason: verdict.ok ? null : verdict.reason,
    explanation: verdict.ok ? 'The token is accepted.' : explain(token, verdict, header, credentialActive),
    kid: text(header?.['kid']),
    alg: text(header?.['alg']),
    account: verdict.ok ? verdict.identity.accountId : null,
    accessKey: verdict.ok ? verdict.identity.accessKey : null,
    timeLeftSeconds: Number.isSafeInteger(exp) ? Math.max(0, Math.ceil(Number(exp) - now() / 1000)) : null,
    scope: verdict.ok ? (verdict.identity.scope?.text ?? null) : null,
    revoked: verdict.ok ? false : verdict.reason === 'revoked' || credentialActive === false || isListed,
    credentialActive,
    header,
    claims,
  }
}

function members(segment: string): Members | null {
  const json = Buffer.from(segment, 'base64url').toString()
  if (segment.length > MAX_SHOWN || json.split(/[[{]/, MAX_BRACKETS + 2).length > MAX_BRACKETS + 1)
    return null
  try {
    const value: unknown = JSON.parse(json)
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : null
  } catch {
    return null
  }
}

function text(value: unknown): string | null {
  return typeof value === 'string' ? value : null
}

function explain(
  token: string,
  { reason, claim = 'payload' }: Refused,
  header: Members | null,
  credentialActive: boolean | null,
): string {
  switch (reason) {
    case 'missing':
      return 'There is no token.'
    case 'malformed':
      return malformation(token, header)
    case 'unknown_key':
      return 'The sidecar has no key with this kid, so the content is unproven.'
    case 'algorithm':
      return 'The alg differs from that of the key, so the content is unproven.'
    case 'signature':
      return 'The signature is not by the key that kid names, so the content is unproven.'
    case 'claims':
      return `The ${claim} is missing, maps to no account, or is not that of an access token for this service.`
    case 'unavailable':
      return 'The keys of its issuer have not been fetched yet, so the content is unproven.'
    case 'expired':
      return 'The token was valid and has expired.'
    case 'scope':
      return 'The token does not allow the request.'
    case 'revoked':
      return credentialActive === false
        ? 'The credential that the token was issued for is disabled, removed or expired.'
        : 'The token was valid and has been revoked: by its jti, its account or its access key.'
  }
}

/** Explains a malformed token without repeating any part of it. */
function malformation(token: string, header: Members | null): string {
  if (/^bearer\s/i.test(token)) return 'It begins with the scheme: give what follows Bearer.'
  if (token.length > MAX_TOKEN_BYTES) return `It has more than ${MAX_TOKEN_BYTES} characters.`
  const parts = token.split('.')
  if (parts.length === 5)
    return 'It has five parts, as an encrypted token has; only signed ones are accepted.'
  if (parts.length !== 3) {
    const count = parts.length === 1 ? 'one part' : `${parts.length} parts`
    return `It has ${count}; a signed token has three, separated by dots.`
  }
  for (const [index, part] of parts.entries()) {
    const problem = partProblem(part)
    if (problem !== undefined) return `Its ${['header', 'payload', 'signature'][index]} ${problem}.`
  }
  if (header === null) return 'Its header is not a JSON object.'
  const refused = REFUSED_PARAMETERS.find((name) => name in header)
  if (refused !== undefined) return `Its header holds ${refused}, with which no token is accepted.`
  return `Its ${typeof header['alg'] === 'string' ? 'kid' : 'alg'} is not a string.`
}

function partProblem(part: string): string | undefined {
  if (part === '') return 'is empty'
  if (/^[\w-]+=+$/.test(part)) return 'ends with =, which base64url without padding does not have'
  if (!/^[\w-]+$/.test(part)) return 'holds characters that are not base64url'
  const canonical = Buffer.from(part, 'base64url').toString('base64url')
  return canonical === part ? undefined : 'is not canonical base64url, or was truncated'
}
