/**
 * Loads the YAML files of credentials and revocations. Parses large files in a worker thread,
 * so that requests do not wait. A file that needs too much time or memory ends its thread, and is unusable.
 */
import { hash } from 'node:crypto'
import { type Loaded, loaded, notLoaded } from '../base/result.ts'
import { readRegularFile } from '../files/files.ts'
import { CredentialList } from './credential-list.ts'
import { type ListKind, parseInParts, type Row } from './list-parser.ts'
import { inTurns, ParseThreads } from './parse-threads.ts'
import { RevocationList } from './revocation-list.ts'

/** Such a file has about 50,000 credentials, or 130,000 revocations. */
export const MAX_FILE_BYTES = 8_388_608
/** A larger file is parsed in a thread. A thread takes a second to start, and some memory. */
const MAX_INLINE_BYTES = 65_536
const MAX_REUSED_THREAD_BYTES = 1_048_576
/** Block lists of any length need less. Other layouts, such as JSON, need this for about 1 MB of text. */
const MAX_SECONDS = 30
const MAX_HEAP_MB = 160
const UNPARSED = `cannot be parsed within ${MAX_SECONDS} s and ${MAX_HEAP_MB} MB of memory; write it as the commands do: a line for each member`

const threads = new ParseThreads({
  maxSeconds: MAX_SECONDS,
  maxHeapMb: MAX_HEAP_MB,
  maxReusedBytes: MAX_REUSED_THREAD_BYTES,
})

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
async function eachRow<K extends ListKind>(
  path: string,
  bytes: Buffer,
  kind: K,
  add: (row: Row[K]) => void,
): Promise<Loaded> {
  try {
    const isSmall = bytes.length <= MAX_INLINE_BYTES
    const batches = isSmall ? inTurns(parseInParts(kind, bytes)) : threads.parse<K>({ kind, bytes })
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
