/** The parsers of the files of credentials and revocations. As the entry of a worker thread, this module serves parse jobs. */
import { type MessagePort, parentPort } from 'node:worker_threads'
import type { Loaded } from '../base/result.ts'
import type { Parse } from '../files/yaml-text.ts'
import { type Credential, parseCredentials } from './credential-list.ts'
import { parseRevocations, type Revocation } from './revocation-list.ts'

export type Row = Readonly<{ credentials: Credential; revocations: Revocation }>
export type Kind = keyof Row
type Parsers = { readonly [K in Kind]: Parse<Row[K]> }
export type Batch<K extends Kind> = Loaded<readonly Row[K][]>

export const PARSERS: Parsers = { credentials: parseCredentials, revocations: parseRevocations }

export const THREAD_ENTRY = new URL(import.meta.url)

/** The event loop of the sidecar serves requests between batches. */
const BATCH_ROWS = 500

export type ParseJob = { readonly kind: Kind; readonly bytes: Uint8Array }

/** Runs in the thread. Responds to each message with a batch of rows (the last is empty) or the problems. */
function serveThread(port: MessagePort): void {
  let parsed: Loaded<readonly unknown[]>
  let sent = 0
  port.on('message', (job: ParseJob | null) => {
    if (job !== null) {
      parsed = PARSERS[job.kind](job.bytes)
      sent = 0
    }
    port.postMessage(parsed.ok ? { ...parsed, value: parsed.value.slice(sent, sent + BATCH_ROWS) } : parsed)
    sent += BATCH_ROWS
  })
}

if (parentPort !== null) {
  serveThread(parentPort)
}
