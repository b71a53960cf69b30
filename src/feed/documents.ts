/**
 * The bodies of the feed. Each is built, and compressed, once for its two versions, whatever the
 * number of followers. Between parts of a large one, requests are served.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { FEED_FORMAT, type FeedCredential, type FeedRevocation } from '../credentials/feed/format.ts'
import type { Revocation } from '../credentials/revocation-list.ts'
import { type Change, type Changes, endIn, type FeedState, feedCredential, revocationChange } from './diff.ts'
import type { History } from './history.ts'

export type Encoding = 'identity' | 'gzip'

export interface Document {
  readonly kind: 'whole' | 'changes'
  readonly version: string
  body(encoding: Encoding): Promise<Buffer>
}

/** The changes since a version. `bytesSince`: what they take in memory, at most. */
type ChangesSince = Pick<History, 'since' | 'bytesSince'>

interface Entries {
  readonly credentials: Parts<FeedCredential>
  readonly revocations: Parts<FeedRevocation>
}
interface Parts<Entry> {
  readonly set: Iterable<Entry>
  readonly removed: Iterable<Entry>
}

const compress = promisify(gzip)
const ENTRIES_PER_PART = 500
/**
 * A revocation is left out only this long after its tokens have ended by the clock of the hub. If that clock is
 * ahead, they have not ended yet at followers. A credential that is left out early does no harm.
 */
const CLOCK_MARGIN_MS = 24 * 3_600_000

/**
 * Of the changes since different versions. A follower could otherwise use up the memory by asking for the
 * changes since each version of the history.
 */
const MAX_CHANGES_BYTES = 64 * 1024 * 1024

/** The documents of the newest version. */
export class Documents {
  readonly #now: () => number
  readonly #maxChangesBytes: number
  /** By the version that they lead on from; null: the whole state. */
  readonly #documents = new Map<string | null, BuiltDocument>()
  #changesBytes = 0

  constructor(now: () => number, maxChangesBytes = MAX_CHANGES_BYTES) {
    this.#now = now
    this.#maxChangesBytes = maxChangesBytes
  }

  /** Must be called for each new version. Documents that are being sent stay usable. */
  clear(): void {
    this.#documents.clear()
    this.#changesBytes = 0
  }

  whole(version: string, state: FeedState): Document {
    const nowMs = this.#now()
    return this.#document(version, null, () => wholeState(state, nowMs))
  }

  /** Returns the whole state if documents with changes take too much memory. */
  changesOrWhole(version: string, from: string, history: ChangesSince, state: FeedState): Document {
    if (!this.#documents.has(from)) {
      const bytes = history.bytesSince(from)
      if (this.#changesBytes + bytes > this.#maxChangesBytes) {
        return this.whole(version, state)
      }
      this.#changesBytes += bytes
    }
    const nowMs = this.#now()
    return this.#document(version, from, () => entriesOf(history.since(from), nowMs))
  }

  #document(version: string, from: string | null, read: () => EntriesUntil): Document {
    const known = this.#documents.get(from)
    // A credential that has ended since is not in the state any more.
    if (known !== undefined && this.#now() < known.endsAtMs) {
      return known
    }
    const document = new BuiltDocument(version, from, read())
    this.#documents.set(from, document)
    return document
  }
}

/** `endsAtMs`: when the first of its credentials ends. */
type EntriesUntil = Readonly<{ entries: Entries; endsAtMs: number }>

class BuiltDocument implements Document {
  readonly kind: Document['kind']
  readonly version: string
  readonly endsAtMs: number
  readonly #bodies = new Map<Encoding, Promise<Buffer>>()

  constructor(version: string, from: string | null, { entries, endsAtMs }: EntriesUntil) {
    this.kind = from === null ? 'whole' : 'changes'
    this.version = version
    this.endsAtMs = endsAtMs
    this.#bodies.set('identity', build(version, from, entries))
  }

  async body(encoding: Encoding): Promise<Buffer> {
    const known = this.#bodies.get(encoding)
    if (known !== undefined) {
      return known
    }
    const compressed = this.body('identity').then(compress)
    this.#bodies.set(encoding, compressed)
    return compressed
  }
}

/** The entries are those at the time of the call, however long the document takes. */
function wholeState({ credentials, revocations }: FeedState, nowMs: number): EntriesUntil {
  const active = credentials.all().filter(({ disabled, expiresAtMs }) => !disabled && nowMs < expiresAtMs)
  const endsAtMs = active.reduce(
    (end, { expiresAtMs }) => Math.min(end, expiresAtMs),
    Number.POSITIVE_INFINITY,
  )
  const lists = revocations.map((list) => list.all())
  const isRepeated = (revocation: Revocation, at: number) =>
    revocations.slice(0, at).some((list) => list.endOf(revocation) !== undefined)
  function* revoked(): Generator<FeedRevocation> {
    for (const [at, list] of lists.entries()) {
      for (const revocation of list) {
        // Several lists may have it, with different ends: the latest counts.
        const endsAtMs = endIn(revocations, revocation) ?? revocation.expiresAtMs ?? Number.POSITIVE_INFINITY
        if (nowMs < endsAtMs + CLOCK_MARGIN_MS && !isRepeated(revocation, at)) {
          yield revocationChange(revocation, endsAtMs).entry
        }
      }
    }
  }
  const entries = {
    credentials: { set: mapped(active, feedCredential), removed: [] },
    revocations: { set: revoked(), removed: [] },
  }
  return { entries, endsAtMs }
}

function* mapped<T, R>(list: readonly T[], map: (value: T) => R): Generator<R> {
  for (const value of list) {
    yield map(value)
  }
}

function entriesOf({ credentials, revocations }: Changes, nowMs: number): EntriesUntil {
  let endsAtMs = Number.POSITIVE_INFINITY
  for (const change of credentials.values()) {
    if (change.isSet && change.endsAtMs > nowMs) {
      endsAtMs = Math.min(endsAtMs, change.endsAtMs)
    }
  }
  const entries = {
    credentials: partsOf(credentials, nowMs, ({ accountId, accessKey }) => ({ accountId, accessKey })),
    revocations: partsOf(revocations, nowMs - CLOCK_MARGIN_MS, ({ expiresAt: _, ...name }) => name),
  }
  return { entries, endsAtMs }
}

/** What was set, and has ended by `endedMs`, is removed. */
function partsOf<Entry>(
  changes: ReadonlyMap<string, Change<Entry>>,
  endedMs: number,
  nameOf: (entry: Entry) => Entry,
): Parts<Entry> {
  const set: Entry[] = []
  const removed: Entry[] = []
  for (const { isSet, entry, endsAtMs } of changes.values()) {
    if (isSet && endedMs < endsAtMs) {
      set.push(entry)
    } else {
      removed.push(nameOf(entry))
    }
  }
  return { set, removed }
}

async function build(version: string, from: string | null, entries: Entries): Promise<Buffer> {
  const parts: Buffer[] = []
  const add = (text: string) => {
    parts.push(Buffer.from(text))
  }
  const head = JSON.stringify({ format: FEED_FORMAT, version, from })
  add(`${head.slice(0, -1)},"credentials":`)
  await addParts(entries.credentials, add)
  add(',"revocations":')
  await addParts(entries.revocations, add)
  add('}')
  return Buffer.concat(parts)
}

async function addParts({ set, removed }: Parts<object>, add: (text: string) => void): Promise<void> {
  add('{"set":[')
  await addEntries(set, add)
  add('],"removed":[')
  await addEntries(removed, add)
  add(']}')
}

async function addEntries(entries: Iterable<object>, add: (text: string) => void): Promise<void> {
  let texts: string[] = []
  let separator = ''
  for (const entry of entries) {
    texts.push(JSON.stringify(entry))
    if (texts.length === ENTRIES_PER_PART) {
      add(`${separator}${texts.join(',')}`)
      separator = ','
      texts = []
      await nextTurn()
    }
  }
  if (texts.length > 0) {
    add(`${separator}${texts.join(',')}`)
  }
}
