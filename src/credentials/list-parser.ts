/**
 * The parsers of the files of credentials and revocations.
 * As the entry of a worker thread, this module serves parse jobs, those of the feed, too: a job, and each
 * null that follows, is answered by a batch, by the problems of the list, or by null at its end.
 */
import { type MessagePort, parentPort } from 'node:worker_threads'
import { type Loaded, loaded } from '../base/result.ts'
import { type ListFormat, parseListInParts } from '../files/yaml-list.ts'
import { CREDENTIALS_FORMAT, type Credential } from './credential-list.ts'
import type { FeedUpdate } from './feed/format.ts'
import { parseFeedInParts } from './feed/parser.ts'
import { REVOCATIONS_FORMAT, type Revocation } from './revocation-list.ts'

/** A batch of a feed has one part of its update. */
export type Row = Readonly<{ credentials: Credential; revocations: Revocation; feed: FeedUpdate }>
export type Kind = keyof Row
export type ListKind = Exclude<Kind, 'feed'>
export type Batch<K extends Kind> = Loaded<readonly Row[K][]>
type Formats = { readonly [K in ListKind]: ListFormat<Row[K]> }

const FORMATS: Formats = { credentials: CREDENTIALS_FORMAT, revocations: REVOCATIONS_FORMAT }

export const THREAD_ENTRY = new URL(import.meta.url)

/** `isCompressed`: by gzip, which only a feed may be. */
export interface ParseJob<K extends Kind> {
  readonly kind: K
  readonly bytes: Uint8Array
  readonly isCompressed?: boolean
}

/** Yields the rows of each part of a file, or the problems of the file. */
export function parseInParts<K extends ListKind>(kind: K, bytes: Uint8Array): Generator<Batch<K>> {
  return parseListInParts<Row[K]>(bytes, FORMATS[kind])
}

/** The event loop of the sidecar serves requests between the batches, which take some milliseconds each. */
const BATCH_ROWS = 200

/** Joins small parts to batches of `BATCH_ROWS` rows, and divides large ones. */
function* parseInBatches(kind: ListKind, bytes: Uint8Array): Generator<Batch<ListKind>> {
  let rows: Row[ListKind][] = []
  for (const part of parseInParts(kind, bytes)) {
    if (!part.ok) {
      yield part
      return
    }
    rows.push(...part.value)
    while (rows.length >= BATCH_ROWS) {
      yield loaded(rows.slice(0, BATCH_ROWS))
      rows = rows.slice(BATCH_ROWS)
    }
  }
  yield loaded(rows)
}

const batchesOf = ({ kind, bytes, isCompressed = false }: ParseJob<Kind>): Iterator<Batch<Kind>, void> =>
  kind === 'feed' ? parseFeedInParts({ bytes, isCompressed }) : parseInBatches(kind, bytes)

function serveThread(port: MessagePort): void {
  let batches: Iterator<Batch<Kind>, void> | undefined
  port.on('message', (job: ParseJob<Kind> | null) => {
    if (job !== null) {
      batches = batchesOf(job)
    }
    port.postMessage(batches?.next().value ?? null)
  })
}

if (parentPort !== null) {
  serveThread(parentPort)
}
