/**
 * The token check: whether a request that needs a token has one.
 *
 * In: the `Authorization` value of an admitted request on a route that needs a token. Out: who the request
 * speaks for, or why it goes no further. A remembered token is decided at once, any other with a promise.
 *
 * @module
 */
import type { RejectReason, Verdict, Verify } from '../token/verdict.ts'
import { bearerToken } from './bearer.ts'

/** What the check works with. */
export interface TokenCheckOptions {
  readonly verify: Verify
  /** Told of each token check, for the metrics. */
  readonly onCheck: (reason: 'ok' | RejectReason) => void
}

/** Decides on the `Authorization` value of a request that needs a token. Never throws. */
export type CheckToken = (authorization: string | undefined) => Verdict | Promise<Verdict>

const missing: Verdict = { ok: false, reason: 'missing' }
const malformed: Verdict = { ok: false, reason: 'malformed' }

/** Makes the check. Its promise rejects only on a fault of our own. */
export function createTokenCheck({ verify, onCheck }: TokenCheckOptions): CheckToken {
  const count = (verdict: Verdict): Verdict => {
    onCheck(verdict.ok ? 'ok' : verdict.reason)
    return verdict
  }
  return (authorization) => {
    try {
      const bearer = bearerToken(authorization)
      if (bearer.token === undefined) return count(bearer.reason === 'missing' ? missing : malformed)
      const verdict = verify(bearer.token)
      return verdict instanceof Promise ? verdict.then(count) : count(verdict)
    } catch (error) {
      return Promise.reject(error) // the caller knows by now whose request it is, and has somewhere to say so
    }
  }
}
