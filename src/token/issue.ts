/**
 * Issues tokens.
 *
 * In: the account and access key that logged in. Out: a compact JWS with the claims of RFC 9068, signed by
 * the key that signs now, which our own verifier accepts until it expires. No two tokens are alike.
 *
 * @module
 */
import { randomUUID } from 'node:crypto'
import { SignJWT } from 'jose'
import type { KeyRing } from '../keys/key-ring.ts'
import { nameProblem } from '../names.ts'
import { MOST_TOKEN_BYTES } from './shape.ts'
import type { Identity } from './verdict.ts'

/** What an issuer works with. */
export interface IssuerOptions {
  /** The keys in force. */
  readonly keys: () => KeyRing
  /** Claim `iss`. */
  readonly issuer: string
  /** Claim `aud`. */
  readonly audience: string
  /** How long a token lives when nothing else is asked for. */
  readonly lifetimeSeconds: number
  /** The clock, in epoch milliseconds. */
  readonly now: () => number
}

/** Whom a token is for. */
export interface Subject {
  readonly accountId: string
  readonly accessKey: string
}

/** A new token, and what it says. */
export interface IssuedToken {
  readonly token: string
  readonly identity: Identity
}

/** There is no signing key: this sidecar verifies only. */
export class NoSigningKeyError extends Error {
  override readonly name = 'NoSigningKeyError'
}

/** The subject cannot be put into a token that a verifier would accept. */
export class UnfitSubjectError extends Error {
  override readonly name = 'UnfitSubjectError'
}

/** Issues one token, living `lifetimeSeconds` (whole seconds) or as long as is usual. */
export type Issue = (subject: Subject, lifetimeSeconds?: number) => Promise<IssuedToken>

/**
 * Makes an issuer.
 *
 * @returns a function that rejects with {@link NoSigningKeyError}, or with {@link UnfitSubjectError} when a
 *   name is empty, too long or holds control characters
 */
export function createIssuer({ keys, issuer, audience, lifetimeSeconds, now }: IssuerOptions): Issue {
  return async function issue({ accountId, accessKey }, lifetime = lifetimeSeconds) {
    const { signing } = keys()
    if (signing === undefined) throw new NoSigningKeyError('no signing key')
    checkName('account id', accountId)
    checkName('access key', accessKey)
    const issuedAt = Math.floor(now() / 1000)
    const identity: Identity = { accountId, accessKey, tokenId: randomUUID(), expiresAt: issuedAt + lifetime }
    const token = await new SignJWT({ client_id: accessKey })
      .setProtectedHeader({ alg: signing.alg, kid: signing.kid, typ: 'at+jwt' })
      .setIssuer(issuer)
      .setAudience(audience)
      .setSubject(accountId)
      .setJti(identity.tokenId)
      .setIssuedAt(issuedAt)
      .setExpirationTime(identity.expiresAt)
      .sign(signing.key)
    // Two long names in a script of many bytes: better no token than one that is refused everywhere.
    if (token.length > MOST_TOKEN_BYTES) throw new UnfitSubjectError('the names are too long for one token')
    return { token, identity }
  }
}

function checkName(what: string, name: string): void {
  const problem = nameProblem(name)
  if (problem !== undefined) throw new UnfitSubjectError(`the ${what} ${problem}`)
}
