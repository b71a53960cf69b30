/**
 * Loads the YAML files of credentials and revocations. Parses large files in a worker thread,
 * so that requests do not wait. A file that needs too much time or memory ends its thread, and is unusable.
 */
import { hash } from 'node:crypto'
import { once } from 'node:events'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { type Loaded, loaded, notLoaded } from '../base/result.ts'
import { readRegularFile } from '../files/files.ts'
import { CredentialList } from './credential-list.ts'
import { type Batch, type Kind, type ParseJob, parseInParts, type Row, THREAD_ENTRY } from './list-parser.ts'
import { RevocationList } from './revocation-list.ts'

/** Such a file has about 50,000 credentials, or 130,000 revocations. */
export const MAX_FILE_BYTES = 8_388_608
/** A larger file is parsed in a thread. A thread takes a second to start, and some memory. */
const MAX_INLINE_BYTES = 65_536
/** A thread that has parsed a larger file is ended, because it keeps hundreds of megabytes. */
const MAX_REUSED_THREAD_BYTES = 1_048_576
/** Block lists of any length need less. Other layouts, such as JSON, need this for about 1 MB of text. */
const MAX_SECONDS = 30
const MAX_HEAP_MB = 160
const UNPARSED = `cannot be parsed within ${MAX_SECONDS} s and ${MAX_HEAP_MB} MB of memory; write it as the commands do: a line for each member`

/** Kept for the next file: its code is compiled, so it parses 280 kB in 0.14 s instead of 1.2 s. */
let idleThread: Worker | undefined

export async function loadCredentialsFile(path: string): Promise<Loaded<CredentialList>> {
  const read = await readRegularFile(path, MAX_FILE_BYTES)
  if (!read.ok) {
    const hint = `storage-auth-sidecar credentials add --file ${path} --account ACCOUNT creates it`
    return read.kind === 'missing' ? notLoaded(read.problems.map((problem) => `${problem}; ${hint}`)) : read
  }
  const { bytes } = read.value
  const credentials = new CredentialList(digestOf(bytes))
  const parsed = await eachRow(path, bytes, 'credentials', (row) => credentials.add(row))
  return parsed.ok ? loaded(credentials, read.warnings) : parsed
}

/**
 * @param required - if false, the file may be missing
 * @param active - a file that is missing after it had revocations is a mistake
 */
export async function loadRevocationsFile(
  path: string,
  required: boolean,
  active?: RevocationList,
): Promise<Loaded<RevocationList>> {
  const read = await readRegularFile(path, MAX_FILE_BYTES)
  if (!read.ok) {
    const mayBeMissing = !required && (active?.size ?? 0) === 0
    return read.kind === 'missing' && mayBeMissing ? loaded(new RevocationList()) : read
  }
  const { bytes } = read.value
  const revocations = new RevocationList(digestOf(bytes))
  const parsed = await eachRow(path, bytes, 'revocations', (row) => revocations.add(row))
  return parsed.ok ? loaded(revocations) : parsed // without the warnings, which are about secrets
}

const digestOf = (bytes: Buffer): string => hash('sha256', bytes, 'base64url')

/** Problems begin with the path. Never rejects. */
async function eachRow<K extends Kind>(
  path: string,
  bytes: Buffer,
  kind: K,
  add: (row: Row[K]) => void,
): Promise<Loaded> {
  try {
    const batches = bytes.length <= MAX_INLINE_BYTES ? parseInTurns(kind, bytes) : parseInThread(kind, bytes)
    for await (const batch of batches) {
      if (!batch.ok) {
        return notLoaded(batch.problems.map((problem) => `${path}:${problem}`))
      }
      for (const row of batch.value) {
        add(row)
      }
    }
    return loaded(undefined)
  } catch {
    // The thread has ended, is late, or the parser has failed. The error may quote the file.
    return notLoaded([`${path}: ${UNPARSED}`])
  }
}

/** Requests are served between the parts. */
async function* parseInTurns<K extends Kind>(kind: K, bytes: Buffer): AsyncGenerator<Batch<K>> {
  for (const part of parseInParts(kind, bytes)) {
    yield part
    await nextTurn()
  }
}

async function* parseInThread<K extends Kind>(kind: K, bytes: Buffer): AsyncGenerator<Batch<K>> {
  const thread = idleThread ?? startThread()
  idleThread = undefined
  const late = new AbortController()
  const timer = setTimeout(() => late.abort(), MAX_SECONDS * 1000)
  let isDone = false
  try {
    thread.postMessage({ kind, bytes } satisfies ParseJob)
    while (true) {
      const [batch]: (Batch<K> | null)[] = await once(thread, 'message', { signal: late.signal })
      if (batch == null) {
        isDone = true
        return
      }
      yield batch
      // The thread sends one batch for each request:
      // Node deserializes all messages that arrive together in one turn.
      thread.postMessage(null)
    }
  } finally {
    clearTimeout(timer)
    if (isDone && bytes.length <= MAX_REUSED_THREAD_BYTES && idleThread === undefined) {
      idleThread = thread
    } else {
      await thread.terminate()
    }
  }
}

function startThread(): Worker {
  const thread = new Worker(THREAD_ENTRY, {
    resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB, maxYoungGenerationSizeMb: 4 },
  })
  thread.unref() // the timer of a job keeps the process alive
  thread.once('exit', () => {
    if (idleThread === thread) {
      idleThread = undefined
    }
  })
  return thread.on('error', () => {}) // without a listener, an error ends the process
}
