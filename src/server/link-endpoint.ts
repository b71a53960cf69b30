/**
 * The link endpoint: makes links for a request that the caller's token allows, and ends them.
 * In: a request with a verified token. Out: a documented response.
 */
import { ERRORS, type PublicError } from '../errors.ts'
import { pathOf } from '../http/request-target.ts'
import type { Audit } from '../ops/audit.ts'
import type { LinkIssuer } from '../token/issue.ts'
import { isLinkId, isMakerOf, LINK_METHODS, type LinkedRequest, linkTargetProblem } from '../token/links.ts'
import { allows } from '../token/scopes.ts'
import type { Accepted } from '../token/verify.ts'
import type { SidecarRequest, SidecarResponse } from './context.ts'
import { invalid, type Refusal, readJson } from './json-body.ts'
import type { Reason } from './reasons.ts'
import type { Responder } from './respond.ts'
import type { TokenEndpoint } from './token-endpoint.ts'

interface LinkEndpointOptions {
  readonly responder: Responder
  readonly canIssue: () => boolean
  readonly issue: LinkIssuer
  readonly maxLifetimeSeconds: number
  readonly now: () => number
  readonly expirationSec: 'integer' | 'string'
  readonly onIssued: () => void
  readonly audit: Pick<Audit, 'request'>
  readonly endToken: TokenEndpoint['end']
}

export interface LinkEndpoint {
  /** POST: makes a link. Rejects only on an internal fault. */
  create(req: SidecarRequest, res: SidecarResponse, caller: Accepted): Promise<void>
  /** DELETE: ends a link of the caller's account, known or not. Rejects only on an internal fault. */
  end(req: SidecarRequest, res: SidecarResponse, caller: Accepted): Promise<void>
}

/** After `listen.basePath`. */
const LINKS_PATH = '/v2/auth/links/'

/** A link's lifetime where the request names none. */
const DEFAULT_LIFETIME_SECONDS = 3600

/** A PUT that creates only is allowed with less: the header of its request says which one it is. */
const CREATES = ['If-None-Match', '*']

type Asked = { readonly ok: true; readonly linked: LinkedRequest; readonly lifetime: number } | Refusal

export function createLinkEndpoint(options: LinkEndpointOptions): LinkEndpoint {
  const { responder, maxLifetimeSeconds, now } = options

  const refuse = (req: SidecarRequest, res: SidecarResponse, reason: Reason, error: PublicError) => {
    req.context.fail(reason)
    if (reason === 'scope') {
      responder.refuse(req, res, error, { errorType: 'http_request_denied', details: reason })
      return
    }
    const errorType = error.status === 503 ? 'proxy_internal_response' : 'http_request_error'
    responder.refuse(req, res, error, { errorType })
  }

  const readAsked = (members: ReadonlyMap<string, unknown>): Asked => {
    const method = members.get('method')
    const target = members.get('target')
    const lifetime = members.get('expirationSec') ?? undefined
    const problems: string[] = []
    if (!LINK_METHODS.has(method)) problems.push(`method must be one of ${[...LINK_METHODS].join(', ')}.`)
    const targetProblem = linkTargetProblem(target)
    if (targetProblem !== undefined) problems.push(`target ${targetProblem}.`)
    const isLifetime =
      typeof lifetime === 'number' &&
      Number.isInteger(lifetime) &&
      lifetime >= 1 &&
      lifetime <= maxLifetimeSeconds
    if (members.has('expirationSec') && !isLifetime)
      problems.push(`expirationSec must be an integer from 1 to ${maxLifetimeSeconds}.`)
    if (problems.length > 0) return invalid(problems.join(' '))
    const fallback = Math.min(DEFAULT_LIFETIME_SECONDS, maxLifetimeSeconds)
    const linked = { method: String(method), target: String(target) }
    return { ok: true, linked, lifetime: isLifetime ? lifetime : fallback }
  }

  return {
    async create(req, res, caller) {
      if (!options.canIssue()) return refuse(req, res, 'unavailable', ERRORS.serviceNotReady)
      const read = await readJson(req, res)
      const asked = read.ok ? readAsked(read.members) : read
      if (!asked.ok) return refuse(req, res, 'invalid', asked.error)
      const { method, target } = asked.linked
      const { identity } = caller
      const { scope } = identity
      const request = { method, path: pathOf(target), host: undefined, connectionOptions: undefined }
      if (scope !== undefined && !allows(scope, request, []) && !allows(scope, request, CREATES))
        return refuse(req, res, 'scope', ERRORS.accessDenied)
      const issued = await options.issue(caller, asked.linked, asked.lifetime)
      if (issued === undefined)
        return refuse(req, res, 'invalid', invalid('target is too long for a link of this account.').error)
      options.onIssued()
      const { url, linkId, expiresAtSeconds } = issued
      const { accountId: account, accessKey, tokenId } = identity
      options.audit.request(req, { event: 'link_created', account, accessKey, tokenId, linkId })
      const left = Math.max(0, Math.floor(expiresAtSeconds - now() / 1000))
      const expirationSec = options.expirationSec === 'string' ? String(left) : left
      responder.send(req, res, 200, { url, linkId, expirationSec })
    },
    async end(req, res, { identity }) {
      const path = req.context.admitted?.path ?? ''
      const linkId = path.slice(path.lastIndexOf(LINKS_PATH) + LINKS_PATH.length)
      const { accountId, accessKey, tokenId } = identity
      if (!isLinkId(linkId))
        return refuse(req, res, 'invalid', invalid('The path has no id of a link.').error)
      if (!isMakerOf(linkId, accountId)) return refuse(req, res, 'scope', ERRORS.accessDenied)
      // The id does not say when the link ends.
      const expiresAtSeconds = Math.ceil(now() / 1000) + maxLifetimeSeconds
      const ended = { accountId, tokenId: linkId, expiresAtSeconds }
      await options.endToken(req, res, ended, {
        event: 'link_ended',
        account: accountId,
        accessKey,
        tokenId,
        linkId,
      })
    },
  }
}
