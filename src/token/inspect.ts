/**
 * Explains a token to an operator.
 *
 * In: any text. Out: what a verifier says of it and what it says of itself, readable or not. The signature is
 * never part of it, so that the explanation of a live token is not itself a token.
 *
 * @module
 */
import type { Standing } from '../credentials/store.ts'
import { isJsonObject, parseStrictJson } from '../strict-json.ts'
import { malformationOf } from './malformation.ts'
import type { IsRevoked, RevocableToken } from './revocations.ts'
import type { RejectReason } from './verdict.ts'
import type { Verified, Verify } from './verify.ts'

/** All there is to say of a token. */
export interface Inspection {
  readonly verdict: 'valid' | 'refused'
  readonly reason: RejectReason | null
  readonly explanation: string
  readonly kid: string | null
  readonly alg: string | null
  /** Whole seconds until `exp`, 0 when it has passed; null when there is no such time. */
  readonly timeLeftSeconds: number | null
  /** Whether it is withdrawn before its time, by a revocation or with its credential; null when it does not say enough. */
  readonly revoked: boolean | null
  /** Whether the credential it names is in force here; null when it names none, or credentials are not kept here. */
  readonly credentialInForce: boolean | null
  /** What the token says, proven only where the verdict is not about shape, key, algorithm or signature. */
  readonly header: Members | null
  readonly claims: Members | null
}

/** What an inspection works with. */
export interface InspectOptions {
  readonly verify: Verify
  /** Absent where credentials are kept elsewhere. */
  readonly standing?: (accountId: string, accessKey: string) => Standing
  readonly isRevoked: IsRevoked
  /** The clock, in epoch milliseconds. */
  readonly now: () => number
}

type Members = Readonly<Record<string, unknown>>

/** Deeper or wider than any header or payload of ours; printing it would take longer than reading it. */
const MOST_NESTED = 64

/** The longest part that is shown, in characters: several times what a token may have. */
const MOST_SHOWN = 65_536

/** Says everything about a token; whatever the text, this is a value. */
export async function inspectToken(
  token: string,
  { verify, standing, isRevoked, now }: InspectOptions,
): Promise<Inspection> {
  const verified: Verified = token === '' ? { ok: false, reason: 'missing' } : await verify(token)
  // What can be read of a text that is no token is shown, too: it says where it came from.
  const [header, claims] = token
    .replace(/^bearer\s+/i, '')
    .split('.', 2)
    .map(members)
  const exp = claims?.['exp']
  const { sub, client_id: clientId } = claims ?? {}
  const credential =
    typeof sub === 'string' && typeof clientId === 'string' ? standing?.(sub, clientId) : null
  const subject = revocable(claims ?? {})
  const credentialInForce = credential?.inForce ?? null
  return {
    verdict: verified.ok ? 'valid' : 'refused',
    reason: verified.ok ? null : verified.reason,
    explanation: explain(token, verified, credentialInForce),
    kid: text(header?.['kid']),
    alg: text(header?.['alg']),
    timeLeftSeconds: Number.isSafeInteger(exp) ? Math.max(0, Math.ceil(Number(exp) - now() / 1000)) : null,
    revoked: credentialInForce === false || (subject === undefined ? null : isRevoked(subject)),
    credentialInForce,
    header: header ?? null,
    claims: claims ?? null,
  }
}

function members(segment: string): Members | undefined {
  if (segment.length > MOST_SHOWN) return undefined
  const bytes = Buffer.from(segment, 'base64url')
  const opened = bytes.reduce((count, byte) => count + (byte === 0x7b || byte === 0x5b ? 1 : 0), 0)
  if (opened > MOST_NESTED) return undefined
  const parsed = parseStrictJson(bytes)
  return parsed.ok && isJsonObject(parsed.value) ? parsed.value : undefined
}

/** What a revocation looks at; nothing when the claims do not say all of it. */
function revocable({ sub, client_id, jti, iat }: Members): RevocableToken | undefined {
  if (typeof sub !== 'string' || typeof client_id !== 'string') return undefined
  if (typeof jti !== 'string' || typeof iat !== 'number') return undefined
  return { tokenId: jti, accountId: sub, accessKey: client_id, issuedAt: iat }
}

function text(value: unknown): string | null {
  return typeof value === 'string' ? value : null
}

function explain(token: string, verified: Verified, credentialInForce: boolean | null): string {
  if (verified.ok) return 'It is accepted.'
  const { reason, claim = 'payload' } = verified
  if (reason === 'malformed') return malformationOf(token)
  if (reason === 'claims') return `Its ${claim} is missing or not that of an access token for this service.`
  if (reason === 'revoked' && credentialInForce !== false) {
    return 'It was good, and has been revoked: by its jti, its account or its access key.'
  }
  return EXPLANATIONS[reason]
}

const EXPLANATIONS: Readonly<Record<Exclude<RejectReason, 'claims' | 'malformed'>, string>> = {
  missing: 'There is no token.',
  unknown_key: 'No key here has the kid it names, so nothing it says is proven.',
  algorithm: 'Its alg is not that of the key it names, so nothing it says is proven.',
  signature: 'The key it names did not sign it, so nothing it says is proven.',
  expired: 'It was good, and has run out.',
  revoked: 'The credential it was issued for is disabled, removed or expired.',
}
