/**
 * The documents of the feed, by which issuing sidecars serve their credentials and revocations to a fleet.
 * In: JSON. Out: a checked update of the state. A document with an unknown member is refused, because the
 * member might restrict something.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { isJsonObject, type JsonObject } from '../../base/json.ts'
import { failed, ok, type Result } from '../../base/result.ts'
import { claimsProblem, nameProblem, parseTime, textProblem, timeProblem } from '../../base/values.ts'
import { scopeProblem } from '../../token/scopes.ts'
import type { CredentialName } from '../credential-list.ts'
import type { Revocation } from '../revocation-list.ts'

export const FEED_FORMAT = 1

/** The largest body, compressed or not. */
export const MAX_FEED_BYTES = 64 * 1024 * 1024

/** Levels of lists and maps in a document: itself, `credentials`, `set`, an entry. */
export const MAX_FEED_DEPTH = 4

/** A credential that may be used now. The feed holds no secret and no hash. Times are RFC 3339. */
export interface FeedCredential extends CredentialName {
  readonly expiresAt?: string
  readonly scope?: string
}

/**
 * Has one of `jti`, `accountId` and `accessKey`. Two entries that differ in `expiresAt` alone are the same.
 * The state is a set: an entry that several rows have is sent once, and removed with the last of them.
 */
export interface FeedRevocation {
  readonly jti?: string
  readonly issuer?: string
  readonly accountId?: string
  readonly accessKey?: string
  readonly issuedBefore?: string
  /** When the last token that it revokes has ended. */
  readonly expiresAt?: string
}

/** `from`: the version that the changes apply to. Null: the document is the whole state. */
export interface FeedDocument {
  readonly format: typeof FEED_FORMAT
  readonly version: string
  readonly from: string | null
  readonly credentials: {
    readonly set: readonly FeedCredential[]
    readonly removed: readonly CredentialName[]
  }
  readonly revocations: {
    readonly set: readonly FeedRevocation[]
    readonly removed: readonly FeedRevocation[]
  }
}

/** A credential of the feed in memory. */
export interface FollowedCredential extends CredentialName {
  readonly expiresAtMs: number
  readonly scope: string | undefined
}

/** A checked document, whose times are epoch milliseconds. */
export interface FeedUpdate {
  readonly version: string
  readonly from: string | null
  readonly credentials: {
    readonly set: readonly FollowedCredential[]
    readonly removed: readonly CredentialName[]
  }
  readonly revocations: { readonly set: readonly Revocation[]; readonly removed: readonly Revocation[] }
}

/** Names hold no control characters, so U+0001 separates them. */
export const credentialKey = ({ accountId, accessKey }: CredentialName) => `${accountId}\u0001${accessKey}`

/** Equal for revocations that revoke the same tokens. */
export function revocationKey({ jti, issuer, accountId, accessKey, issuedBeforeMs }: Revocation): string {
  if (jti != null) {
    return `jti\u0001${jti}\u0001${issuer ?? ''}`
  }
  const bound = issuedBeforeMs ?? ''
  if (accountId != null) {
    return `accountId\u0001${accountId}\u0001${bound}`
  }
  return `accessKey\u0001${accessKey}\u0001${bound}`
}

const MAX_VERSION_LENGTH = 1024

/** After this number of entries, the event loop serves requests. */
const ENTRIES_PER_TURN = 500

/** A document that is refused. Its message is the rest of a sentence, and quotes nothing of the document. */
class Malformed extends Error {}

/**
 * Checks a document. Never rejects.
 * `error`: the rest of a sentence that begins with "the feed".
 */
export async function parseFeed(text: string): Promise<Result<FeedUpdate>> {
  try {
    return ok(await readUpdate(JSON.parse(text)))
  } catch (error) {
    return failed(error instanceof Malformed ? error.message : 'is no JSON')
  }
}

async function readUpdate(value: unknown): Promise<FeedUpdate> {
  if (!isJsonObject(value)) {
    throw new Malformed('is no JSON object')
  }
  // First: another format may have any other members.
  if (value['format'] !== FEED_FORMAT) {
    throw new Malformed(`has another format than ${FEED_FORMAT}`)
  }
  refuseOtherMembers(value, 'the document', ['format', 'version', 'from', 'credentials', 'revocations'])
  const version = readVersion(value['version'], 'version')
  const from = value['from'] === null ? null : readVersion(value['from'], 'from')
  const credentials = readChanges(value['credentials'], 'credentials')
  const revocations = readChanges(value['revocations'], 'revocations')
  const hasRemoved = credentials.removed.length > 0 || revocations.removed.length > 0
  if (from === null && hasRemoved) {
    throw new Malformed('removes something in a whole state')
  }
  const update: FeedUpdate = {
    version,
    from,
    credentials: {
      set: await readEntries(credentials.set, 'credentials.set', readCredential),
      removed: await readEntries(credentials.removed, 'credentials.removed', readCredentialName),
    },
    revocations: {
      set: await readEntries(revocations.set, 'revocations.set', readRevocation),
      removed: await readEntries(revocations.removed, 'revocations.removed', readRevocation),
    },
  }
  refuseRepeats(update)
  return update
}

function refuseRepeats({ credentials, revocations }: FeedUpdate): void {
  const names = [...credentials.set, ...credentials.removed].map(credentialKey)
  if (new Set(names).size < names.length) {
    throw new Malformed('repeats a credential')
  }
  const set = new Set(revocations.set.map(revocationKey))
  if (revocations.removed.some((entry) => set.has(revocationKey(entry)))) {
    throw new Malformed('sets and removes one revocation')
  }
}

function refuseOtherMembers(map: JsonObject, subject: string, known: readonly string[]): void {
  if (Object.keys(map).some((name) => !known.includes(name))) {
    throw new Malformed(`has a member of ${subject} that is not known`)
  }
}

function readVersion(value: unknown, member: string): string {
  const isVersion = typeof value === 'string' && value !== '' && value.length <= MAX_VERSION_LENGTH
  // A lone surrogate could not be sent back in a URL.
  if (!isVersion || !value.isWellFormed()) {
    throw new Malformed(`has an invalid ${member}`)
  }
  return value
}

function readChanges(value: unknown, member: string) {
  if (!isJsonObject(value)) {
    throw new Malformed(`has no ${member}`)
  }
  refuseOtherMembers(value, member, ['set', 'removed'])
  const { set, removed } = value
  if (!Array.isArray(set) || !Array.isArray(removed)) {
    throw new Malformed(`has no list ${member}.set or ${member}.removed`)
  }
  return { set: set as readonly unknown[], removed: removed as readonly unknown[] }
}

async function readEntries<T>(
  list: readonly unknown[],
  path: string,
  readEntry: (entry: JsonObject) => Result<T>,
): Promise<T[]> {
  const entries: T[] = []
  for (const [index, value] of list.entries()) {
    if (index % ENTRIES_PER_TURN === ENTRIES_PER_TURN - 1) {
      await nextTurn()
    }
    const entry = isJsonObject(value) ? readEntry(value) : failed('is not a map')
    if (!entry.ok) {
      throw new Malformed(`has an invalid entry ${path}[${index}]: ${entry.error}`)
    }
    entries.push(entry.value)
  }
  return entries
}

type Texts = Readonly<Record<string, string>>
type Member = readonly [name: string, problemOf: (text: string) => string | undefined]

/** Reads the members that an entry has, which are all strings. Another member is refused. */
function readTexts(entry: JsonObject, members: readonly Member[]): Result<Texts> {
  const texts: Record<string, string> = {}
  for (const [name, problemOf] of members) {
    const value = entry[name]
    if (value === undefined) {
      continue
    }
    if (typeof value !== 'string') {
      return failed(`${name} must be a string`)
    }
    const problem = problemOf(value)
    if (problem !== undefined) {
      return failed(`${name} ${problem}`)
    }
    texts[name] = value
  }
  const hasOthers = Object.keys(entry).length > Object.keys(texts).length
  return hasOthers ? failed('has a member that is not known') : ok(texts)
}

const NAME_MEMBERS: readonly Member[] = [
  ['accountId', nameProblem],
  ['accessKey', nameProblem],
]
const CREDENTIAL_MEMBERS: readonly Member[] = [
  ...NAME_MEMBERS,
  ['expiresAt', timeProblem],
  ['scope', scopeProblem],
]
const REVOCATION_MEMBERS: readonly Member[] = [
  ...NAME_MEMBERS,
  ['jti', nameProblem],
  ['issuer', textProblem], // the table has no rule against control characters
  ['issuedBefore', timeProblem],
  ['expiresAt', timeProblem],
]

function readCredential(entry: JsonObject): Result<FollowedCredential> {
  const texts = readTexts(entry, CREDENTIAL_MEMBERS)
  if (!texts.ok) {
    return texts
  }
  const { accountId, accessKey, expiresAt, scope } = texts.value
  if (accountId === undefined || accessKey === undefined) {
    return failed('needs accountId and accessKey')
  }
  const problem = claimsProblem(accountId, accessKey, scope)
  if (problem !== undefined) {
    return failed(`accessKey ${problem}`)
  }
  return ok({ accountId, accessKey, expiresAtMs: optionalTime(expiresAt) ?? Number.POSITIVE_INFINITY, scope })
}

function readCredentialName(entry: JsonObject): Result<CredentialName> {
  const texts = readTexts(entry, NAME_MEMBERS)
  if (!texts.ok) {
    return texts
  }
  const { accountId, accessKey } = texts.value
  if (accountId === undefined || accessKey === undefined) {
    return failed('needs accountId and accessKey')
  }
  return ok({ accountId, accessKey })
}

function readRevocation(entry: JsonObject): Result<Revocation> {
  const texts = readTexts(entry, REVOCATION_MEMBERS)
  if (!texts.ok) {
    return texts
  }
  const { jti, issuer, accountId, accessKey, issuedBefore, expiresAt } = texts.value
  if ([jti, accountId, accessKey].filter((name) => name !== undefined).length !== 1) {
    return failed('needs exactly one of jti, accountId and accessKey')
  }
  if (jti !== undefined && issuedBefore !== undefined) {
    return failed('issuedBefore cannot be combined with jti')
  }
  if (jti === undefined && issuer !== undefined) {
    return failed('issuer needs jti')
  }
  return ok({
    jti,
    issuer,
    accountId,
    accessKey,
    issuedBeforeMs: optionalTime(issuedBefore),
    expiresAtMs: optionalTime(expiresAt),
  })
}

const optionalTime = (text: string | undefined) => (text === undefined ? undefined : parseTime(text))
