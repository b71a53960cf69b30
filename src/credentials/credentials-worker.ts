/**
 * The worker thread that parses large credentials files.
 * In: the bytes as `workerData`, then one message for each batch. Out: batches, the last one empty; or the problems.
 */
import { parentPort, workerData } from 'node:worker_threads'
import { type ParsedCredentials, parseCredentials } from './credentials-yaml.ts'

/** About 1 ms to deserialize and to index. */
const BATCH = 500

const parsed = parseCredentials(workerData)
let sent = 0

parentPort?.on('message', () => {
  const batch: ParsedCredentials = parsed.ok
    ? { ok: true, credentials: parsed.credentials.slice(sent, sent + BATCH) }
    : parsed
  sent += BATCH
  parentPort?.postMessage(batch)
})
