/** The list of revocations, and the parser of the YAML file. */
import { z } from 'zod'
import { nameSchema, timeSchema } from '../base/values.ts'
import { type ListFormat, type Parse, parseList } from '../files/yaml-list.ts'
import type { RevocableToken } from '../token/caller.ts'

export interface Revocation {
  readonly jti?: string | null | undefined
  /** The issuer of the token that `jti` names. Without it, the tokens of all issuers are revoked. */
  readonly issuer?: string | null | undefined
  readonly accountId?: string | null | undefined
  readonly accessKey?: string | null | undefined
  /** Only tokens issued before this time (epoch) are revoked. Without a time, every token is. */
  readonly issuedBeforeMs?: number | null | undefined
}

/**
 * The times of the revocations of a name, in epoch milliseconds.
 * Tokens that were issued before one of them are revoked.
 */
type Bounds = Map<string, number[]>

export class RevocationList {
  #size = 0
  /** For each issuer, how many revocations a token id has. Those for all issuers are under undefined. */
  readonly #tokens = new Map<string | undefined, Map<string, number>>()
  readonly #accounts: Bounds = new Map()
  readonly #accessKeys: Bounds = new Map()

  get size(): number {
    return this.#size
  }

  add({ jti, issuer, accountId, accessKey, issuedBeforeMs }: Revocation): void {
    this.#size++
    const bound = issuedBeforeMs ?? Number.POSITIVE_INFINITY
    if (jti) {
      const ofIssuer = this.#tokensOf(issuer)
      ofIssuer.set(jti, (ofIssuer.get(jti) ?? 0) + 1)
    }
    if (accountId) {
      addBound(this.#accounts, accountId, bound)
    }
    if (accessKey) {
      addBound(this.#accessKeys, accessKey, bound)
    }
  }

  /** Removes one revocation that was added with the same values. */
  remove({ jti, issuer, accountId, accessKey, issuedBeforeMs }: Revocation): void {
    this.#size--
    const bound = issuedBeforeMs ?? Number.POSITIVE_INFINITY
    if (jti) {
      const ofIssuer = this.#tokensOf(issuer)
      const count = ofIssuer.get(jti) ?? 0
      if (count > 1) {
        ofIssuer.set(jti, count - 1)
      } else {
        ofIssuer.delete(jti)
      }
    }
    if (accountId) {
      removeBound(this.#accounts, accountId, bound)
    }
    if (accessKey) {
      removeBound(this.#accessKeys, accessKey, bound)
    }
  }

  /** Called for each hit of the token cache. */
  isRevoked({ tokenId, accountId, accessKey, issuedAtSeconds }: RevocableToken, issuer: string): boolean {
    const issuedAtMs = issuedAtSeconds * 1000
    return (
      this.#tokens.get(undefined)?.has(tokenId) === true ||
      this.#tokens.get(issuer)?.has(tokenId) === true ||
      isBefore(issuedAtMs, this.#accounts.get(accountId)) ||
      isBefore(issuedAtMs, this.#accessKeys.get(accessKey))
    )
  }

  /**
   * Returns how many names of this list `other` lacks.
   * @param endedBeforeMs - bounds before it cover only tokens that have ended
   */
  lostIn(other: RevocationList, endedBeforeMs: number): number {
    const lostAccounts = lostBounds(this.#accounts, other.#accounts, endedBeforeMs)
    let lost = lostAccounts + lostBounds(this.#accessKeys, other.#accessKeys, endedBeforeMs)
    for (const [issuer, tokenIds] of this.#tokens) {
      const others = other.#tokens.get(issuer)
      for (const tokenId of tokenIds.keys()) {
        lost += Number(others?.has(tokenId) !== true)
      }
    }
    return lost
  }

  #tokensOf(issuer: string | null | undefined): Map<string, number> {
    const key = issuer ?? undefined
    const known = this.#tokens.get(key)
    if (known !== undefined) {
      return known
    }
    const tokens = new Map<string, number>()
    this.#tokens.set(key, tokens)
    return tokens
  }
}

function lostBounds(own: Bounds, others: Bounds, endedBeforeMs: number): number {
  let lost = 0
  for (const [name, bounds] of own) {
    const latest = bounds.at(-1) ?? Number.NEGATIVE_INFINITY
    const latestOfOther = others.get(name)?.at(-1) ?? Number.NEGATIVE_INFINITY
    lost += Number(latest > endedBeforeMs && latestOfOther < latest)
  }
  return lost
}

/** Keeps the latest time last. */
function addBound(bounds: Bounds, name: string, bound: number): void {
  const ofName = bounds.get(name) ?? []
  bounds.set(
    name,
    [...ofName, bound].sort((a, b) => a - b),
  )
}

function removeBound(bounds: Bounds, name: string, bound: number): void {
  const ofName = bounds.get(name) ?? []
  const at = ofName.indexOf(bound)
  const rest = ofName.filter((_, index) => index !== at)
  if (rest.length > 0) {
    bounds.set(name, rest)
  } else {
    bounds.delete(name)
  }
}

const isBefore = (issuedAtMs: number, bounds: readonly number[] | undefined): boolean =>
  bounds !== undefined && issuedAtMs < (bounds.at(-1) ?? Number.NEGATIVE_INFINITY)

const NO_ENTRIES = 'without entries, write `revocations: []`'
const revocationSchema = z
  .strictObject(
    {
      jti: nameSchema.optional(),
      issuer: nameSchema.optional(),
      accountId: nameSchema.optional(),
      accessKey: nameSchema.optional(),
      issuedBefore: timeSchema.optional(),
    },
    'must be a map with one of jti, accountId and accessKey',
  )
  .superRefine(({ jti, issuer, accountId, accessKey, issuedBefore }, context) => {
    const names = [jti, accountId, accessKey].filter((given) => given !== undefined)
    if (names.length !== 1) {
      context.addIssue('must have exactly one of jti, accountId and accessKey')
    }
    if (jti !== undefined && issuedBefore !== undefined) {
      context.addIssue({ code: 'custom', path: ['issuedBefore'], message: 'cannot be combined with jti' })
    }
    if (issuer !== undefined && jti === undefined) {
      context.addIssue({ code: 'custom', path: ['issuer'], message: 'needs jti' })
    }
  })
const fileSchema = z
  .strictObject(
    { revocations: z.array(revocationSchema, `must be a list; ${NO_ENTRIES}`) },
    `must be a map with the one member revocations; ${NO_ENTRIES}`,
  )
  .transform(({ revocations }) =>
    revocations.map(({ issuedBefore: issuedBeforeMs, ...name }) => ({ ...name, issuedBeforeMs })),
  )

export const REVOCATIONS_FORMAT: ListFormat<Revocation> = {
  member: 'revocations',
  createSchema: () => fileSchema,
}

export const parseRevocations: Parse<Revocation> = (bytes) => parseList(bytes, REVOCATIONS_FORMAT)
