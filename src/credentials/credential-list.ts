/** The list of credentials, and the parser of the YAML file. Problems quote no value: it may be a secret. */
import { createHmac } from 'node:crypto'
import { z } from 'zod'
import { addFingerprint, fingerprintOf, subtractFingerprint } from '../base/fingerprint.ts'
import { boolean, checkedText, claimsProblem, must, nameSchema, timeSchema } from '../base/values.ts'
import { type ListFormat, type Parse, parseList } from '../files/yaml-list.ts'
import { scopeProblem } from '../token/scopes.ts'
import { scryptPrefixOf, secretHashProblem } from './secret-hash.ts'

export type CredentialName = Readonly<{ accountId: string; accessKey: string }>

export interface Credential extends CredentialName {
  readonly secretHash: string
  /**
   * The hash of the secret before the last rotation, which still logs in until `previousSecretExpiresAtMs`.
   */
  readonly previousSecretHash?: string | null | undefined
  readonly previousSecretExpiresAtMs?: number | null | undefined
  readonly expiresAtMs: number
  readonly disabled: boolean
  /** The text of a scope. Undefined, or null from PostgreSQL, means unrestricted. */
  readonly scope?: string | null | undefined
}

export class CredentialList {
  /** A text that differs after every change of the file. Empty for rows of a database. */
  readonly version: string
  /** How many credentials each account has. */
  readonly #accounts = new Map<string, number>()
  #size = 0
  /** Those whose access key no other account has: nearly all. */
  readonly #byAccessKey = new Map<string, Credential>()
  /** The others, by access key and account. */
  readonly #sharing = new Map<string, Map<string, Credential>>()
  /** How many hashes have each set of parameters. */
  readonly #scryptParameters = new Map<string, number>()
  /** The seed of `scryptParametersFor`: unknown to clients, equal in all processes, and rarely replaced. */
  #smallestScryptHash: string | undefined
  #fingerprint = 0

  constructor(version = '') {
    this.version = version
  }

  /** Replaces the credential of the same name, if there is one. */
  add(credential: Credential): void {
    this.remove(credential)
    increase(this.#accounts, credential.accountId, 1)
    this.#size++
    this.#addToMaps(credential)
    for (const hash of hashesOf(credential)) {
      this.#addHash(hash)
    }
    this.#fingerprint = addFingerprint(this.#fingerprint, fingerprintOfCredential(credential))
  }

  /** Does nothing if there is no such credential. */
  remove(name: CredentialName): void {
    const credential = this.find(name)
    if (credential === undefined) {
      return
    }
    increase(this.#accounts, credential.accountId, -1)
    this.#size--
    this.#removeFromMaps(credential)
    for (const hash of hashesOf(credential)) {
      this.#removeHash(hash)
    }
    this.#fingerprint = subtractFingerprint(this.#fingerprint, fingerprintOfCredential(credential))
  }

  /** Equal for lists of the same credentials, from a file or from tables. */
  get fingerprint(): number {
    return this.#fingerprint
  }

  #addToMaps(credential: Credential): void {
    const { accountId, accessKey } = credential
    const sharing = this.#sharing.get(accessKey)
    const other = this.#byAccessKey.get(accessKey)
    if (sharing !== undefined) {
      sharing.set(accountId, credential)
    } else if (other !== undefined) {
      this.#byAccessKey.delete(accessKey)
      const both = new Map([[other.accountId, other]])
      this.#sharing.set(accessKey, both.set(accountId, credential))
    } else {
      this.#byAccessKey.set(accessKey, credential)
    }
  }

  #removeFromMaps({ accountId, accessKey }: CredentialName): void {
    this.#byAccessKey.delete(accessKey)
    const sharing = this.#sharing.get(accessKey)
    if (sharing === undefined) {
      return
    }
    sharing.delete(accountId)
    const [left, other] = sharing.values()
    if (left !== undefined && other === undefined) {
      this.#sharing.delete(accessKey)
      this.#byAccessKey.set(accessKey, left)
    }
  }

  #addHash(secretHash: string): void {
    const prefix = scryptPrefixOf(secretHash)
    if (prefix === undefined) {
      return
    }
    increase(this.#scryptParameters, prefix, 1)
    const smallest = this.#smallestScryptHash
    if (smallest === undefined || secretHash < smallest) {
      this.#smallestScryptHash = secretHash
    }
  }

  /** The credential of the hash must be gone. */
  #removeHash(secretHash: string): void {
    const prefix = scryptPrefixOf(secretHash)
    if (prefix === undefined) {
      return
    }
    increase(this.#scryptParameters, prefix, -1)
    if (secretHash === this.#smallestScryptHash) {
      this.#smallestScryptHash = smallestScryptHash(this.all())
    }
  }

  get size(): number {
    return this.#size
  }

  /** The credentials at this moment: later changes of the list do not change the array. */
  all(): readonly Credential[] {
    const others = [...this.#sharing.values()].flatMap((sharing) => [...sharing.values()])
    return [...this.#byAccessKey.values(), ...others]
  }

  countActive(now: number): number {
    let count = countActiveIn(this.#byAccessKey, now)
    for (const sharing of this.#sharing.values()) {
      count += countActiveIn(sharing, now)
    }
    return count
  }

  hasAccount(accountId: string): boolean {
    return this.#accounts.has(accountId)
  }

  find({ accountId, accessKey }: CredentialName): Credential | undefined {
    const single = this.#byAccessKey.get(accessKey)
    if (single !== undefined) {
      return single.accountId === accountId ? single : undefined
    }
    return this.#sharing.get(accessKey)?.get(accountId)
  }

  /** Returns undefined if no account has the access key, or several have. */
  findByAccessKey(accessKey: string): Credential | undefined {
    return this.#byAccessKey.get(accessKey)
  }

  /**
   * Chooses parameters, such as `$scrypt$ln=14,r=8,p=5`, for the scrypt run of a login without
   * a scrypt hash. A fixed choice, or one that differs between attempts or workers, would
   * reveal some accounts by the time of a login.
   */
  scryptParametersFor(name: CredentialName): string | undefined {
    if (this.#smallestScryptHash === undefined) {
      return undefined
    }
    const digest = createHmac('sha256', this.#smallestScryptHash).update(keyOf(name)).digest().readUInt32BE()
    return [...this.#scryptParameters.keys()].sort()[digest % this.#scryptParameters.size]
  }
}

function increase(counts: Map<string, number>, key: string, by: 1 | -1): void {
  const count = (counts.get(key) ?? 0) + by
  if (count > 0) {
    counts.set(key, count)
  } else {
    counts.delete(key)
  }
}

const hashesOf = ({ secretHash, previousSecretHash }: Credential): readonly string[] =>
  previousSecretHash ? [secretHash, previousSecretHash] : [secretHash]

function smallestScryptHash(credentials: Iterable<Credential>): string | undefined {
  let smallest: string | undefined
  for (const credential of credentials) {
    for (const hash of hashesOf(credential)) {
      if (scryptPrefixOf(hash) !== undefined && (smallest === undefined || hash < smallest)) {
        smallest = hash
      }
    }
  }
  return smallest
}

function fingerprintOfCredential(credential: Credential): number {
  const { accountId, accessKey, secretHash, expiresAtMs, disabled, scope } = credential
  const { previousSecretHash, previousSecretExpiresAtMs } = credential
  const secrets = [secretHash, previousSecretHash, previousSecretExpiresAtMs]
  return fingerprintOf(accountId, accessKey, ...secrets, expiresAtMs, disabled, scope)
}

/** Names hold no control characters, so U+0001 separates them. */
const keyOf = ({ accountId, accessKey }: CredentialName) => `${accountId}\u0001${accessKey}`

export const isActive = ({ disabled, expiresAtMs }: Credential, now: number) => !disabled && now < expiresAtMs

function countActiveIn(credentials: ReadonlyMap<string, Credential>, now: number): number {
  let count = 0
  for (const credential of credentials.values()) {
    count += Number(isActive(credential, now))
  }
  return count
}

const NONE: ReadonlySet<string> = new Set()

/** A secret that never ends would be forgotten, and an end without a secret is a mistake. */
export function previousSecretProblem(
  credential: Pick<Credential, 'previousSecretHash' | 'previousSecretExpiresAtMs'>,
): string | undefined {
  const hasHash = credential.previousSecretHash != null
  const hasEnd = credential.previousSecretExpiresAtMs != null
  return hasHash === hasEnd ? undefined : 'must come with the time at which the previous secret ends'
}

/** Returns the hashes whose secrets log in now, the present one first. */
export function usableHashes(credential: Credential, now: number): readonly string[] {
  const { secretHash, previousSecretHash, previousSecretExpiresAtMs } = credential
  const isPreviousUsable = previousSecretExpiresAtMs != null && now < previousSecretExpiresAtMs
  return previousSecretHash && isPreviousUsable ? [secretHash, previousSecretHash] : [secretHash]
}

/** Returns the text of a member of a map that may be invalid, or an empty text. */
function memberText(map: unknown, member: string): string {
  const value: unknown = map instanceof Object ? Reflect.get(map, member) : undefined
  return typeof value === 'string' ? value : ''
}

/** A list of maps with distinct values of `member`. Repeated values are reported with all other problems. */
const listOf = <T extends z.ZodType>(item: T, member: string, repeated: string, before = NONE) =>
  z.array(item, must('must be a list')).superRefine(
    (list, context) => {
      const seen = new Set<string>()
      for (const [index, map] of list.entries()) {
        const name = memberText(map, member)
        if (name === '') {
          continue
        }
        if (seen.has(name) || before.has(name)) {
          context.addIssue({ code: 'custom', path: [index, member], message: repeated })
        }
        seen.add(name)
      }
    },
    { when: ({ value }) => Array.isArray(value) },
  )

const credentialSchema = z
  .strictObject(
    {
      accessKey: nameSchema,
      secretHash: checkedText(secretHashProblem),
      previousSecretHash: checkedText(secretHashProblem).optional(),
      previousSecretExpiresAt: timeSchema.optional(),
      expiresAt: timeSchema.default(Number.POSITIVE_INFINITY),
      disabled: boolean.default(false),
      scope: checkedText(scopeProblem).optional(),
    },
    must('must be a map with accessKey and secretHash'),
  )
  .superRefine(({ previousSecretHash, previousSecretExpiresAt }, context) => {
    const problem = previousSecretProblem({
      previousSecretHash,
      previousSecretExpiresAtMs: previousSecretExpiresAt,
    })
    if (problem !== undefined) {
      context.addIssue({ code: 'custom', path: ['previousSecretHash'], message: problem })
    }
  })

const accountSchema = z
  .strictObject(
    {
      accountId: nameSchema,
      credentials: listOf(credentialSchema, 'accessKey', 'repeats an access key of this account'),
    },
    must('must be a map with accountId and credentials'),
  )
  .superRefine(({ accountId, credentials }, context) => {
    for (const [index, { accessKey, scope }] of credentials.entries()) {
      const message = claimsProblem(accountId, accessKey, scope)
      const path = ['credentials', index, 'accessKey']
      if (message !== undefined) {
        context.addIssue({ code: 'custom', path, message })
      }
    }
  })

const EMPTY = 'is empty; without accounts, write `accounts: []`'
const NOT_ACCOUNTS = 'must be a map with the one member accounts'

/** The schema of a file, or of its parts in turn. Remembers the accounts of the parts before. */
function createFileSchema() {
  const accountsBefore = new Set<string>()
  return z
    .strictObject(
      { accounts: listOf(accountSchema, 'accountId', 'repeats an account', accountsBefore) },
      { error: ({ input }) => (input === null ? EMPTY : NOT_ACCOUNTS) },
    )
    .transform(({ accounts }) => {
      const rows: Credential[] = []
      for (const { accountId, credentials } of accounts) {
        accountsBefore.add(accountId)
        for (const { expiresAt, previousSecretExpiresAt, ...rest } of credentials) {
          const times = { expiresAtMs: expiresAt, previousSecretExpiresAtMs: previousSecretExpiresAt }
          rows.push({ accountId, ...rest, ...times })
        }
      }
      return rows
    })
}

export const CREDENTIALS_FORMAT: ListFormat<Credential> = {
  member: 'accounts',
  createSchema: createFileSchema,
}

export const parseCredentials: Parse<Credential> = (bytes) => parseList(bytes, CREDENTIALS_FORMAT)
