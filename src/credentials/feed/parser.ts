/**
 * Parses documents of the feed.
 * In: a body as it was received. Out: a checked update of the state, in parts. A document with an unknown
 * member is refused, because the member might restrict something.
 */
import { isUtf8 } from 'node:buffer'
import { gunzipSync } from 'node:zlib'
import { isJsonObject, type JsonObject } from '../../base/json.ts'
import { failed, type Loaded, loaded, notLoaded, ok, type Result } from '../../base/result.ts'
import { claimsProblem, nameProblem, parseTime, textProblem, timeProblem } from '../../base/values.ts'
import { errorCode } from '../../files/files.ts'
import { scopeProblem } from '../../token/scopes.ts'
import type { CredentialName } from '../credential-list.ts'
import type { Revocation } from '../revocation-list.ts'
import {
  credentialKey,
  FEED_FORMAT,
  type FeedUpdate,
  type FollowedCredential,
  revocationKey,
} from './format.ts'

const MAX_VERSION_LENGTH = 1024

/** The largest body, compressed or not. */
export const MAX_FEED_BYTES = 64 * 1024 * 1024
export const TOO_LARGE = `is larger than ${MAX_FEED_BYTES} bytes`

/** Levels of lists and maps in a document: itself, `credentials`, `set`, an entry. */
const MAX_DEPTH = 4

const ENTRIES_PER_PART = 500

/** A document that is refused. Its message is the rest of a sentence, and quotes nothing of the document. */
class Malformed extends Error {}

/** A body of the feed, as it was received. */
export interface FeedBody {
  readonly bytes: Uint8Array
  /** By gzip. */
  readonly isCompressed: boolean
}

/**
 * Yields the document in parts, each with the versions and some entries of the lists. If the last value is
 * the problem of the document, its parts are not valid.
 * The problem is the rest of a sentence that begins with "the feed".
 */
export function* parseFeedInParts(body: FeedBody): Generator<Loaded<readonly FeedUpdate[]>> {
  try {
    for (const part of partsOf(parseJson(textOf(body)))) {
      yield loaded([part])
    }
  } catch (error) {
    if (!(error instanceof Malformed)) {
      throw error
    }
    yield notLoaded([error.message])
  }
}

function textOf(body: FeedBody): string {
  const bytes = body.isCompressed ? unzipped(body.bytes) : body.bytes
  refuseBrackets(bytes)
  // Names that are not UTF-8 would otherwise become other names.
  if (!isUtf8(bytes)) {
    throw new Malformed('is not UTF-8')
  }
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString()
}

function unzipped(bytes: Uint8Array): Uint8Array {
  try {
    return gunzipSync(bytes, { maxOutputLength: MAX_FEED_BYTES })
  } catch (error) {
    const code = errorCode(error)
    throw new Malformed(code === 'ERR_BUFFER_TOO_LARGE' ? TOO_LARGE : `cannot be unzipped: ${code}`)
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new Malformed('is no JSON')
  }
}

function* partsOf(value: unknown): Generator<FeedUpdate> {
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
  const none = { set: [], removed: [] }
  const head: FeedUpdate = { version, from, credentials: none, revocations: none }
  yield head

  const names = new Set<string>()
  for (const set of readEntries(credentials.set, 'credentials.set', readCredential)) {
    refuseRepeats(set, names)
    yield { ...head, credentials: { set, removed: [] } }
  }
  for (const removed of readEntries(credentials.removed, 'credentials.removed', readCredentialName)) {
    refuseRepeats(removed, names)
    yield { ...head, credentials: { set: [], removed } }
  }
  const removedKeys = new Set<string>()
  for (const removed of readEntries(revocations.removed, 'revocations.removed', readRevocation)) {
    for (const revocation of removed) {
      removedKeys.add(revocationKey(revocation))
    }
    yield { ...head, revocations: { set: [], removed } }
  }
  for (const set of readEntries(revocations.set, 'revocations.set', readRevocation)) {
    refuseSet(set, removedKeys)
    yield { ...head, revocations: { set, removed: [] } }
  }
}

function refuseRepeats(entries: readonly CredentialName[], names: Set<string>): void {
  for (const entry of entries) {
    const key = credentialKey(entry)
    if (names.has(key)) {
      throw new Malformed('repeats a credential')
    }
    names.add(key)
  }
}

function refuseSet(set: readonly Revocation[], removedKeys: ReadonlySet<string>): void {
  if (removedKeys.size > 0 && set.some((entry) => removedKeys.has(revocationKey(entry)))) {
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

function* readEntries<T>(
  list: readonly unknown[],
  path: string,
  readEntry: (entry: JsonObject) => Result<T>,
): Generator<T[]> {
  let entries: T[] = []
  for (const [index, value] of list.entries()) {
    const entry = isJsonObject(value) ? readEntry(value) : failed('is not a map')
    if (!entry.ok) {
      throw new Malformed(`has an invalid entry ${path}[${index}]: ${entry.error}`)
    }
    entries.push(entry.value)
    if (entries.length === ENTRIES_PER_PART) {
      yield entries
      entries = []
    }
  }
  if (entries.length > 0) {
    yield entries
  }
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
  ['issuer', textProblem], // in the database, it may hold control characters
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

const QUOTE = 0x22
const BACKSLASH = 0x5c
const OPENING_BRACKET = 0x5b
const CLOSING_BRACKET = 0x5d
const OPENING_BRACE = 0x7b
const CLOSING_BRACE = 0x7d

/** An entry has more: the shortest is `{"jti":"x"}`. */
const MIN_ENTRY_BYTES = 10
/** Few brackets do no harm, wherever they are. */
const HARMLESS_BRACKETS = 100

/** `JSON.parse` needs a minute and gigabytes for a text that consists of brackets. */
function refuseBrackets(bytes: Uint8Array): void {
  let depth = 0
  let opened = 0
  let at = 0
  while (at < bytes.length) {
    const byte = bytes[at]
    if (byte === QUOTE) {
      at = endOfString(bytes, at + 1)
    } else if (byte === OPENING_BRACKET || byte === OPENING_BRACE) {
      depth++
      opened++
    } else if (byte === CLOSING_BRACKET || byte === CLOSING_BRACE) {
      depth--
    }
    if (depth > MAX_DEPTH) {
      throw new Malformed('is nested too deeply')
    }
    at++
  }
  const maxOpened = HARMLESS_BRACKETS + bytes.length / MIN_ENTRY_BYTES
  if (opened > maxOpened) {
    throw new Malformed('has more lists and maps than entries can have')
  }
}

/** Returns the index of the quote that ends the string. */
function endOfString(bytes: Uint8Array, start: number): number {
  let at = start
  while (at < bytes.length && bytes[at] !== QUOTE) {
    at += bytes[at] === BACKSLASH ? 2 : 1
  }
  return at
}
