/**
 * The issuers whose tokens `verify.ts` accepts: the sidecar, and the trusted issuers of the settings.
 * Each has its own keys and rules, which never mix (RFC 8725, section 3.8).
 */
import { hash } from 'node:crypto'
import type { JWTPayload } from 'jose'
import { failed, ok, type Result } from '../base/result.ts'
import { claimsProblem, nameProblem } from '../base/values.ts'
import type { FindKey } from '../keys/key-ring.ts'
import type { RemoteKeys } from '../keys/remote-keys.ts'
import type { Identity } from './caller.ts'
import { LINK_TYPE } from './links.ts'
import { parseScope } from './scopes.ts'

export interface TokenIssuer {
  /** The value of `iss`. */
  readonly name: string
  readonly audience: string
  /** Refuses a `kid` that the issuer does not have, and an `alg` other than that of the key. */
  readonly findKey: FindKey
  /**
   * The accepted values of `typ` in lower case (undefined: no `typ`), each with the maximum
   * of `exp - iat` in seconds.
   */
  readonly maxSecondsByType: ReadonlyMap<string | undefined, number>
  /** Whether `iat` and `exp` may have fractions of seconds. The sidecar issues whole seconds. */
  readonly allowsFractions: boolean
  /** Reads the caller from the claims of a verified token. `error`: the name of the invalid claim. */
  readonly readIdentity: (claims: JWTPayload, token: string) => Result<ClaimedIdentity>
  /**
   * Returns the status of the credential behind a token of the issuer,
   * or behind a link that such a token made.
   */
  readonly credentialStatus?: ((accountId: string, accessKey: string) => CredentialStatus) | undefined
}

type ClaimedIdentity = Omit<Identity, 'issuedAtSeconds' | 'expiresAtSeconds'>

export type CredentialStatus = ActiveCredential | InactiveCredential

interface ActiveCredential {
  readonly active: true
  /** When it expires. `Infinity`: never. */
  readonly endsAtMs: number
  /** What limits its tokens. */
  readonly scope?: string | null | undefined
}

interface InactiveCredential {
  readonly active: false
  readonly exists?: boolean
}

type Rules = Readonly<{ issuer: string; audience: string; maxLifetimeSeconds: number }>

interface IssuerSettings {
  readonly token: Rules
  readonly links: { readonly enabled: boolean; readonly maxLifetimeSeconds: number }
  readonly trustedIssuers: readonly TrustedIssuerSettings[]
}

/**
 * Returns the sidecar's own issuer, followed by the trusted ones.
 * @param credentials - undefined in a sidecar that only verifies
 */
export function createIssuers(
  { token, links, trustedIssuers }: IssuerSettings,
  findOwnKey: FindKey,
  keySets: readonly Pick<RemoteKeys, 'issuer' | 'findKey'>[],
  credentials?: Pick<TokenIssuer, 'credentialStatus'> & { hasAccount(accountId: string): boolean },
): readonly [TokenIssuer, ...TokenIssuer[]] {
  const isOwnAccount = (accountId: string) => credentials?.hasAccount(accountId) === true
  const trusted = trustedIssuers.map((entry) => {
    const keySet = keySets.find(({ issuer }) => issuer === entry.issuer)
    if (keySet === undefined) {
      throw new Error(`there is no key set of ${entry.issuer}`)
    }
    return trustedIssuer(entry, keySet.findKey, isOwnAccount)
  })
  return [ownIssuer(token, links, findOwnKey, credentials?.credentialStatus), ...trusted]
}

/** `TokenSigner` rounds `iat` down and `exp` up, so that a client has the whole lifetime. */
const ROUNDING_SECONDS = 1

function ownIssuer(
  { issuer, audience, maxLifetimeSeconds }: Rules,
  links: IssuerSettings['links'],
  findKey: FindKey,
  credentialStatus: TokenIssuer['credentialStatus'],
): TokenIssuer {
  const maxSecondsByType = new Map([['at+jwt', maxLifetimeSeconds + ROUNDING_SECONDS]])
  if (links.enabled) {
    maxSecondsByType.set(LINK_TYPE, links.maxLifetimeSeconds + ROUNDING_SECONDS)
  }
  return {
    name: issuer,
    audience,
    // The sidecar's own tokens have a `kid`. A key set would find a key for a token without `kid`, too.
    findKey: (kid, alg) => (kid === undefined ? failed('unknown_key') : findKey(kid, alg)),
    maxSecondsByType,
    allowsFractions: false,
    credentialStatus,
    readIdentity: readOwnIdentity,
  }
}

/** Returns the caller, or the name of the invalid claim. */
function readOwnIdentity({ sub, client_id, jti, scope }: JWTPayload): Result<ClaimedIdentity> {
  if (!isName(sub)) {
    return failed('sub')
  }
  if (!isName(client_id) || claimsProblem(sub, client_id) !== undefined) {
    return failed('client_id')
  }
  if (!isTokenId(jti)) {
    return failed('jti')
  }
  const identity = { accountId: sub, accessKey: client_id, tokenId: jti }
  if (scope === undefined) {
    return ok(identity)
  }
  const parsed = parseScope(typeof scope === 'string' ? scope : '')
  return parsed.ok ? ok({ ...identity, scope: parsed.value }) : failed('scope')
}

/** An entry of `trustedIssuers`. */
interface TrustedIssuerSettings extends Rules {
  readonly accessKeyClaim: string
  /** Maps each accepted access key to its account. */
  readonly accounts?: Readonly<Record<string, string>> | undefined
  /** Without `accounts`, the account of an access key is this prefix with the access key. */
  readonly accountPrefix?: string | undefined
  readonly requiredClaims: Readonly<Record<string, string | number | boolean>>
  readonly scope?: string | undefined
}

/**
 * The claim `scope` of other issuers has another meaning, and is not read.
 * Only `accounts` can name an own account.
 */
function trustedIssuer(
  entry: TrustedIssuerSettings,
  findKey: FindKey,
  isOwnAccount: (accountId: string) => boolean,
): TokenIssuer {
  const { issuer, audience, accessKeyClaim, accounts, accountPrefix, maxLifetimeSeconds } = entry
  const accountOf = (value: string): unknown => {
    if (accounts !== undefined) {
      return Object.hasOwn(accounts, value) ? accounts[value] : undefined
    }
    const accountId = `${accountPrefix}${value}`
    return isOwnAccount(accountId) ? undefined : accountId
  }
  return {
    name: issuer,
    audience,
    findKey,
    maxSecondsByType: new Map([undefined, 'jwt', 'at+jwt'].map((typ) => [typ, maxLifetimeSeconds])),
    allowsFractions: true,
    // A link may be older than the present settings.
    // It may do no more than a token of this issuer may do now.
    credentialStatus: (accountId, accessKey) =>
      accountOf(accessKey) === accountId
        ? { active: true, endsAtMs: Number.POSITIVE_INFINITY, scope: entry.scope }
        : { active: false },
    readIdentity(claims, token) {
      const missing = missingClaim(claims, entry.requiredClaims)
      if (missing !== undefined) {
        return failed(missing)
      }
      const accessKey = claims[accessKeyClaim]
      const accountId = isName(accessKey) ? accountOf(accessKey) : undefined
      if (!isName(accessKey) || !isName(accountId) || claimsProblem(accountId, accessKey) !== undefined) {
        return failed(accessKeyClaim)
      }
      const tokenId = claims.jti ?? claims['uti'] ?? hash('sha256', token, 'base64url')
      return isTokenId(tokenId) ? ok({ accountId, accessKey, tokenId }) : failed('jti')
    },
  }
}

/** Returns the name of the first claim that neither is nor lists its required value. */
function missingClaim(claims: JWTPayload, required: TrustedIssuerSettings['requiredClaims']) {
  for (const [name, value] of Object.entries(required)) {
    const claim = claims[name]
    const hasValue = Array.isArray(claim) ? claim.includes(value) : claim === value
    if (!hasValue) {
      return name
    }
  }
  return undefined
}

const isName = (name: unknown): name is string => typeof name === 'string' && nameProblem(name) === undefined

/** A token id has at most 256 UTF-16 units, because it becomes a header line of the forwarded request. */
const isTokenId = (value: unknown): value is string => isName(value) && value.length <= 256
