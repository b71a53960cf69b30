/** The list of revocations, and the parser of the YAML file. */
import { z } from 'zod'
import { addFingerprint, fingerprintOf, subtractFingerprint } from '../base/fingerprint.ts'
import { nameSchema, timeSchema } from '../base/values.ts'
import { type ListFormat, type Parse, parseList } from '../files/yaml-list.ts'
import type { RevocableToken } from '../token/caller.ts'
import { RevocationBounds } from './revocation-bounds.ts'

export interface Revocation {
  readonly jti?: string | null | undefined
  /** The issuer of the token that `jti` names. Without it, the tokens of all issuers are revoked. */
  readonly issuer?: string | null | undefined
  readonly accountId?: string | null | undefined
  readonly accessKey?: string | null | undefined
  /** Only tokens issued before this time (epoch) are revoked. Without a time, every token is. */
  readonly issuedBeforeMs?: number | null | undefined
  /** When the token that `jti` names ends (epoch), if the source of the revocation knows. */
  readonly expiresAtMs?: number | null | undefined
}

/**
 * `revocations remove` removes the revocations of one name. If those of more names vanish at once, it is
 * probably a mistake.
 */
export const MAX_REMOVED_BY_COMMAND = 1

/** Which tokens have ended, and need no revocation any more. */
export interface EndedTokens {
  readonly nowMs: number
  /** All that were issued before this time (epoch) have ended. */
  readonly issuedBeforeMs: number
}

export class RevocationList {
  /** A text that differs after every change of the file. Empty for rows of a database. */
  readonly version: string
  #size = 0
  #fingerprint = 0
  /**
   * For each issuer, the token ids and when their tokens end, in epoch seconds. Those for all issuers are
   * under undefined. A small integer takes no memory of its own.
   */
  readonly #tokens = new Map<string | undefined, Map<string, number>>()
  /** How many revocations a token id has beyond the first, by `tokenKey`. */
  readonly #repeats = new Map<string, number>()
  readonly #accounts = new RevocationBounds()
  readonly #accessKeys = new RevocationBounds()

  constructor(version = '') {
    this.version = version
  }

  get size(): number {
    return this.#size
  }

  /** Equal for lists of the same revocations, from a file or from tables. */
  get fingerprint(): number {
    return this.#fingerprint
  }

  add(revocation: Revocation): void {
    const { jti, issuer, accountId, accessKey, issuedBeforeMs, expiresAtMs } = revocation
    this.#size++
    this.#fingerprint = addFingerprint(this.#fingerprint, fingerprintOfRevocation(revocation))
    const bound = issuedBeforeMs ?? Number.POSITIVE_INFINITY
    if (jti) {
      this.#addToken(jti, issuer, expiresAtMs)
    }
    if (accountId) {
      this.#accounts.add(accountId, bound)
    }
    if (accessKey) {
      this.#accessKeys.add(accessKey, bound)
    }
  }

  /** Removes one revocation that was added with the same values. */
  remove(revocation: Revocation): void {
    const { jti, issuer, accountId, accessKey, issuedBeforeMs } = revocation
    this.#size--
    this.#fingerprint = subtractFingerprint(this.#fingerprint, fingerprintOfRevocation(revocation))
    const bound = issuedBeforeMs ?? Number.POSITIVE_INFINITY
    if (jti) {
      this.#removeToken(jti, issuer)
    }
    if (accountId) {
      this.#accounts.remove(accountId, bound)
    }
    if (accessKey) {
      this.#accessKeys.remove(accessKey, bound)
    }
  }

  /**
   * When the tokens of a revocation of this list end, in epoch milliseconds (`Infinity`: not known).
   * Undefined if the list does not have the revocation.
   */
  endOf({ jti, issuer, accountId, accessKey, issuedBeforeMs }: Revocation): number | undefined {
    if (jti) {
      const endsAtSeconds = this.#tokens.get(issuer ?? undefined)?.get(jti)
      return endsAtSeconds === undefined ? undefined : endsAtSeconds * 1000
    }
    const bound = issuedBeforeMs ?? Number.POSITIVE_INFINITY
    const isListed = accountId
      ? this.#accounts.has(accountId, bound)
      : this.#accessKeys.has(accessKey ?? '', bound)
    return isListed ? Number.POSITIVE_INFINITY : undefined
  }

  /** Those that differ in what they revoke, as they are at this moment: later changes add none. */
  all(): Iterable<Revocation> {
    const tokens = [...this.#tokens].map(([issuer, ends]) => ({ issuer, jtis: [...ends.keys()], ends }))
    return allOf([
      ...tokens.map(tokenRevocations),
      boundRevocations(this.#accounts.all(), (accountId) => ({ accountId })),
      boundRevocations(this.#accessKeys.all(), (accessKey) => ({ accessKey })),
    ])
  }

  /** Called for each hit of the token cache. */
  isRevoked({ tokenId, accountId, accessKey, issuedAtSeconds }: RevocableToken, issuer: string): boolean {
    const issuedAtMs = issuedAtSeconds * 1000
    return (
      this.#tokens.get(undefined)?.has(tokenId) === true ||
      this.#tokens.get(issuer)?.has(tokenId) === true ||
      isBefore(issuedAtMs, this.#accounts.latestOf(accountId)) ||
      isBefore(issuedAtMs, this.#accessKeys.latestOf(accessKey))
    )
  }

  /** Yields the revocations of this list that `other` lacks, and whose tokens have not all ended. */
  *lostIn(other: RevocationList, ended: EndedTokens): Generator<Revocation> {
    for (const revocation of this.names()) {
      if (this.isLostIn(other, revocation, ended)) {
        yield revocation
      }
    }
  }

  /** Whether `other` lacks a revocation of this list whose tokens have not all ended. */
  isLostIn(other: RevocationList, revocation: Revocation, ended: EndedTokens): boolean {
    return !this.hasEnded(revocation, ended) && !other.covers(revocation)
  }

  /** Whether all tokens of a revocation of this list have ended. */
  hasEnded(
    { jti, issuer, issuedBeforeMs }: Revocation,
    { nowMs, issuedBeforeMs: bound }: EndedTokens,
  ): boolean {
    if (jti) {
      const endsAtSeconds = this.#tokensOf(issuer).get(jti) ?? Number.POSITIVE_INFINITY
      return endsAtSeconds * 1000 <= nowMs
    }
    return (issuedBeforeMs ?? Number.POSITIVE_INFINITY) <= bound
  }

  /** Whether this list revokes every token that the revocation does. */
  covers({ jti, issuer, accountId, accessKey, issuedBeforeMs }: Revocation): boolean {
    const bound = issuedBeforeMs ?? Number.POSITIVE_INFINITY
    if (jti) {
      return this.#tokensOf(undefined).has(jti) || this.#tokensOf(issuer).has(jti)
    }
    const latest = accountId ? this.#accounts.latestOf(accountId) : this.#accessKeys.latestOf(accessKey ?? '')
    return latest !== undefined && latest >= bound
  }

  /** One revocation for each name. */
  *names(): Generator<Revocation> {
    for (const [issuer, tokens] of this.#tokens) {
      for (const jti of tokens.keys()) {
        yield { jti, issuer }
      }
    }
    for (const accountId of this.#accounts.names()) {
      yield { accountId, issuedBeforeMs: this.#accounts.latestOf(accountId) }
    }
    for (const accessKey of this.#accessKeys.names()) {
      yield { accessKey, issuedBeforeMs: this.#accessKeys.latestOf(accessKey) }
    }
  }

  #addToken(jti: string, issuer: string | null | undefined, expiresAtMs: number | null | undefined): void {
    const ofIssuer = this.#tokensOf(issuer)
    if (ofIssuer.has(jti)) {
      const key = tokenKey(jti, issuer)
      this.#repeats.set(key, (this.#repeats.get(key) ?? 0) + 1)
    }
    const endsAtSeconds = Math.ceil((expiresAtMs ?? Number.POSITIVE_INFINITY) / 1000)
    ofIssuer.set(jti, Math.max(endsAtSeconds, ofIssuer.get(jti) ?? 0))
  }

  #removeToken(jti: string, issuer: string | null | undefined): void {
    const key = tokenKey(jti, issuer)
    const repeats = this.#repeats.get(key)
    if (repeats === undefined) {
      this.#tokensOf(issuer).delete(jti)
    } else if (repeats === 1) {
      this.#repeats.delete(key)
    } else {
      this.#repeats.set(key, repeats - 1)
    }
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

/** Issuers and token ids hold no control characters. */
const tokenKey = (jti: string, issuer: string | null | undefined) => `${issuer ?? ''}\u0001${jti}`

function* allOf(lists: readonly Iterable<Revocation>[]): Generator<Revocation> {
  for (const list of lists) {
    yield* list
  }
}

function* tokenRevocations(tokens: {
  readonly issuer: string | undefined
  readonly jtis: readonly string[]
  readonly ends: ReadonlyMap<string, number>
}): Generator<Revocation> {
  for (const jti of tokens.jtis) {
    const endsAtSeconds = tokens.ends.get(jti) ?? Number.POSITIVE_INFINITY
    yield { jti, issuer: tokens.issuer, expiresAtMs: finite(endsAtSeconds * 1000) }
  }
}

function* boundRevocations(
  names: readonly (readonly [string, readonly number[]])[],
  target: (name: string) => Revocation,
): Generator<Revocation> {
  for (const [name, bounds] of names) {
    for (const bound of bounds) {
      yield { ...target(name), issuedBeforeMs: finite(bound) }
    }
  }
}

const finite = (time: number) => (time === Number.POSITIVE_INFINITY ? undefined : time)

function fingerprintOfRevocation({ jti, issuer, accountId, accessKey, issuedBeforeMs }: Revocation): number {
  const bound = issuedBeforeMs == null ? null : Math.round(issuedBeforeMs)
  return fingerprintOf(jti, issuer, accountId, accessKey, bound)
}

const isBefore = (issuedAtMs: number, boundMs: number | undefined): boolean =>
  boundMs !== undefined && issuedAtMs < boundMs

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
