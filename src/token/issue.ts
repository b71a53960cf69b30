/**
 * Signs access tokens (RFC 9068), links and assertions with the active key of the sidecar.
 * An assertion is an identity that an upstream can verify. In: a proven identity. Out: a compact JWS.
 */
import { randomUUID } from 'node:crypto'
import { SignJWT } from 'jose/jwt/sign'
import type { KeyRing } from '../keys/key-ring.ts'
import type { Assertions, Caller, Identity } from './caller.ts'
import { createLinkId, LINK_TYPE, type Link, withLinkParameter } from './links.ts'
import { MAX_TOKEN_BYTES } from './verify.ts'

/**
 * Returns the first whole second at which the lifetime has passed,
 * so that a client may be told the whole lifetime.
 */
const endOfLifetime = (nowSeconds: number, lifetimeSeconds: number) => Math.ceil(nowSeconds + lifetimeSeconds)

/** `host`: undefined if the link is bound to no host. */
type LinkRequest = Pick<Link, 'method' | 'target' | 'host'>

type IssueSettings = Readonly<{ issuer: string; audience: string; lifetimeSeconds: number }>

export class TokenSigner {
  readonly #ring: () => KeyRing
  readonly #settings: IssueSettings
  readonly #now: () => number

  constructor(ring: () => KeyRing, settings: IssueSettings, now: () => number) {
    this.#ring = ring
    this.#settings = settings
    this.#now = now
  }

  get canSign(): boolean {
    return this.#ring().signing !== undefined
  }

  /** @throws Error without a signing key, or if names and scope are too long for one token */
  async issueToken(
    { accountId, accessKey, scope }: Pick<Identity, 'accountId' | 'accessKey' | 'scope'>,
    lifetimeSeconds = this.#settings.lifetimeSeconds,
  ) {
    const nowSeconds = this.#now() / 1000
    const issuedAtSeconds = Math.floor(nowSeconds)
    const expiresAtSeconds = endOfLifetime(nowSeconds, lifetimeSeconds)
    const tokenId = randomUUID()
    const identity: Identity = { accountId, accessKey, tokenId, issuedAtSeconds, expiresAtSeconds, scope }
    const token = await this.#sign(identity, 'at+jwt')
    if (token.length > MAX_TOKEN_BYTES) {
      throw new Error('the names and the scope are too long for one token')
    }
    return { token, identity, lifetimeSeconds }
  }

  /**
   * Undefined if names and target are too long for one link.
   * A link ends with the token of its caller, or earlier.
   * @throws Error without a signing key
   */
  async issueLink({ identity, issuer }: Caller, request: LinkRequest, lifetimeSeconds: number) {
    const { method, target, host } = request
    const { tokenId: parent_jti, issuedAtSeconds: parent_iat } = identity
    const nowSeconds = this.#now() / 1000
    const expiresAtSeconds = Math.min(endOfLifetime(nowSeconds, lifetimeSeconds), identity.expiresAtSeconds)
    // The token of the caller may end within this second.
    const issuedAtSeconds = Math.min(Math.floor(nowSeconds), expiresAtSeconds - 1)
    const secondsLeft = Math.max(0, Math.floor(expiresAtSeconds - nowSeconds))
    const linkId = createLinkId(identity.accountId)
    const linked = { ...identity, tokenId: linkId, issuedAtSeconds, expiresAtSeconds }
    const claims = { method, target, host, parent_jti, parent_iat, parent_iss: issuer }
    const token = await this.#sign(linked, LINK_TYPE, claims)
    if (token.length > MAX_TOKEN_BYTES) {
      return undefined
    }
    return { url: withLinkParameter(target, token), linkId, lifetimeSeconds: secondsLeft }
  }

  /** Undefined without a signing key, or once the token has ended: no assertion outlives its token. */
  async signAssertions(identity: Identity, audiences: readonly string[], lifetimeSeconds: number) {
    const now = this.#now()
    const issuedAtSeconds = Math.floor(now / 1000)
    const expiresAtSeconds = Math.min(issuedAtSeconds + lifetimeSeconds, identity.expiresAtSeconds)
    const endsAtMs = expiresAtSeconds * 1000
    if (!this.canSign || endsAtMs <= now) {
      return undefined
    }
    const asserted = { ...identity, issuedAtSeconds, expiresAtSeconds }
    const signFor = async (aud: string) =>
      [aud, await this.#sign(asserted, 'upstream-assertion+jwt', { aud })] as const
    return {
      assertions: new Map(await Promise.all([...new Set(audiences)].map(signFor))),
      renewAtMs: expiresAtSeconds === identity.expiresAtSeconds ? endsAtMs : (now + endsAtMs) / 2,
    } satisfies Assertions
  }

  /**
   * `claims`: added to the claims of every token.
   * They replace claims of the same name.
   * @throws Error without a signing key
   */
  async #sign(
    { accountId, accessKey, tokenId, issuedAtSeconds, expiresAtSeconds, scope }: Identity,
    typ: string,
    claims: Readonly<Record<string, string | number | undefined>> = {},
  ): Promise<string> {
    const { signing } = this.#ring()
    if (signing?.signKey === undefined) {
      throw new Error('no signing key')
    }
    const { alg, kid, signKey } = signing
    const { issuer, audience } = this.#settings
    const scopeClaim = scope === undefined ? {} : { scope: scope.text }
    return new SignJWT({
      iss: issuer,
      aud: audience,
      sub: accountId,
      client_id: accessKey,
      jti: tokenId,
      iat: issuedAtSeconds,
      exp: expiresAtSeconds,
      ...scopeClaim,
      ...claims,
    })
      .setProtectedHeader({ alg, kid, typ })
      .sign(signKey)
  }
}
