/**
 * Fetches one small document from a server that may be slow, away or not what it should be.
 *
 * In: its URL. Out: the bytes, or why there are none. It takes a bounded time and a bounded size, whatever the
 * server sends and however it is compressed. A redirect is not followed: keys come from where the settings say,
 * and from nowhere else. What is said of a failure repeats neither the URL, whose query may be a secret, nor
 * anything of the answer.
 *
 * @module
 */

/** The outcome of a fetch. */
export type Fetched =
  | { readonly ok: true; readonly bytes: Uint8Array }
  | { readonly ok: false; readonly problem: string }

/** What a fetch works with. */
export interface FetchOptions {
  /** Ends the fetch when it is aborted; aborted when the fetch is over. For one fetch only. */
  readonly abort: AbortController
  /** From the beginning to the last byte; default 5 s. */
  readonly timeoutMs?: number
  /** Default 1 MiB, after decompression. */
  readonly maxBytes?: number
  /** Default: the global `fetch`. */
  readonly fetch?: typeof globalThis.fetch
}

/** Fetches a document. Never rejects. */
export async function fetchDocument(url: string, options: FetchOptions): Promise<Fetched> {
  const { abort, timeoutMs = 5000, maxBytes = 1_048_576, fetch = globalThis.fetch } = options
  const timer = setTimeout(() => abort.abort(), timeoutMs)
  const request = fetch(url, {
    redirect: 'manual',
    signal: abort.signal,
    headers: { accept: 'application/jwk-set+json, application/json' },
  })
  const fetched = await request
    .then((response) => readResponse(response, maxBytes))
    .catch((error: unknown): Fetched => {
      if (abort.signal.aborted) return { ok: false, problem: `was not there within ${timeoutMs / 1000} s` }
      return { ok: false, problem: `cannot be fetched: ${errorCode(error)}` }
    })
  clearTimeout(timer)
  abort.abort() // what is left is not read, and must not be waited for
  return fetched
}

async function readResponse({ status, body }: Response, maxBytes: number): Promise<Fetched> {
  if (status !== 200) return { ok: false, problem: statusProblem(status) }
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of body ?? []) {
    size += chunk.length
    if (size > maxBytes) return { ok: false, problem: `is larger than ${maxBytes} bytes` }
    chunks.push(chunk)
  }
  return { ok: true, bytes: Buffer.concat(chunks) }
}

function statusProblem(status: number): string {
  const redirected = status >= 300 && status < 400 ? ', and redirects are not followed' : ''
  return `was answered with status ${status}${redirected}`
}

/** `fetch` says what happened in the cause of its error; codes of systems and libraries hold nothing secret. */
function errorCode(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined
  return cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown fault'
}
