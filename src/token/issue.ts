/**
 * Issues access tokens (RFC 9068).
 * In: the account and access key of a login. Out: a compact JWS signed by the active key.
 */
import { randomUUID } from 'node:crypto'
import { SignJWT } from 'jose/jwt/sign'
import type { CredentialName } from '../credentials/credential.ts'
import { nameProblem } from '../credentials/names.ts'
import type { KeyRing, SigningKey } from '../keys/key-ring.ts'
import type { Identity } from './verdict.ts'
import { MAX_TOKEN_BYTES } from './verify.ts'

export interface IssuerOptions {
  readonly keys: () => KeyRing
  /** Claim `iss`. */
  readonly issuer: string
  /** Claim `aud`. */
  readonly audience: string
  /** The default lifetime of a token. */
  readonly lifetimeSeconds: number
  /** The clock, in epoch milliseconds. */
  readonly now: () => number
}

/** A new token and its identity. */
export interface IssuedToken {
  readonly token: string
  readonly identity: Identity
}

/** Issues one token with a lifetime in whole seconds. No two tokens are equal. */
export type Issue = (name: CredentialName, lifetimeSeconds?: number) => Promise<IssuedToken>

/**
 * Creates an issuer.
 *
 * @returns a function that rejects when there is no signing key, or when the verifier would refuse a name
 */
export function createIssuer({ keys, issuer, audience, lifetimeSeconds, now }: IssuerOptions): Issue {
  return async ({ accountId, accessKey }, lifetime = lifetimeSeconds) => {
    const { signing } = keys()
    if (signing === undefined) throw new Error('no signing key')
    checkName('account id', accountId)
    checkName('access key', accessKey)
    const issuedAt = Math.floor(now() / 1000)
    const identity: Identity = { accountId, accessKey, tokenId: randomUUID(), expiresAt: issuedAt + lifetime }
    const token = await signIdentity(identity, { signing, typ: 'at+jwt', issuer, audience, issuedAt })
    if (token.length > MAX_TOKEN_BYTES) throw new Error('the names are too long for one token')
    return { token, identity }
  }
}

/** Key, type and claims of a signed identity; `issuedAt` and `expiresAt` in epoch seconds. */
export interface SignedForm {
  readonly signing: SigningKey
  readonly typ: string
  readonly issuer: string
  readonly audience: string
  readonly issuedAt: number
  /** Default: the end of the identity's token. */
  readonly expiresAt?: number
}

/** Signs an identity as a compact JWS. */
export function signIdentity(
  { accountId, accessKey, tokenId, expiresAt }: Identity,
  { signing, typ, issuer, audience, issuedAt, ...form }: SignedForm,
): Promise<string> {
  return new SignJWT({ client_id: accessKey })
    .setProtectedHeader({ alg: signing.alg, kid: signing.kid, typ })
    .setIssuer(issuer)
    .setAudience(audience)
    .setSubject(accountId)
    .setJti(tokenId)
    .setIssuedAt(issuedAt)
    .setExpirationTime(form.expiresAt ?? expiresAt)
    .sign(signing.key)
}

function checkName(field: string, name: string): void {
  const problem = nameProblem(name)
  if (problem !== undefined) throw new Error(`the ${field} ${problem}`)
}
