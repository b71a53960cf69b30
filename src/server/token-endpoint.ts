/**
 * The token endpoint: credentials in exchange for a token, the seconds a token has left, and its end (logout).
 * In: a request on one of its paths. Out: a documented response, byte for byte the same for every rejected login.
 */
import type { LoginThrottle } from '../credentials/login-throttle.ts'
import { namesProblem } from '../credentials/names.ts'
import type { CredentialName, CredentialStatus, CredentialStore } from '../credentials/store.ts'
import type { EndedToken, Revoked, RevokeToken } from '../credentials/token-revoker.ts'
import { ERRORS, type PublicError } from '../errors.ts'
import type { Audit, AuditedRequest } from '../ops/audit.ts'
import { coversScope, parseScope, type Scope, validScope } from '../token/scopes.ts'
import type { Identity } from '../token/verify.ts'
import type { SidecarRequest, SidecarResponse } from './context.ts'
import { invalid } from './json-body.ts'
import { readLogin } from './login-body.ts'
import type { IssueFailure } from './reasons.ts'
import type { Responder } from './respond.ts'

interface TokenEndpointOptions {
  readonly responder: Responder
  /** Absent in a sidecar that only verifies. */
  readonly credentials: CredentialStore | undefined
  readonly canIssue: () => boolean
  readonly throttle: LoginThrottle
  /** Absent where no database has the revocations. */
  readonly revokeToken: RevokeToken | undefined
  readonly issue: (
    subject: CredentialName & { readonly scope: Scope | undefined },
  ) => Promise<{ readonly token: string; readonly identity: Identity }>
  readonly clientAddress: (req: SidecarRequest) => string
  readonly now: () => number
  readonly contract: {
    readonly expirationSec: 'integer' | 'string'
    readonly authenticationFailedCode: 'Authentication failed' | 'AuthenticationFailed'
  }
  readonly onIssued: () => void
  readonly onIssueFailure: (reason: IssueFailure) => void
  readonly audit: Pick<Audit, 'request'>
}

export interface TokenEndpoint {
  /** POST: issues a token. Rejects only on an internal fault. */
  issue(req: SidecarRequest, res: SidecarResponse): Promise<void>
  /** GET and HEAD. */
  timeLeft(req: SidecarRequest, res: SidecarResponse, identity: Identity): void
  /** DELETE: revokes the token. Rejects only on an internal fault. */
  logout(req: SidecarRequest, res: SidecarResponse, identity: Identity): Promise<void>
  /** Ends a token or a link, and writes `what` to the audit log. Rejects only on an internal fault. */
  end(req: SidecarRequest, res: SidecarResponse, ended: EndedToken, what: AuditedRequest): Promise<void>
  /** Any other method, of links too: a CORS preflight of an allowed origin (Fetch standard), or 405. */
  otherMethod(req: SidecarRequest, res: SidecarResponse, allowed: string): void
}

type Granted =
  | { readonly ok: true; readonly scope: Scope | undefined }
  | { readonly ok: false; readonly error: PublicError; readonly reason: 'invalid' | 'rejected' }

/** That of every field of a login. */
const MAX_ASKED_LENGTH = 1024

const UNAVAILABLE: Revoked = { ok: false, reason: 'unavailable' }

/** Without a delay, 200 clients that ignored `Retry-After` sent 6,000 logins a second and starved token checks. */
const RETRY_LATER_DELAY_MS = 250

export function createTokenEndpoint(options: TokenEndpointOptions): TokenEndpoint {
  const { responder, credentials, throttle, contract, now } = options
  const rejected: PublicError = { ...ERRORS.authenticationFailed, code: contract.authenticationFailedCode }

  /** Whole seconds that are really left; 0 within the clock tolerance. */
  const expirationSec = ({ expiresAtSeconds }: Identity): number | string => {
    const left = Math.max(0, Math.floor(expiresAtSeconds - now() / 1000))
    return contract.expirationSec === 'string' ? String(left) : left
  }

  const recordFailure = (req: SidecarRequest, reason: IssueFailure) => {
    options.onIssueFailure(reason)
    const { loginAccount: account, loginAccessKey: accessKey } = req.context
    options.audit.request(req, { event: 'login_failed', reason, account, accessKey })
  }

  const fail = (
    req: SidecarRequest,
    res: SidecarResponse,
    reason: IssueFailure,
    error: PublicError,
    retryAfterSeconds?: number,
  ) => {
    req.context.fail(reason)
    recordFailure(req, reason)
    const fault = error.status === 503 ? 'proxy_internal_response' : 'http_request_error'
    const errorType = reason === 'rejected' ? 'http_request_denied' : fault
    responder.refuse(req, res, error, { errorType, retryAfterSeconds })
  }

  /** What a login gets: what it asks for within what its credential may do, or all of that. */
  const grant = (asked: string | undefined, name: CredentialName, credential: CredentialStatus): Granted => {
    const refused = (problem: string): Granted => ({ ...invalid(`scope ${problem}.`), reason: 'invalid' })
    if (!credential.active) return { ok: false, error: rejected, reason: 'rejected' } // disabled a moment ago
    const own = validScope(credential.scope)
    if (asked === undefined) return { ok: true, scope: own }
    const read = asked.length > MAX_ASKED_LENGTH ? undefined : parseScope(asked)
    if (read?.ok !== true) return refused(read?.problem ?? `must have at most ${MAX_ASKED_LENGTH} characters`)
    if (own !== undefined && !coversScope(own, read.scope))
      return refused('has an item that the credential does not cover')
    const isTooLong = namesProblem(name.accountId, name.accessKey, asked) !== undefined
    return isTooLong ? refused('is too long for a token with these names') : read
  }

  const failLater = (
    req: SidecarRequest,
    res: SidecarResponse,
    reason: 'busy' | 'throttled',
    retryAfterSeconds?: number,
  ) => {
    if (res.destroyed) return // the client left while its login waited
    const timer = setTimeout(
      () => fail(req, res, reason, ERRORS.serviceNotReady, retryAfterSeconds),
      RETRY_LATER_DELAY_MS,
    )
    req.context.handOver({ onIdle() {}, onRelease: () => clearTimeout(timer) })
  }

  const end: TokenEndpoint['end'] = async (req, res, ended, what) => {
    const revoked = (await options.revokeToken?.(ended)) ?? UNAVAILABLE
    if (!revoked.ok) {
      const { reason, retryAfterSeconds } = revoked
      req.context.fail(reason)
      const errorType = 'proxy_internal_response'
      responder.refuse(req, res, ERRORS.serviceNotReady, { errorType, retryAfterSeconds })
      return
    }
    options.audit.request(req, what)
    responder.send(req, res, 204, undefined)
  }

  return {
    async issue(req, res) {
      if (credentials === undefined || !options.canIssue()) {
        fail(req, res, 'unavailable', ERRORS.serviceNotReady)
        return
      }
      const read = await readLogin(req, res)
      if (!read.ok) {
        fail(req, res, 'invalid', read.error)
        return
      }
      const { login } = read
      if (credentials.hasAccount(login.accountId)) req.context.loginAccount = login.accountId
      const address = options.clientAddress(req)
      const { verdict, retryAfterSeconds } = await throttle.attempt(login, address, async () =>
        res.destroyed ? 'busy' : credentials.authenticate(login, address),
      )
      if (verdict !== 'unavailable' && credentials.credentialStatus(login.accountId, login.accessKey).active)
        req.context.loginAccessKey = login.accessKey
      if (verdict === 'busy' || verdict === 'throttled') failLater(req, res, verdict, retryAfterSeconds)
      else if (verdict !== 'accepted')
        fail(req, res, verdict, verdict === 'rejected' ? rejected : ERRORS.serviceNotReady)
      else {
        const granted = grant(
          read.scope,
          login,
          credentials.credentialStatus(login.accountId, login.accessKey),
        )
        if (!granted.ok) {
          fail(req, res, granted.reason, granted.error)
          return
        }
        const subject = { ...login, scope: granted.scope }
        const { token, identity } = await options.issue(subject).catch((fault: unknown) => {
          recordFailure(req, 'internal')
          throw fault
        })
        req.context.issuedTo = identity
        options.onIssued()
        const { accountId: account, accessKey, tokenId } = identity
        options.audit.request(req, { event: 'login', account, accessKey, tokenId })
        responder.send(req, res, 200, { token, expirationSec: expirationSec(identity) })
      }
    },
    timeLeft(req, res, identity) {
      responder.send(req, res, 200, { expirationSec: expirationSec(identity) })
    },
    logout(req, res, identity) {
      const { accountId: account, accessKey, tokenId } = identity
      return end(req, res, identity, { event: 'logout', account, accessKey, tokenId })
    },
    end,
    otherMethod(req, res, allowed) {
      const { admitted } = req.context
      if (admitted?.preflight === true && responder.allows(admitted.origin)) {
        responder.send(req, res, 204, undefined, [
          'Access-Control-Allow-Methods',
          allowed,
          'Access-Control-Allow-Headers',
          'authorization, content-type',
          'Access-Control-Max-Age',
          '600',
        ])
        return
      }
      req.context.fail('method')
      responder.refuse(req, res, ERRORS.methodNotAllowed, {
        errorType: 'http_request_error',
        headers: ['Allow', allowed],
      })
    },
  }
}
