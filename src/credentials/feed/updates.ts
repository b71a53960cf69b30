/** Reads bodies of the feed to updates: a large one in a worker thread, as large files are. */
import { failed, type Loaded, ok, type Result } from '../../base/result.ts'
import type { CredentialName } from '../credential-list.ts'
import { inTurns, ParseThreads } from '../parse-threads.ts'
import type { Revocation } from '../revocation-list.ts'
import type { FeedUpdate, FollowedCredential } from './format.ts'
import { type FeedBody, parseFeedInParts } from './parser.ts'

/** A larger body is parsed in a thread. */
const MAX_INLINE_BYTES = 65_536
const MAX_INLINE_COMPRESSED_BYTES = 4096
const MAX_SECONDS = 60
const MAX_HEAP_MB = 1024
const UNPARSED = `cannot be parsed within ${MAX_SECONDS} s and ${MAX_HEAP_MB} MB of memory`

/** Whole states are rare. */
const threads = new ParseThreads({ maxSeconds: MAX_SECONDS, maxHeapMb: MAX_HEAP_MB, maxReusedBytes: 0 })

/**
 * Takes the bytes, which must not be used any more. Never rejects. The signal ends a thread.
 * `error`: the rest of a sentence that begins with "the feed".
 */
export async function parseFeed(body: FeedBody, signal?: AbortSignal): Promise<Result<FeedUpdate>> {
  const maxInlineBytes = body.isCompressed ? MAX_INLINE_COMPRESSED_BYTES : MAX_INLINE_BYTES
  const isSmall = body.bytes.length <= maxInlineBytes
  try {
    const job = { kind: 'feed', ...body } as const
    const batches = isSmall ? inTurns(parseFeedInParts(body)) : threads.parse(job, signal)
    return await joined(batches)
  } catch {
    return failed(UNPARSED)
  }
}

async function joined(batches: AsyncIterable<Loaded<readonly FeedUpdate[]>>): Promise<Result<FeedUpdate>> {
  let version = ''
  let from: string | null = null
  const credentials = { set: [] as FollowedCredential[], removed: [] as CredentialName[] }
  const revocations = { set: [] as Revocation[], removed: [] as Revocation[] }
  for await (const batch of batches) {
    if (!batch.ok) {
      return failed(batch.problems.join(', '))
    }
    for (const part of batch.value) {
      version = part.version
      from = part.from
      credentials.set.push(...part.credentials.set)
      credentials.removed.push(...part.credentials.removed)
      revocations.set.push(...part.revocations.set)
      revocations.removed.push(...part.revocations.removed)
    }
  }
  return ok({ version, from, credentials, revocations })
}
