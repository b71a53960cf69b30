/** Revoked tokens, from a file or PostgreSQL, as an index: a check costs the same whatever its size. */
import { z } from 'zod'
import type { Loaded } from '../reload/files.ts'
import { type Parse, readRows } from '../reload/parse-thread.ts'
import { parseFile } from '../reload/yaml-text.ts'
import { name, time } from './names.ts'

/** Names a token, an account or an access key. */
export interface Revocation {
  readonly jti?: string | null | undefined
  readonly accountId?: string | null | undefined
  readonly accessKey?: string | null | undefined
  /** Only tokens issued before it, in epoch milliseconds, are revoked; without it, every token is. */
  readonly issuedBefore?: number | null | undefined
}

/** The claims that a revocation can match: `jti`, `sub`, `client_id` and `iat` (epoch seconds). */
export interface RevocableToken {
  readonly tokenId: string
  readonly accountId: string
  readonly accessKey: string
  readonly issuedAt: number
}

export type IsRevoked = (token: RevocableToken) => boolean

export interface Revocations {
  readonly isRevoked: IsRevoked
  readonly size: number
  /** Of several for one name, the latest bound counts. */
  add(revocation: Revocation): void
  /** Revoked by their ids. */
  readonly tokens: ReadonlySet<string>
  /** By account or access key: tokens issued before, in epoch milliseconds, are revoked. */
  readonly bounds: ReadonlyMap<string, number>
}

const ofAccount = (accountId: string) => `account ${accountId}`
const ofAccessKey = (accessKey: string) => `key ${accessKey}`

/** Indexes revocations: 300,000 take about 100 ms. */
export function createRevocations(list: readonly Revocation[]): Revocations {
  const tokens = new Set<string>()
  const bounds = new Map<string, number>()
  const before = (name: string) => bounds.get(name) ?? Number.NEGATIVE_INFINITY
  let size = 0
  function add({ jti, accountId, accessKey, issuedBefore }: Revocation) {
    size++
    if (jti) tokens.add(jti)
    const name = accountId ? ofAccount(accountId) : accessKey && ofAccessKey(accessKey)
    if (name) bounds.set(name, Math.max(before(name), issuedBefore ?? Number.POSITIVE_INFINITY))
  }
  for (const revocation of list) add(revocation)
  return {
    add,
    tokens,
    bounds,
    get size() {
      return size
    },
    isRevoked: ({ tokenId, accountId, accessKey, issuedAt }) =>
      tokens.has(tokenId) ||
      issuedAt * 1000 < before(ofAccount(accountId)) ||
      issuedAt * 1000 < before(ofAccessKey(accessKey)),
  }
}

/** The tokens that only `after` revokes by their ids; undefined if it revokes more of an account or access key. */
export function newlyRevoked(before: Revocations, after: Revocations): readonly string[] | undefined {
  for (const [name, bound] of after.bounds) {
    if (bound > (before.bounds.get(name) ?? Number.NEGATIVE_INFINITY)) return undefined
  }
  return [...after.tokens].filter((tokenId) => !before.tokens.has(tokenId))
}

/** `required`: false for the default path, whose file may be missing until it has existed once. */
export function createRevocationsLoader(settings: { readonly file: string; readonly required: boolean }) {
  const { file, required } = settings
  let mayBeMissing = !required
  return async (): Promise<Loaded<Revocations>> => {
    const { read, list } = await readList(file)
    if (read.ok) mayBeMissing = false
    else if (!read.missing || !mayBeMissing) return read
    return { ok: true, value: createRevocations(list), warnings: [] }
  }
}

/** In the order of the file. */
export async function listRevocationsFile(file: string): Promise<Loaded<readonly Revocation[]>> {
  const { read, list } = await readList(file)
  return read.ok ? { ok: true, value: list, warnings: [] } : read
}

async function readList(path: string) {
  const list: Revocation[] = []
  const source = { path, parse, moduleUrl: import.meta.url }
  const read = await readRows(source, (revocation) => list.push(revocation))
  return { read, list }
}

export const parse: Parse<Revocation> = (bytes) => parseFile(bytes, fileSchema)

const EMPTY = 'without entries, write `revocations: []`'
const revocationSchema = z
  .strictObject(
    {
      jti: name.optional(),
      accountId: name.optional(),
      accessKey: name.optional(),
      issuedBefore: time.optional(),
    },
    'must be a map with one of jti, accountId and accessKey',
  )
  .superRefine(({ jti, accountId, accessKey, issuedBefore }, context) => {
    const names = [jti, accountId, accessKey].filter((given) => given !== undefined)
    if (names.length !== 1) context.addIssue('must have exactly one of jti, accountId and accessKey')
    if (jti !== undefined && issuedBefore !== undefined) {
      context.addIssue({ code: 'custom', path: ['issuedBefore'], message: 'cannot be combined with jti' })
    }
  })
const fileSchema = z
  .strictObject(
    { revocations: z.array(revocationSchema, `must be a list; ${EMPTY}`) },
    `must be a map with the one member revocations; ${EMPTY}`,
  )
  .transform(({ revocations }) => revocations)
