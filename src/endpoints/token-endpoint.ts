/**
 * The token endpoint: issues tokens for credentials, and reports the seconds that a token has left.
 * In: a request. Out: a documented response, byte for byte the same for every rejected login.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { ERRORS, type LoginFailure, type PublicError } from '../base/errors.ts'
import { failed, ok, type Result } from '../base/result.ts'
import { claimsProblem, nameProblem, secretProblem } from '../base/schemas.ts'
import { clientNetwork } from '../client/client-address.ts'
import type { ErrorResponseOptions } from '../client/responder.ts'
import type { SidecarResponse } from '../client/response.ts'
import type { Login } from '../credentials/credential-checks.ts'
import type { Identity } from '../token/caller.ts'
import type { CredentialStatus } from '../token/issuers.ts'
import { coversScope, parseScope, parseStoredScope, type Scope } from '../token/scopes.ts'
import { type Dependencies, expirationSec } from './endpoint.ts'
import { badArgument, type Members, readJson } from './json-body.ts'

/** Without a delay, 200 clients that ignored `Retry-After` sent 6,000 logins/s and starved token checks. */
const RETRY_DELAY_MS = 250

/** POST: issues a token. Rejects only on an internal error. */
export async function logIn(dependencies: Dependencies, res: SidecarResponse): Promise<void> {
  const { config, credentials, throttle, signer, responder, audit } = dependencies
  const { context, clientAddress } = res.req
  const fail = (reason: LoginFailure, error: PublicError, responseOptions?: ErrorResponseOptions) => {
    audit.request(res.req, { event: 'login_failed', reason })
    responder.fail(res, reason, error, responseOptions)
  }
  if (credentials === undefined || !signer.canSign) return fail('unavailable', ERRORS.serviceNotReady)
  const body = await readJson(res, config.timeouts.idleSeconds * 1000)
  const fields = body.ok ? readLogin(body.value) : body
  if (!fields.ok) return fail('invalid', fields.error)
  const { login, requestedScope } = fields.value
  const { accountId, accessKey } = login
  if (credentials.hasAccount(accountId)) context.recordIdentity({ accountId })

  const network = clientNetwork(clientAddress)
  const { verdict, retryAfterSeconds } = await throttle(login, network, async () =>
    res.destroyed ? 'busy' : credentials.authenticate(login, network),
  )
  if (verdict === 'unavailable') return fail(verdict, ERRORS.serviceNotReady)
  const credential = credentials.credentialStatus(accountId, accessKey)
  if (credential.active || credential.exists) context.recordIdentity({ accountId, accessKey })
  if (verdict === 'busy' || verdict === 'throttled') {
    if (verdict === 'busy' && res.destroyed) return // the client left while its login waited
    audit.request(res.req, { event: 'login_failed', reason: verdict })
    await sleep(RETRY_DELAY_MS)
    return responder.fail(res, verdict, ERRORS.serviceNotReady, { retryAfterSeconds })
  }
  // The credential may have been disabled since the check. The response is the same for every rejected login.
  if (verdict === 'rejected' || !credential.active) {
    const rejected = { ...ERRORS.authenticationFailed, code: config.contract.authenticationFailedCode }
    return fail('rejected', rejected, { errorType: 'http_request_denied' })
  }

  const granted = grantScope(requestedScope, login, credential)
  if (!granted.ok) return fail('invalid', granted.error)
  const named = { accountId, accessKey, scope: granted.value }
  const { token, identity } = await signer.issueToken(named).catch((error: unknown) => {
    audit.request(res.req, { event: 'login_failed', reason: 'internal' })
    throw error
  })
  context.recordIdentity(identity)
  audit.request(res.req, { event: 'login' })
  const lifetime = expirationSec(dependencies, identity.expiresAtSeconds)
  responder.sendJson(res, 200, { token, expirationSec: lifetime })
}

export function sendTimeLeft(dependencies: Dependencies, res: SidecarResponse, identity: Identity): void {
  const left = expirationSec(dependencies, identity.expiresAtSeconds)
  dependencies.responder.sendJson(res, 200, { expirationSec: left })
}

/** Ignores unknown fields. The error names every invalid field. */
function readLogin(members: Members) {
  const problems: string[] = []
  const read = (field: string, problemOf: (text: string) => string | undefined): string => {
    const value = members.get(field)
    const mistake = value === undefined ? 'is missing' : 'must be a string'
    const problem = typeof value === 'string' ? problemOf(value) : mistake
    if (problem !== undefined) problems.push(`${field} ${problem}.`)
    return typeof value === 'string' ? value : ''
  }
  const login = {
    accountId: read('accountId', nameProblem),
    accessKey: read('accessKey', nameProblem),
    secret: read('secret', secretProblem),
  }
  // `grantScope` checks the text once the login is accepted: a requested scope must not change how a login fails.
  const scope = members.get('scope')
  if (scope !== undefined && typeof scope !== 'string') problems.push('scope must be a string.')
  if (problems.length > 0) return failed(badArgument(problems.join(' ')))
  return ok({ login, requestedScope: scope?.toString() })
}

/** The limit of every field of a login. The scope of a credential may be longer. */
const MAX_REQUESTED_SCOPE_CHARACTERS = 1024

/** Returns the requested scope if the credential covers it. The default is the scope of the credential. */
function grantScope(
  requested: string | undefined,
  { accountId, accessKey }: Login,
  credential: Extract<CredentialStatus, { active: true }>,
): Result<Scope | undefined, PublicError> {
  const own = parseStoredScope(credential.scope)
  if (requested === undefined) return ok(own)
  if (requested.length > MAX_REQUESTED_SCOPE_CHARACTERS)
    return failed(badArgument(`scope must have at most ${MAX_REQUESTED_SCOPE_CHARACTERS} characters.`))
  const scope = parseScope(requested)
  if (!scope.ok) return failed(badArgument(`scope ${scope.error}.`))
  if (own !== undefined && !coversScope(own, scope.value))
    return failed(badArgument('scope has an item that the credential does not cover.'))
  const isTooLong = claimsProblem(accountId, accessKey, requested) !== undefined
  return isTooLong ? failed(badArgument('scope is too long for a token with these names.')) : scope
}
