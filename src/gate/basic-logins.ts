/**
 * The interface of HTTP Basic (RFC 7617) to the gate and the handler. The room `basic/` makes the logins and
 * caches them. A login proves a caller as a token does.
 */
import type { Result } from '../base/result.ts'
import type { Caller } from '../token/caller.ts'

/** `cause`: for the access log. */
export interface RefusedLogin {
  readonly reason: 'credentials' | 'unavailable'
  readonly cause?: string | undefined
  readonly retryAfterSeconds?: number | undefined
}

export type BasicVerdict = Result<Caller, RefusedLogin>

export interface BasicLogins {
  /**
   * Returns the caller of a remembered login, or the refusal of a malformed value.
   * Undefined: the login must be made.
   */
  find(authorization: string): BasicVerdict | undefined
  /**
   * Checks an earlier login again, also one that is no longer cached, for a request that waits and for
   * a tunnel: its credential and its secret may have ended. Needs no secret.
   * Rejects only on an internal error.
   */
  checkAgain(caller: Caller): Promise<BasicVerdict>
  /** Must be called after each change of the sidecar's key files, or of credentials. */
  clear(): void
}
