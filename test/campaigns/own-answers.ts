/**
 * The form of the answers that the sidecar makes itself.
 *
 * In: an answer as a client received it. Out: its status and code, or the rule it breaks: JSON with a code and a
 * message, a length, nothing to be stored, a request id; errors named in `Proxy-Status`, a time to come back on a 503.
 *
 * @module
 */
import type { ClientAnswer } from './client-answers.ts'
import { single } from './http-grammar.ts'

/** Whether an answer was made by the sidecar: the upstream names itself in each of its own. */
export function isOwnAnswer({ fields }: ClientAnswer): boolean {
  const status = single(fields, 'proxy-status')
  if (typeof status === 'object' && status.value.startsWith('storage-auth-sidecar')) return true
  const stored = single(fields, 'cache-control')
  return typeof stored === 'object' && stored.value === 'no-store' && single(fields, 'x-fz') === undefined
}

/** The answer in the form `400 InvalidToken`, with `?` for the code where there is no body, or what is wrong with it. */
export function ownAnswerProblem(
  answer: ClientAnswer,
  toHead: boolean,
  keptRequestId: string | undefined,
): { readonly answer: string; readonly problem?: string } {
  const { status, body } = answer
  const value = (name: string) => {
    const found = single(answer.fields, name)
    return typeof found === 'object' ? found.value : undefined
  }
  const wrong = (problem: string) => ({ answer: String(status), problem: `own answer: ${problem}` })
  if (value('content-type') !== 'application/json') return wrong('no JSON')
  if (value('cache-control') !== 'no-store') return wrong('may be stored')
  if (value('content-length') === undefined || value('transfer-encoding') !== undefined)
    return wrong('no length')
  const id = value('x-request-id')
  if (id === undefined || !/^[A-Za-z0-9._-]{1,128}$/.test(id)) return wrong('no request id')
  // Where the head could not be read, a new one is right, too.
  if (keptRequestId !== undefined && status !== 400 && status !== 431 && id !== keptRequestId) {
    return wrong('another request id')
  }
  if (status >= 400 && !/^storage-auth-sidecar; error=[a-z_]+/.test(value('proxy-status') ?? '')) {
    return wrong('no Proxy-Status')
  }
  if (status === 503 && !/^[1-9][0-9]*$/.test(value('retry-after') ?? '')) return wrong('no Retry-After')
  if (status === 405 && value('allow') !== 'GET, HEAD, POST') return wrong('no Allow')
  if (body === '' && toHead) return { answer: `${status} ?` }
  const parsed = parse(body)
  if (status === 200) {
    return Number.isInteger(parsed['expirationSec']) ? { answer: '200 ' } : wrong('no expirationSec')
  }
  const { code, message } = parsed
  if (typeof code !== 'string' || typeof message !== 'string' || message === '')
    return wrong('no code and message')
  if (/eyJ|127\.0\.0\.1|\bat .*:[0-9]+|\.ts\b|\/b\//.test(message))
    return wrong('a message that tells too much')
  return { answer: `${status} ${code}` }
}

function parse(body: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(body)
    return typeof value === 'object' && value !== null ? { ...value } : {}
  } catch {
    return {}
  }
}
