/** Tokens for tests: good ones, and any kind of odd one. */
import { createHmac, randomUUID, webcrypto } from 'node:crypto'
import type { JWK } from 'jose'
import { headerText } from '../../src/http/headers.ts'
import type { Algorithm } from '../../src/keys/key-ring.ts'
import { type Caller, type Identity, identityHeaders, type VerifiedToken } from '../../src/token/caller.ts'
import type { TestKey } from './keys.ts'

/** What issuer and audience of test tokens are, as in the default settings. */
export const ISSUER = 'storage-account-api'
export const AUDIENCE = 'storage-api'

/** How a token is to differ from a good one. */
export interface MintOptions {
  /** Signs the token; its kid and alg go into the header. */
  readonly key: Pick<TestKey, 'kid' | 'alg' | 'privateJwk'>
  /** Epoch milliseconds; default the real time. `iat` is its second. */
  readonly now?: number
  readonly lifetimeSeconds?: number
  /** Laid over the header; `undefined` removes a parameter. */
  readonly header?: Readonly<Record<string, unknown>>
  /** Instead of the header: any text or bytes. */
  readonly headerText?: string | Uint8Array
  /** Laid over the claims; `undefined` removes a claim. */
  readonly claims?: Readonly<Record<string, unknown>>
  /** Instead of the claims: any text or bytes. */
  readonly claimsText?: string | Uint8Array
  /** Instead of the key's signature: HMAC-SHA256 with these bytes. */
  readonly hmacSecret?: string | Uint8Array
  /** Instead of any signature: this third segment. */
  readonly signature?: string
}

/** The claims of a good token. */
export function goodClaims({ now = Date.now(), lifetimeSeconds = 3600 }: Partial<MintOptions> = {}) {
  const iat = Math.floor(now / 1000)
  return {
    iss: ISSUER,
    aud: AUDIENCE,
    sub: 'acme',
    client_id: 'AKTEST',
    jti: randomUUID(),
    iat,
    exp: iat + lifetimeSeconds,
  }
}

/** What a token of `acme` proves, but for the changes. */
export function makeVerifiedToken(changes: Partial<Identity> = {}, validUntilMs = Infinity): VerifiedToken {
  const times = { issuedAtSeconds: 1_000_000_000, expiresAtSeconds: 2_000_000_000 }
  const identity = { accountId: 'acme', accessKey: 'AK', tokenId: 'token-1', ...times, ...changes }
  return { identity, issuer: 'us', link: undefined, validUntilMs }
}

export function makeCaller(): Caller {
  const verified = makeVerifiedToken()
  const identityLines = headerText(identityHeaders(verified.identity))
  return { ...verified, identityLines, assertions: undefined, recheckAtMs: verified.validUntilMs }
}

/** Mints a token: a good one for the key, but for what the options say. Nothing is checked. */
export async function mintToken(options: MintOptions): Promise<string> {
  const { key, header, headerText, claims, claimsText, hmacSecret } = options
  const parameters = { alg: key.alg, kid: key.kid, typ: 'at+jwt', ...header }
  const first = segment(headerText ?? JSON.stringify(parameters))
  const second = segment(claimsText ?? JSON.stringify({ ...goodClaims(options), ...claims }))
  const input = `${first}.${second}`
  if (options.signature !== undefined) {
    return `${input}.${options.signature}`
  }
  if (hmacSecret !== undefined) {
    return `${input}.${createHmac('sha256', hmacSecret).update(input).digest('base64url')}`
  }
  return `${input}.${await sign(key.alg, key.privateJwk, input)}`
}

/** Base64url of a text or of bytes, as it stands in a token. */
export function segment(content: string | Uint8Array): string {
  return Buffer.from(content).toString('base64url')
}

/** Every other spelling of one token that a lenient decoder takes for the same. */
export function respellings(token: string): readonly (readonly [name: string, token: string])[] {
  const [header = '', payload = '', signature = ''] = token.split('.')
  return [
    ['a space before it', ` ${token}`],
    ['a space after it', `${token} `],
    ['a tab in the signature', `${header}.${payload}.${signature.slice(0, 9)}\t${signature.slice(9)}`],
    ['a space in the payload', `${header}.${payload.slice(0, 9)} ${payload.slice(9)}.${signature}`],
    ['a line end after it', `${token}\n`],
    ['padding', `${token}=`],
    ['more padding', `${token}==`],
    ['padding in the header', `${header}=.${payload}.${signature}`],
    ['the other alphabet', `${header}.${payload}.+${signature.slice(1)}`],
    ['trailing bits', `${header}.${payload}.${withTrailingBits(signature)}`],
    ['trailing bits in the header', `${withTrailingBits(header)}.${payload}.${signature}`],
  ]
}

/** Sets bits that carry nothing in the last character, or adds a character that does not fill a byte. */
function withTrailingBits(text: string): string {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
  if (text.length % 4 === 0) {
    return `${text}A`
  }
  return text.slice(0, -1) + alphabet[alphabet.indexOf(text.slice(-1)) + 1]
}

/** Signing by WebCrypto itself, since jose refuses to sign much of what a test needs. */
async function sign(alg: Algorithm, jwk: JWK, input: string): Promise<string> {
  const { kid: _kid, alg: _alg, use: _use, ...members } = jwk
  const name = {
    ES256: 'ECDSA',
    ES384: 'ECDSA',
    EdDSA: 'Ed25519',
    RS256: 'RSASSA-PKCS1-v1_5',
    PS256: 'RSA-PSS',
    HS256: 'HMAC',
  }[alg]
  const hash = alg === 'ES384' ? 'SHA-384' : 'SHA-256'
  const imported = { name, hash, ...(members.crv !== undefined && { namedCurve: members.crv }) }
  const key = await webcrypto.subtle.importKey('jwk', members as webcrypto.JsonWebKey, imported, false, [
    'sign',
  ])
  const signature = await webcrypto.subtle.sign({ name, hash, saltLength: 32 }, key, Buffer.from(input))
  return Buffer.from(signature).toString('base64url')
}
