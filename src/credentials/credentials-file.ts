/**
 * Loads a credentials file, whole.
 * Files above 64 KiB are parsed in a worker thread and indexed in batches, so that requests do not wait for a reload.
 */
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { readRegularFile } from '../reload/files.ts'
import type { Loaded } from '../reload/loaded.ts'
import { type Credential, type CredentialIndex, createCredentialIndex } from './credential.ts'
import { type ParsedCredentials, parseCredentials } from './credentials-yaml.ts'

/** About 100,000 credentials. */
const MAX_BYTES = 16_777_216
const MAX_INLINE_BYTES = 65_536

/** A readable file; its text may still be invalid. */
export type ReadCredentialsFile =
  | { readonly ok: true; readonly bytes: Buffer; readonly warnings: readonly string[] }
  | { readonly ok: false; readonly missing: boolean; readonly problems: readonly string[] }

/** Reads the file without parsing it. Never rejects. */
export async function readCredentialsFile(file: string): Promise<ReadCredentialsFile> {
  const read = await readRegularFile(file, MAX_BYTES)
  if (!read.ok) return { ok: false, missing: read.missing, problems: [`${file}: ${read.problem}`] }
  const worldReadable = (read.mode & 0o004) !== 0
  const warnings = worldReadable ? [`${file} can be read by every user of this machine`] : []
  return { ok: true, bytes: read.bytes, warnings }
}

/** Reads and parses the file at once, for commands. Problems begin with the path. Never rejects. */
export async function listCredentialsFile(file: string): Promise<Loaded<readonly Credential[]>> {
  const read = await readCredentialsFile(file)
  if (!read.ok) return read
  const parsed = parseCredentials(read.bytes)
  if (!parsed.ok) return invalid(file, parsed.problems)
  return { ok: true, value: parsed.credentials, warnings: read.warnings }
}

/** Reads, parses and indexes the file without blocking the event loop. Problems begin with the path. Never rejects. */
export async function loadCredentialsFile(file: string): Promise<Loaded<CredentialIndex>> {
  const read = await readCredentialsFile(file)
  if (!read.ok) return read
  const index = createCredentialIndex()
  const batches =
    read.bytes.length > MAX_INLINE_BYTES ? parseInWorker(read.bytes) : [parseCredentials(read.bytes)]
  try {
    for await (const batch of batches) {
      if (!batch.ok) return invalid(file, batch.problems)
      for (const credential of batch.credentials) index.add(credential)
    }
  } catch {
    return { ok: false, problems: [`${file}: cannot be parsed: the worker thread failed`] }
  }
  return { ok: true, value: index, warnings: read.warnings }
}

function invalid(file: string, problems: readonly string[]) {
  return { ok: false, problems: problems.map((problem) => `${file}:${problem}`) } as const
}

/** One batch on each request: messages that arrive together would be deserialized in one turn of the event loop. */
async function* parseInWorker(bytes: Uint8Array): AsyncGenerator<ParsedCredentials> {
  // `.ts` in a checkout under the test loader, `.js` in dist.
  const extension = import.meta.url.slice(-3)
  const worker = new Worker(new URL(`./credentials-worker${extension}`, import.meta.url), {
    workerData: bytes,
  })
  try {
    for (;;) {
      const message = once(worker, 'message')
      worker.postMessage('next')
      const [batch]: ParsedCredentials[] = await message
      if (batch === undefined || (batch.ok && batch.credentials.length === 0)) return
      yield batch
    }
  } finally {
    await worker.terminate()
  }
}
