/**
 * Signs what the sidecar issues with its active key: access tokens (RFC 9068), links, and assertions, which are identities
 * that an upstream can verify. In: a proven identity. Out: a compact JWS.
 */
import { randomUUID } from 'node:crypto'
import { SignJWT } from 'jose/jwt/sign'
import type { KeyRing } from '../keys/key-ring.ts'
import { nameProblem } from '../values/names.ts'
import type { Caller, Identity } from './caller.ts'
import { createLinkId, LINK_TYPE, type LinkedRequest, withLinkParameter } from './links.ts'
import { MAX_TOKEN_BYTES } from './verify.ts'

/** What a login proves. */
export type LoginIdentity = Pick<Identity, 'accountId' | 'accessKey' | 'scope'>

export interface Assertions {
  /** Compact JWSs by audience. */
  readonly assertions: ReadonlyMap<string, string>
  /** Epoch milliseconds: at half of its lifetime, or at its end when it ends with the token. */
  readonly renewAt: number
}

interface TokenSettings {
  readonly issuer: string
  readonly audience: string
  readonly lifetimeSeconds: number
}

export class TokenSigner {
  readonly #keys: () => KeyRing
  readonly #settings: TokenSettings
  readonly #now: () => number

  /** `now`: epoch milliseconds. */
  constructor(keys: () => KeyRing, settings: TokenSettings, now: () => number) {
    this.#keys = keys
    this.#settings = settings
    this.#now = now
  }

  /** Whether there is a signing key. */
  get canSign(): boolean {
    return this.#keys().signing !== undefined
  }

  /** `lifetime`: whole seconds. Rejects without a signing key, or if the verifier would refuse a name. */
  async issueToken(login: LoginIdentity, lifetime = this.#settings.lifetimeSeconds) {
    const problem = nameProblem(login.accountId) ?? nameProblem(login.accessKey)
    if (problem !== undefined) throw new Error(`a name ${problem}`)
    const { accountId, accessKey, scope } = login
    const issuedAt = Math.floor(this.#now() / 1000)
    const expiresAtSeconds = issuedAt + lifetime
    const identity: Identity = { accountId, accessKey, tokenId: randomUUID(), expiresAtSeconds, scope }
    const token = await this.#sign(identity, 'at+jwt', issuedAt)
    if (token.length > MAX_TOKEN_BYTES) throw new Error('the names and the scope are too long for one token')
    return { token, identity }
  }

  /**
   * `parent`: the token that asks. `lifetime`: whole seconds; a link ends with its parent at the latest. Resolves with
   * undefined if the names and the target are too long for one link. Rejects without a signing key.
   */
  async issueLink(
    parent: Pick<Caller, 'identity' | 'issuer'> & { readonly issuedAtSeconds: number },
    { method, target }: LinkedRequest,
    lifetime: number,
  ) {
    const { identity, issuer, issuedAtSeconds } = parent
    const issuedAt = Math.floor(this.#now() / 1000)
    const expiresAtSeconds = Math.min(issuedAt + lifetime, identity.expiresAtSeconds)
    const linkId = createLinkId(identity.accountId)
    const parentClaims = { parent_jti: identity.tokenId, parent_iat: issuedAtSeconds, parent_iss: issuer }
    const linked = { ...identity, tokenId: linkId, expiresAtSeconds }
    const token = await this.#sign(linked, LINK_TYPE, issuedAt, { method, target, ...parentClaims })
    if (token.length > MAX_TOKEN_BYTES) return undefined
    return { url: withLinkParameter(target, token), linkId, expiresAtSeconds }
  }

  /**
   * Signs an identity for each audience. An assertion ends with its token at the latest: in the clock tolerance after
   * that, and without a signing key, there is none.
   * @param audiences - none is that of access tokens, so that an assertion never passes for one
   */
  async signAssertions(
    identity: Identity,
    audiences: readonly string[],
    lifetime: number,
  ): Promise<Assertions | undefined> {
    const now = this.#now()
    const issuedAt = Math.floor(now / 1000)
    const expiresAtSeconds = Math.min(issuedAt + lifetime, identity.expiresAtSeconds)
    const endsAt = expiresAtSeconds * 1000
    if (!this.canSign || endsAt <= now) return undefined
    const asserted = { ...identity, expiresAtSeconds }
    const signFor = async (aud: string) =>
      [aud, await this.#sign(asserted, 'upstream-assertion+jwt', issuedAt, { aud })] as const
    return {
      assertions: new Map(await Promise.all([...new Set(audiences)].map(signFor))),
      renewAt: expiresAtSeconds === identity.expiresAtSeconds ? endsAt : (now + endsAt) / 2,
    }
  }

  /** `issuedAt`: epoch seconds. `claims`: beside those of every token, or in their place. */
  async #sign(
    { accountId, accessKey, tokenId, expiresAtSeconds, scope }: Identity,
    typ: string,
    issuedAt: number,
    claims: Readonly<Record<string, string | number>> = {},
  ): Promise<string> {
    const { signing } = this.#keys()
    if (signing === undefined) throw new Error('no signing key')
    const { alg, kid, key } = signing
    const { issuer, audience } = this.#settings
    return new SignJWT({
      iss: issuer,
      aud: audience,
      sub: accountId,
      client_id: accessKey,
      jti: tokenId,
      iat: issuedAt,
      exp: expiresAtSeconds,
      ...(scope !== undefined && { scope: scope.text }),
      ...claims,
    })
      .setProtectedHeader({ alg, kid, typ })
      .sign(key)
  }
}
