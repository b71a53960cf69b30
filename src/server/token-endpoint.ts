/**
 * The token endpoint: credentials in exchange for a token, the seconds a token has left, and its end (logout).
 * In: a request on one of its paths. Out: a documented response, byte for byte the same for every rejected login.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { CredentialStore, Login } from '../credentials/store.ts'
import type { LoginThrottle } from '../credentials/throttles.ts'
import { ERRORS, type PublicError } from '../errors.ts'
import type { Identity } from '../token/caller.ts'
import type { CredentialStatus } from '../token/issuers.ts'
import { coversScope, parseScope, type Scope, validScope } from '../token/scopes.ts'
import { nameProblem, namesProblem, secretProblem } from '../values/names.ts'
import { clientNetwork } from './client-address.ts'
import type { IssueFailure, SidecarRequest, SidecarResponse } from './context.ts'
import { type EndpointOptions, expirationSec, invalid, type Reading, readJson, revoke } from './endpoint.ts'
import type { RefusalOptions } from './respond.ts'

interface TokenEndpointOptions extends EndpointOptions {
  /** Absent in a sidecar that only verifies. */
  readonly credentials: CredentialStore | undefined
  readonly throttle: LoginThrottle
  readonly clientAddress: (req: SidecarRequest) => string
  readonly onIssued: () => void
  readonly onIssueFailure: (reason: IssueFailure) => void
}

/** Without a delay, 200 clients that ignored `Retry-After` sent 6,000 logins a second and starved token checks. */
const RETRY_LATER_DELAY_MS = 250

export class TokenEndpoint {
  readonly #options: TokenEndpointOptions
  /** The same for every rejected login. */
  readonly #rejected: PublicError

  constructor(options: TokenEndpointOptions) {
    this.#options = options
    this.#rejected = { ...ERRORS.authenticationFailed, code: options.contract.authenticationFailedCode }
  }

  /** POST: issues a token. Rejects only on an internal error. */
  async issueToken(res: SidecarResponse): Promise<void> {
    const { credentials, signer, throttle, audit, responder } = this.#options
    const { req } = res
    const { context } = req
    if (credentials === undefined || !signer.canSign)
      return this.#fail(res, 'unavailable', ERRORS.serviceNotReady)
    const read = await readJson(res)
    const asked = read.ok ? readLogin(read.members) : read
    if (!asked.ok) return this.#fail(res, 'invalid', asked.error)
    const { login } = asked
    const { accountId, accessKey } = login
    if (credentials.hasAccount(accountId)) context.login = { accountId }
    const client = clientNetwork(this.#options.clientAddress(req))
    const { verdict, retryAfterSeconds } = await throttle(login, client, async () =>
      res.destroyed ? 'busy' : credentials.authenticate(login, client),
    )
    if (verdict === 'unavailable') return this.#fail(res, verdict, ERRORS.serviceNotReady)
    const credential = credentials.credentialStatus(accountId, accessKey)
    if (credential.active) context.login = { accountId, accessKey }
    if (verdict === 'busy' || verdict === 'throttled') {
      if (!res.destroyed) await sleep(RETRY_LATER_DELAY_MS)
      if (res.destroyed) return // the client left while its login waited
      return this.#fail(res, verdict, ERRORS.serviceNotReady, { retryAfterSeconds })
    }
    // Not active: disabled a moment ago.
    if (verdict === 'rejected' || !credential.active)
      return this.#fail(res, 'rejected', this.#rejected, { errorType: 'http_request_denied' })
    const granted = grant(asked.scope, login, credential)
    if (!granted.ok) return this.#fail(res, 'invalid', granted.error)
    const issued = signer.issueToken({ accountId, accessKey, scope: granted.scope })
    const { token, identity } = await issued.catch((error: unknown) => {
      this.#recordFailure(req, 'internal')
      throw error
    })
    context.login = identity
    this.#options.onIssued()
    audit.request(req, { event: 'login' })
    const lifetime = expirationSec(this.#options, identity.expiresAtSeconds)
    responder.send(res, 200, { token, expirationSec: lifetime })
  }

  /** GET and HEAD. */
  checkToken(res: SidecarResponse, { expiresAtSeconds }: Identity): void {
    const left = expirationSec(this.#options, expiresAtSeconds)
    this.#options.responder.send(res, 200, { expirationSec: left })
  }

  /** DELETE: revokes the token. Rejects only on an internal error. */
  logout(res: SidecarResponse, identity: Identity): Promise<void> {
    return revoke(this.#options, res, identity, { event: 'logout' })
  }

  #fail(res: SidecarResponse, reason: IssueFailure, error: PublicError, options?: RefusalOptions): void {
    this.#recordFailure(res.req, reason)
    this.#options.responder.refuse(res, reason, error, options)
  }

  #recordFailure(req: SidecarRequest, reason: IssueFailure): void {
    this.#options.onIssueFailure(reason)
    this.#options.audit.request(req, { event: 'login_failed', reason })
  }
}

const LOGIN_FIELDS = [
  ['accountId', nameProblem],
  ['accessKey', nameProblem],
  ['secret', secretProblem],
] as const

/** Ignores unknown fields; names every invalid one. */
function readLogin(
  members: ReadonlyMap<string, unknown>,
): Reading<{ login: Login; scope: string | undefined }> {
  const fields: Record<string, string> = {}
  const problems: string[] = []
  for (const [field, problemOf] of LOGIN_FIELDS) {
    const text = members.get(field)
    const problem =
      text === undefined ? 'is missing' : typeof text === 'string' ? problemOf(text) : 'must be a string'
    if (problem !== undefined) problems.push(`${field} ${problem}.`)
    else fields[field] = String(text)
  }
  // Its text is checked once the secret has been: what a login asks for must not change how it fails.
  const scope = members.get('scope')
  if (scope !== undefined && typeof scope !== 'string') problems.push('scope must be a string.')
  const { accountId, accessKey, secret } = fields
  return problems.length > 0 || accountId === undefined || accessKey === undefined || secret === undefined
    ? invalid(problems.join(' '))
    : { ok: true, login: { accountId, accessKey, secret }, scope: scope?.toString() }
}

/** That of every field of a login. */
const MAX_ASKED_LENGTH = 1024

/** What a login gets: what it asks for within what its credential may do, or all of that. */
function grant(
  asked: string | undefined,
  { accountId, accessKey }: Login,
  credential: Extract<CredentialStatus, { active: true }>,
): Reading<{ scope: Scope | undefined }> {
  const own = validScope(credential.scope)
  if (asked === undefined) return { ok: true, scope: own }
  const isLong = asked.length > MAX_ASKED_LENGTH
  const scope = isLong ? `must have at most ${MAX_ASKED_LENGTH} characters` : parseScope(asked)
  if (typeof scope === 'string') return invalid(`scope ${scope}.`)
  if (own !== undefined && !coversScope(own, scope))
    return invalid('scope has an item that the credential does not cover.')
  const isTooLong = namesProblem(accountId, accessKey, asked) !== undefined
  return isTooLong ? invalid('scope is too long for a token with these names.') : { ok: true, scope }
}
