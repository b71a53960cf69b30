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

/** A time for each name, in epoch milliseconds. Tokens that were issued before this time are revoked. */
type Bounds = Map<string, number>

const boundOf = (bounds: Bounds, name: string) => bounds.get(name) ?? Number.NEGATIVE_INFINITY

export class RevocationList {
  size = 0
  /** The number of revocations of an account or an access key. */
  ofNames = 0
  /** Token ids by issuer, and those for all issuers under undefined. */
  readonly #tokens = new Map<string | undefined, Set<string>>()
  readonly #accounts: Bounds = new Map()
  readonly #accessKeys: Bounds = new Map()

  add({ jti, issuer, accountId, accessKey, issuedBeforeMs }: Revocation): void {
    this.size++
    const bound = issuedBeforeMs ?? Number.POSITIVE_INFINITY
    if (jti) {
      this.#addToken(jti, issuer ?? undefined)
    } else {
      this.ofNames++
    }
    if (accountId) {
      this.#accounts.set(accountId, Math.max(bound, boundOf(this.#accounts, accountId)))
    }
    if (accessKey) {
      this.#accessKeys.set(accessKey, Math.max(bound, boundOf(this.#accessKeys, accessKey)))
    }
  }

  /** Called for each hit of the token cache. */
  isRevoked({ tokenId, accountId, accessKey, issuedAtSeconds }: RevocableToken, issuer: string): boolean {
    const issuedAtMs = issuedAtSeconds * 1000
    return (
      this.#tokens.get(undefined)?.has(tokenId) === true ||
      this.#tokens.get(issuer)?.has(tokenId) === true ||
      issuedAtMs < boundOf(this.#accounts, accountId) ||
      issuedAtMs < boundOf(this.#accessKeys, accessKey)
    )
  }

  #addToken(tokenId: string, issuer: string | undefined): void {
    const ofIssuer = this.#tokens.get(issuer)
    if (ofIssuer === undefined) {
      this.#tokens.set(issuer, new Set([tokenId]))
    } else {
      ofIssuer.add(tokenId)
    }
  }
}

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
