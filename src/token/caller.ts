/** The caller of a request, proven by a token or a link, and its identity as headers. */
import { headerLines } from '../http/headers.ts'
import type { Link } from './links.ts'
import type { Scope } from './scopes.ts'

export interface Identity {
  readonly accountId: string
  readonly accessKey: string
  readonly tokenId: string
  readonly issuedAtSeconds: number
  readonly expiresAtSeconds: number
  /** What the token and its credential both allow. */
  readonly scope?: Scope | undefined
}

export interface Caller {
  readonly identity: Identity
  /** The headers of the identity as text, made once for each cached token. */
  readonly identityLines: string
  /** The issuer of the token, or of the token that made the link. */
  readonly issuer: string
  readonly link?: Link | undefined
  /** Undefined where the credential does not expire. */
  readonly credentialEndsAtMs?: number | undefined
  /** The token must be verified again: at its end (with the clock tolerance) at the latest. */
  readonly recheckAtMs: number
  /** By audience. */
  readonly assertions?: ReadonlyMap<string, string> | undefined
}

export function identityHeaders(identity: Identity, assertion?: string): string[] {
  const headers = [
    ...['X-Authenticated-Account-Id', encodeIdentityValue(identity.accountId)],
    ...['X-Authenticated-Access-Key', encodeIdentityValue(identity.accessKey)],
    ...['X-Authenticated-Token-Id', encodeIdentityValue(identity.tokenId)],
    ...['X-Authenticated-Token-Expires', String(identity.expiresAtSeconds)],
  ]
  if (identity.scope !== undefined) headers.push('X-Authenticated-Scope', identity.scope.text)
  if (assertion !== undefined) headers.push('X-Authenticated-Assertion', assertion)
  return headers
}

export function identityLines(identity: Identity): string {
  return flatCopy(headerLines(identityHeaders(identity)))
}

/** V8 keeps a slice with the whole text that it is cut from, and a concatenation as a tree. `text` is Latin-1. */
export function flatCopy(text: string): string {
  return Buffer.from(text, 'latin1').toString('latin1')
}

/** Encoding `%` and every character outside `!` to `~` is reversible, and no value can inject a line. */
export function encodeIdentityValue(value: string): string {
  return value.toWellFormed().replace(/[^!-$&-~]/gu, encodeURIComponent)
}
