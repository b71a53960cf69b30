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
import { hasTokenShape } from './shape.ts'
import type { RejectReason } from './verdict.ts'
import type { Verified } from './verify.ts'

/** All there is to say of a token. */
export interface Inspection {
  readonly verdict: 'valid' | 'refused'
  readonly reason: RejectReason | null
  readonly explanation: string
  readonly kid: string | null
  readonly alg: string | null
  /** Whole seconds until `exp`, 0 when it has passed; null when there is no such time. */
  readonly timeLeftSeconds: number | null
  /** Whether the credential it names is in force here; null when it names none. */
  readonly credentialInForce: boolean | null
  /** What the token says, proven only where the verdict is not about key, algorithm or signature. */
  readonly header: Members | null
  readonly claims: Members | null
}

/** What an inspection works with. */
export interface InspectOptions {
  readonly verify: (token: string) => Promise<Verified>
  readonly standing: (accountId: string, accessKey: string) => Standing
  /** The clock, in epoch milliseconds. */
  readonly now: () => number
}

type Members = Readonly<Record<string, unknown>>

/** Deeper or wider than any header or payload of ours; printing it would take longer than reading it. */
const MOST_NESTED = 64

/** Says everything about a token; whatever the text, this is a value. */
export async function inspectToken(
  token: string,
  { verify, standing, now }: InspectOptions,
): Promise<Inspection> {
  const verified = await verify(token)
  const [header, claims] = hasTokenShape(token) ? token.split('.', 2).map(members) : []
  const exp = claims?.['exp']
  const sub = claims?.['sub']
  const clientId = claims?.['client_id']
  const namesCredential = typeof sub === 'string' && typeof clientId === 'string'
  return {
    verdict: verified.ok ? 'valid' : 'refused',
    reason: verified.ok ? null : verified.reason,
    explanation: explain(verified),
    kid: text(header?.['kid']),
    alg: text(header?.['alg']),
    timeLeftSeconds: Number.isSafeInteger(exp) ? Math.max(0, Math.ceil(Number(exp) - now() / 1000)) : null,
    credentialInForce: namesCredential ? standing(sub, clientId).inForce : null,
    header: header ?? null,
    claims: claims ?? null,
  }
}

function members(segment: string): Members | undefined {
  const bytes = Buffer.from(segment, 'base64url')
  const opened = bytes.reduce((count, byte) => count + (byte === 0x7b || byte === 0x5b ? 1 : 0), 0)
  if (opened > MOST_NESTED) return undefined
  const parsed = parseStrictJson(bytes)
  return parsed.ok && isJsonObject(parsed.value) ? parsed.value : undefined
}

function text(value: unknown): string | null {
  return typeof value === 'string' ? value : null
}

function explain(verified: Verified): string {
  if (verified.ok) return 'It is accepted.'
  const { reason, claim = 'payload' } = verified
  if (reason === 'claims') return `Its ${claim} is missing or not that of an access token for this service.`
  return EXPLANATIONS[reason]
}

const EXPLANATIONS: Readonly<Record<Exclude<RejectReason, 'claims'>, string>> = {
  missing: 'There is no token.',
  malformed: 'It is no compact JWS in canonical base64url, or its header is not one that we accept.',
  unknown_key: 'No key here has the kid it names, so nothing it says is proven.',
  algorithm: 'Its alg is not that of the key it names, so nothing it says is proven.',
  signature: 'The key it names did not sign it, so nothing it says is proven.',
  expired: 'It was good, and has run out.',
  revoked: 'The credential it was issued for is disabled, removed or expired.',
}
