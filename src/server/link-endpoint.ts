/**
 * The link endpoint: makes links for a request that the caller's token allows, and ends them.
 * In: a request with a verified token. Out: a documented response.
 */
import { decodeJwt } from 'jose/jwt/decode'
import { ERRORS } from '../errors.ts'
import { pathOf } from '../http/request-target.ts'
import type { Audit } from '../ops/audit.ts'
import type { Caller, Identity } from '../token/caller.ts'
import type { LinkIssuer } from '../token/issue.ts'
import { isLinkId, isMakerOf, LINK_METHODS, type LinkedRequest, linkTargetProblem } from '../token/links.ts'
import { allows } from '../token/scopes.ts'
import type { SidecarRequest, SidecarResponse } from './context.ts'
import { invalid, type Refusal, readJson } from './json-body.ts'
import type { Responder } from './respond.ts'
import type { TokenEndpoint } from './token-endpoint.ts'

interface LinkEndpointOptions {
  readonly responder: Responder
  readonly tokenEndpoint: TokenEndpoint
  readonly canIssue: () => boolean
  readonly issue: LinkIssuer
  readonly maxLifetimeSeconds: number
  readonly now: () => number
  readonly onIssued: () => void
  readonly audit: Pick<Audit, 'request'>
}

/** A link's lifetime where the request names none. */
const DEFAULT_LIFETIME_SECONDS = 3600

type Asked = { readonly ok: true; readonly linked: LinkedRequest; readonly lifetime: number } | Refusal

export class LinkEndpoint {
  readonly #options: LinkEndpointOptions

  constructor(options: LinkEndpointOptions) {
    this.#options = options
  }

  /** POST: makes a link. Rejects only on an internal fault. */
  async create(req: SidecarRequest, res: SidecarResponse, caller: Caller): Promise<void> {
    const { responder, maxLifetimeSeconds, tokenEndpoint } = this.#options
    if (!this.#options.canIssue()) return responder.refuse(req, res, 'unavailable', ERRORS.serviceNotReady)
    const read = await readJson(req, res)
    const asked = read.ok ? readAsked(read.members, maxLifetimeSeconds) : read
    if (!asked.ok) return responder.refuse(req, res, 'invalid', asked.error)
    const { method, target } = asked.linked
    const { scope } = caller.identity
    const request = {
      method,
      path: pathOf(target),
      rawHeaders: [],
      host: undefined,
      connectionOptions: undefined,
    }
    const creating = { ...request, rawHeaders: ['If-None-Match', '*'] }
    // A PUT that creates only is allowed with less: the header of its request says which one it is.
    if (scope !== undefined && !allows(scope, request) && !allows(scope, creating))
      return this.#deny(req, res)
    const parent = { ...caller, issuedAtSeconds: issuedAt(req.context.admitted?.authorization) }
    const issued = await this.#options.issue(parent, asked.linked, asked.lifetime)
    if (issued === undefined) return responder.refuse(req, res, 'invalid', TARGET_TOO_LONG)
    const { url, linkId, expiresAtSeconds } = issued
    this.#options.onIssued()
    this.#options.audit.request(req, { event: 'link_created', linkId })
    const expirationSec = tokenEndpoint.expirationSec(expiresAtSeconds)
    responder.send(req, res, 200, { url, linkId, expirationSec })
  }

  /** DELETE: ends a link of the caller's account, known or not. Rejects only on an internal fault. */
  async end(
    req: SidecarRequest,
    res: SidecarResponse,
    { accountId }: Identity,
    linkId: string,
  ): Promise<void> {
    const { responder, maxLifetimeSeconds, tokenEndpoint, now } = this.#options
    if (!isLinkId(linkId)) return responder.refuse(req, res, 'invalid', NO_LINK_ID)
    if (!isMakerOf(linkId, accountId)) return this.#deny(req, res)
    // The id does not say when the link ends.
    const expiresAtSeconds = Math.ceil(now() / 1000) + maxLifetimeSeconds
    const ended = { accountId, tokenId: linkId, expiresAtSeconds }
    await tokenEndpoint.end(req, res, ended, { event: 'link_ended', linkId })
  }

  #deny(req: SidecarRequest, res: SidecarResponse): void {
    const options = { errorType: 'http_request_denied', details: 'scope' } as const
    this.#options.responder.refuse(req, res, 'scope', ERRORS.accessDenied, options)
  }
}

const TARGET_TOO_LONG = invalid('target is too long for a link of this account.').error
const NO_LINK_ID = invalid('The path has no id of a link.').error

function readAsked(members: ReadonlyMap<string, unknown>, maxLifetimeSeconds: number): Asked {
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

/** Of a verified token, in epoch seconds. Cached tokens do not keep it. */
function issuedAt(authorization = ''): number {
  return decodeJwt(authorization.slice(authorization.lastIndexOf(' ') + 1)).iat ?? 0
}
