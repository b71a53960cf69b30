/**
 * The parsers of the files of credentials and revocations.
 * As the entry of a worker thread, this module serves parse jobs: a job, and each null that follows,
 * is answered by a batch of rows, by the problems of the file, or by null at its end.
 */
import { type MessagePort, parentPort } from 'node:worker_threads'
import { type Loaded, loaded } from '../base/result.ts'
import { type ListFormat, parseListInParts } from '../files/yaml-list.ts'
import { CREDENTIALS_FORMAT, type Credential } from './credential-list.ts'
import { REVOCATIONS_FORMAT, type Revocation } from './revocation-list.ts'

export type Row = Readonly<{ credentials: Credential; revocations: Revocation }>
export type Kind = keyof Row
type Formats = { readonly [K in Kind]: ListFormat<Row[K]> }
export type Batch<K extends Kind> = Loaded<readonly Row[K][]>

const FORMATS: Formats = { credentials: CREDENTIALS_FORMAT, revocations: REVOCATIONS_FORMAT }

export const THREAD_ENTRY = new URL(import.meta.url)

export type ParseJob = { readonly kind: Kind; readonly bytes: Uint8Array }

/** Yields the rows of each part of a file, or the problems of the file. */
export function parseInParts<K extends Kind>(kind: K, bytes: Uint8Array): Generator<Batch<K>> {
  return parseListInParts<Row[K]>(bytes, FORMATS[kind])
}

/**
 * A message costs as much as some hundred rows.
 * The event loop of the sidecar serves requests between messages.
 */
const BATCH_ROWS = 500

/** Joins small parts to batches of `BATCH_ROWS` rows, and divides large ones. */
function* parseInBatches<K extends Kind>({ kind, bytes }: ParseJob & { kind: K }): Generator<Batch<K>> {
  let rows: Row[K][] = []
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

function serveThread(port: MessagePort): void {
  let batches: Iterator<Batch<Kind>, void> | undefined
  port.on('message', (job: ParseJob | null) => {
    if (job !== null) {
      batches = parseInBatches(job)
    }
    port.postMessage(batches?.next().value ?? null)
  })
}

if (parentPort !== null) {
  serveThread(parentPort)
}
