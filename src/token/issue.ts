/**
 * Issues access tokens (RFC 9068), and signs assertions: identities that an upstream can verify.
 * In: the account and access key of a login, or the identity of a token. Out: a compact JWS signed by the active key.
 */
import { randomUUID } from 'node:crypto'
import { SignJWT } from 'jose/jwt/sign'
import { nameProblem } from '../credentials/names.ts'
import type { KeyRing, SigningKey } from '../keys/key-ring.ts'
import type { Caller, Identity } from './caller.ts'
import { createLinkId, LINK_TYPE, type LinkedRequest, withLinkParameter } from './links.ts'
import { MAX_TOKEN_BYTES } from './verify.ts'

interface SignerOptions {
  readonly keys: () => KeyRing
  readonly issuer: string
  /** The default of a token, or the maximum of an assertion, which ends with its token at the latest. */
  readonly lifetimeSeconds: number
  readonly now: () => number
}

/** What a login proves. */
export type LoginIdentity = Pick<Identity, 'accountId' | 'accessKey' | 'scope'>

/** `lifetime`: whole seconds. Rejects without a signing key, or if the verifier would refuse a name. */
export function createIssuer(options: SignerOptions & { readonly audience: string }) {
  const { keys, issuer, audience, lifetimeSeconds, now } = options
  return async ({ accountId, accessKey, scope }: LoginIdentity, lifetime = lifetimeSeconds) => {
    const { signing } = keys()
    if (signing === undefined) throw new Error('no signing key')
    const problem = nameProblem(accountId) ?? nameProblem(accessKey)
    if (problem !== undefined) throw new Error(`a name ${problem}`)
    const issuedAt = Math.floor(now() / 1000)
    const expiresAtSeconds = issuedAt + lifetime
    const identity: Identity = { accountId, accessKey, tokenId: randomUUID(), expiresAtSeconds, scope }
    const token = await sign(identity, 'at+jwt', issuedAt, signing, { issuer, audience })
    if (token.length > MAX_TOKEN_BYTES) throw new Error('the names and the scope are too long for one token')
    return { token, identity }
  }
}

/** `parent`: the token that asks. `lifetime`: whole seconds; a link ends with its parent at the latest. */
export type LinkIssuer = (
  parent: Pick<Caller, 'identity' | 'issuer'> & { readonly issuedAtSeconds: number },
  linked: LinkedRequest,
  lifetime: number,
) => Promise<{ readonly url: string; readonly linkId: string; readonly expiresAtSeconds: number } | undefined>

/** Resolves with undefined if the names and the target are too long for one link. Rejects without a signing key. */
export function createLinkIssuer(
  options: Omit<SignerOptions, 'lifetimeSeconds'> & { readonly audience: string },
): LinkIssuer {
  const { keys, issuer, audience, now } = options
  return async ({ identity: parent, ...made }, { method, target }, lifetime) => {
    const { signing } = keys()
    if (signing === undefined) throw new Error('no signing key')
    const issuedAt = Math.floor(now() / 1000)
    const expiresAtSeconds = Math.min(issuedAt + lifetime, parent.expiresAtSeconds)
    const linkId = createLinkId(parent.accountId)
    const identity: Identity = { ...parent, tokenId: linkId, expiresAtSeconds }
    const claims = {
      method,
      target,
      parent_jti: parent.tokenId,
      parent_iat: made.issuedAtSeconds,
      parent_iss: made.issuer,
    }
    const token = await sign(identity, LINK_TYPE, issuedAt, signing, { issuer, audience }, claims)
    if (token.length > MAX_TOKEN_BYTES) return undefined
    return { url: withLinkParameter(target, token), linkId, expiresAtSeconds }
  }
}

export interface Assertions {
  /** A compact JWS by audience; none without a signing key, and in the clock tolerance after the end of the token. */
  readonly assertions: ReadonlyMap<string, string>
  /** Epoch milliseconds: at half of its lifetime, or at its end when it ends with the token. */
  readonly renewAt: number
}

export const NO_ASSERTIONS: Assertions = { assertions: new Map(), renewAt: Number.POSITIVE_INFINITY }

export type SignAssertions = (identity: Identity) => Promise<Assertions>

/** `audiences`: each differs from that of access tokens, so that neither passes for the other. */
export function createAssertionSigner(
  options: SignerOptions & { readonly audiences: readonly string[] },
): SignAssertions {
  const { keys, issuer, lifetimeSeconds, now } = options
  const audiences = [...new Set(options.audiences)]
  return async (identity) => {
    const { signing } = keys()
    const time = now()
    const issuedAt = Math.floor(time / 1000)
    const expiresAtSeconds = Math.min(issuedAt + lifetimeSeconds, identity.expiresAtSeconds)
    const endsAt = expiresAtSeconds * 1000
    if (signing === undefined || endsAt <= time) return NO_ASSERTIONS
    const asserted = { ...identity, expiresAtSeconds }
    const signAs = (audience: string) =>
      sign(asserted, 'upstream-assertion+jwt', issuedAt, signing, { issuer, audience })
    const signed = await Promise.all(audiences.map(signAs))
    return {
      assertions: new Map(signed.map((assertion, at) => [String(audiences[at]), assertion])),
      renewAt: expiresAtSeconds === identity.expiresAtSeconds ? endsAt : (time + endsAt) / 2,
    }
  }
}

/** `issuedAt`: epoch seconds. */
function sign(
  { accountId, accessKey, tokenId, expiresAtSeconds, scope }: Identity,
  typ: string,
  issuedAt: number,
  { alg, kid, key }: SigningKey,
  { issuer, audience }: { readonly issuer: string; readonly audience: string },
  claims: Readonly<Record<string, string | number>> = {},
): Promise<string> {
  return new SignJWT({ client_id: accessKey, ...(scope !== undefined && { scope: scope.text }), ...claims })
    .setProtectedHeader({ alg, kid, typ })
    .setIssuer(issuer)
    .setAudience(audience)
    .setSubject(accountId)
    .setJti(tokenId)
    .setIssuedAt(issuedAt)
    .setExpirationTime(expiresAtSeconds)
    .sign(key)
}
