/**
 * The link endpoint: makes links for a request that the caller's token allows, and ends them.
 * In: a request with a verified token. Out: a documented response.
 */
import { ERRORS } from '../errors.ts'
import { pathOf } from '../http/request-target.ts'
import type { Caller, Identity } from '../token/caller.ts'
import { isLinkId, isLinkOf, LINK_METHODS, type LinkedRequest, linkTargetProblem } from '../token/links.ts'
import { allows, type Scope } from '../token/scopes.ts'
import type { SidecarResponse } from './context.ts'
import { invalid, type Reading, readJson } from './json-body.ts'
import { type EndpointOptions, expirationSec, revoke } from './token-endpoint.ts'

/** A link's lifetime where the request names none. */
const DEFAULT_LIFETIME_SECONDS = 3600

export class LinkEndpoint {
  readonly #options: EndpointOptions

  constructor(options: EndpointOptions) {
    this.#options = options
  }

  /** POST: makes a link. Rejects only on an internal error. */
  async issueLink(res: SidecarResponse, caller: Caller): Promise<void> {
    const { config, responder, signer, audit, metrics } = this.#options
    if (!signer.canSign) return responder.refuse(res, 'unavailable', ERRORS.serviceNotReady)
    const read = await readJson(res, config.timeouts.idleSeconds)
    const fields = read.ok ? readFields(read.members, config.links.maxLifetimeSeconds) : read
    if (!fields.ok) return responder.refuse(res, 'invalid', fields.error)
    const { linked, lifetime } = fields
    if (!mayLink(caller.identity.scope, linked)) return this.#deny(res)
    const issued = await signer.issueLink(caller, linked, lifetime)
    if (issued === undefined) return responder.refuse(res, 'invalid', TARGET_TOO_LONG)
    const { url, linkId, expiresAtSeconds } = issued
    metrics.onLinkIssued()
    audit.request(res.req, { event: 'link_created', linkId })
    const left = expirationSec(this.#options, expiresAtSeconds)
    responder.send(res, 200, { url, linkId, expirationSec: left })
  }

  /** DELETE: ends a link of the caller's account, known or not. Rejects only on an internal error. */
  async endLink(res: SidecarResponse, { accountId }: Identity, linkId: string): Promise<void> {
    const { config, responder, now } = this.#options
    if (!isLinkId(linkId)) return responder.refuse(res, 'invalid', NO_LINK_ID)
    if (!isLinkOf(linkId, accountId)) return this.#deny(res)
    // The id does not say when the link ends.
    const expiresAtSeconds = Math.ceil(now() / 1000) + config.links.maxLifetimeSeconds
    const ended = { accountId, tokenId: linkId, expiresAtSeconds }
    await revoke(this.#options, res, ended, { event: 'link_ended', linkId })
  }

  #deny(res: SidecarResponse): void {
    const options = { errorType: 'http_request_denied', details: 'scope' } as const
    this.#options.responder.refuse(res, 'scope', ERRORS.accessDenied, options)
  }
}

const TARGET_TOO_LONG = invalid('target is too long for a link of this account.').error
const NO_LINK_ID = invalid('The path has no id of a link.').error

/** `lifetime`: whole seconds. */
function readFields(
  members: ReadonlyMap<string, unknown>,
  maxLifetimeSeconds: number,
): Reading<{ linked: LinkedRequest; lifetime: number }> {
  const method = members.get('method')
  const target = members.get('target')
  const fallback = Math.min(DEFAULT_LIFETIME_SECONDS, maxLifetimeSeconds)
  const lifetime = members.has('expirationSec') ? members.get('expirationSec') : fallback
  const problems: string[] = []
  if (!LINK_METHODS.has(method)) problems.push(`method must be one of ${[...LINK_METHODS].join(', ')}.`)
  const targetProblem = linkTargetProblem(target)
  if (targetProblem !== undefined) problems.push(`target ${targetProblem}.`)
  const isLifetime =
    Number.isInteger(lifetime) && Number(lifetime) >= 1 && Number(lifetime) <= maxLifetimeSeconds
  if (!isLifetime) problems.push(`expirationSec must be an integer from 1 to ${maxLifetimeSeconds}.`)
  if (problems.length > 0) return invalid(problems.join(' '))
  const linked = { method: String(method), target: String(target) }
  return { ok: true, linked, lifetime: Number(lifetime) }
}

/** A PUT that only creates is allowed with less: the header `If-None-Match` of its request says so later. */
function mayLink(scope: Scope | undefined, { method, target }: LinkedRequest): boolean {
  const request = { method, path: pathOf(target), host: undefined, connectionOptions: undefined }
  const mayWith = (rawHeaders: readonly string[]) =>
    scope === undefined || allows(scope, { ...request, rawHeaders })
  return mayWith([]) || mayWith(['If-None-Match', '*'])
}
