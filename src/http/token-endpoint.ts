/**
 * The token endpoint: credentials in exchange for a token, and the time a token has left.
 *
 * In: an exchange on one of the endpoint's paths. Out: one of the documented answers. Every login that fails gets
 * the same answer to the byte, whatever it failed on.
 *
 * @module
 */

import type { LoginThrottle } from '../credentials/login-throttle.ts'
import type { CredentialStore, Login } from '../credentials/store.ts'
import { ERRORS, type PublicError } from '../errors.ts'
import type { Identity } from '../token/verdict.ts'
import { jsonAnswer } from './answers.ts'
import { headerValues } from './client-request.ts'
import type { Deadlines, Waiting } from './deadlines.ts'
import type { Exchange } from './exchange.ts'
import { checkLoginHeaders, MAX_LOGIN_BYTES, parseLogin, TOO_LARGE } from './login-request.ts'
import { readBody } from './read-body.ts'
import type { Responder } from './respond.ts'

/** Why no token was issued; the label `reason` of `auth_sidecar_token_issue_failures_total`. */
export const ISSUE_FAILURES = ['invalid', 'rejected', 'throttled', 'busy', 'unavailable', 'internal'] as const

/** One of them. */
export type IssueFailure = (typeof ISSUE_FAILURES)[number]

/** What the token endpoint works with. */
export interface TokenEndpointOptions {
  readonly responder: Responder
  /** Absent in a sidecar that only verifies. */
  readonly credentials: CredentialStore | undefined
  /** Whether there is a key to sign with. */
  readonly canIssue: () => boolean
  readonly throttle: LoginThrottle
  /** Mints a token. */
  readonly issue: (subject: {
    accountId: string
    accessKey: string
  }) => Promise<{ token: string; identity: Identity }>
  /** The address that failed logins are counted for. */
  readonly clientAddress: (exchange: Exchange) => string
  readonly deadlines: Deadlines
  readonly idleMs: number
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Setting `contract`. */
  readonly contract: {
    readonly expirationSec: 'integer' | 'string'
    readonly authenticationFailedCode: 'Authentication failed' | 'AuthenticationFailed'
  }
  readonly onIssued: () => void
  readonly onIssueFailure: (reason: IssueFailure) => void
}

/** Answers requests on the token endpoint's paths. */
export interface TokenEndpoint {
  /** POST: issues a token. Rejects only on a fault of our own. */
  issue(exchange: Exchange): Promise<void>
  /** GET and HEAD: tells the seconds that a verified token has left. */
  tell(exchange: Exchange, identity: Identity): void
  /** Any other method. */
  refuseMethod(exchange: Exchange): void
}

/** An argument that is not valid, in words that name it. */
const invalid = (message: string): PublicError => ({ ...ERRORS.invalidArgument, message })

const TOO_LARGE_BODY = invalid(TOO_LARGE)

/** A login, or what is said of a request that holds none. */
type ReadLogin =
  | { readonly ok: true; readonly login: Login }
  | { readonly ok: false; readonly error: PublicError }

const noLogin = (error: PublicError): ReadLogin => ({ ok: false, error })

/** What is said of a body that could not be read. */
const BODY_ERRORS = {
  too_large: TOO_LARGE_BODY,
  idle: ERRORS.requestTimeout,
  malformed: ERRORS.malformedRequest,
} as const

/** Makes the token endpoint. */
export function createTokenEndpoint(options: TokenEndpointOptions): TokenEndpoint {
  const { responder, credentials, throttle, contract, now } = options
  const rejected: PublicError = { ...ERRORS.authenticationFailed, code: contract.authenticationFailedCode }

  /** Whole seconds left; a token inside the clock tolerance has none. */
  const expirationSec = ({ expiresAt }: Identity): number | string => {
    const left = Math.max(0, expiresAt - Math.floor(now() / 1000))
    return contract.expirationSec === 'string' ? String(left) : left
  }

  const fail = (exchange: Exchange, reason: IssueFailure, error: PublicError, retryAfterSeconds?: number) => {
    exchange.reason = reason
    options.onIssueFailure(reason)
    const denied = reason === 'rejected'
    responder.refuse(exchange, error, {
      error: denied
        ? 'http_request_denied'
        : error.status === 503
          ? 'proxy_internal_response'
          : 'http_request_error',
      ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
    })
  }

  /** Turns a login away for which there is no room now, a moment later. */
  const turnAway = async (exchange: Exchange, reason: 'busy' | 'throttled', retryAfterSeconds?: number) => {
    await pause(options.deadlines, SURPLUS_PAUSE_MS)
    fail(exchange, reason, ERRORS.serviceNotReady, retryAfterSeconds)
  }

  /** Reads the login from the body, or says what is wrong with it; nothing when there is nobody to tell. */
  async function readLogin(exchange: Exchange): Promise<ReadLogin | undefined> {
    const { req, res, admitted } = exchange
    const headers = checkLoginHeaders((name) => headerValues(req.rawHeaders, name))
    if (!headers.ok) return noLogin(invalid(headers.message))
    if (admitted !== undefined && admitted.contentLength > MAX_LOGIN_BYTES) return noLogin(TOO_LARGE_BODY)
    if (admitted?.expectsContinue) res.writeContinue()
    const { deadlines, idleMs } = options
    const body = await readBody(exchange, { maxBytes: MAX_LOGIN_BYTES, idleMs, deadlines })
    if (!body.ok) return body.reason === 'gone' ? undefined : noLogin(BODY_ERRORS[body.reason])
    const parsed = parseLogin(body.bytes)
    return parsed.ok ? parsed : noLogin(invalid(parsed.message))
  }

  async function mint(login: Login): Promise<{ token: string; identity: Identity }> {
    try {
      return await options.issue(login)
    } catch (fault) {
      options.onIssueFailure('internal')
      throw fault
    }
  }

  return {
    async issue(exchange) {
      if (credentials === undefined || !options.canIssue()) {
        fail(exchange, 'unavailable', ERRORS.serviceNotReady)
        return
      }
      const read = await readLogin(exchange)
      if (read === undefined) return
      if (!read.ok) {
        fail(exchange, 'invalid', read.error)
        return
      }
      const { login } = read
      if (credentials.hasAccount(login.accountId)) exchange.namedAccount = login.accountId
      const address = options.clientAddress(exchange)
      const attempt = throttle.check(login.accountId, address)
      if (!attempt.ok) {
        await turnAway(exchange, 'throttled', attempt.retryAfterSeconds)
        return
      }
      const verdict = await credentials.authenticate(login, address)
      attempt.settle(verdict)
      if (verdict === 'accepted') {
        const { token, identity } = await mint(login)
        exchange.identity = identity
        options.onIssued()
        responder.respond(exchange, jsonAnswer(200, { token, expirationSec: expirationSec(identity) }))
      } else if (verdict === 'busy') {
        await turnAway(exchange, verdict)
      } else {
        fail(exchange, verdict, verdict === 'rejected' ? rejected : ERRORS.serviceNotReady)
      }
    },
    tell(exchange, identity) {
      responder.respond(exchange, jsonAnswer(200, { expirationSec: expirationSec(identity) }))
    },
    refuseMethod(exchange) {
      exchange.reason = 'method'
      responder.refuse(exchange, ERRORS.methodNotAllowed, {
        error: 'http_request_error',
        allow: 'GET, HEAD, POST',
      })
    },
  }
}

/**
 * How long a login that is turned away waits for its answer, in milliseconds. Clients that come back at once, whatever
 * `Retry-After` says, would take all of a core: 200 of them made 6,000 logins a second, and token checks waited.
 */
const SURPLUS_PAUSE_MS = 250

function pause(deadlines: Deadlines, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const waiting: Waiting = {
      deadline: deadlines.monotonicNow() + ms,
      expire() {
        deadlines.delete(waiting)
        resolve()
      },
    }
    deadlines.add(waiting)
  })
}
