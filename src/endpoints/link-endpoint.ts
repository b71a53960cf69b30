/**
 * The link endpoint: creates links to requests that the caller's token allows, and ends links.
 * In: a request with a verified token. Out: a documented response.
 */
import { ERRORS } from '../base/errors.ts'
import { failed, ok } from '../base/result.ts'
import type { SidecarResponse } from '../client/response.ts'
import { HeaderLines, type HeaderList } from '../http/headers.ts'
import { LINKS_PATH, pathOf } from '../http/request-target.ts'
import type { Caller, Identity } from '../token/caller.ts'
import { isLinkId, isLinkOf, LINK_METHODS, linkTargetProblem } from '../token/links.ts'
import { type Scope, scopeAllows } from '../token/scopes.ts'
import { Endpoint } from './endpoint.ts'
import { badArgument, type Members, readJson } from './json-body.ts'

export class LinkEndpoint extends Endpoint {
  /** POST: creates a link. Rejects only on an internal error. */
  async createLink(res: SidecarResponse, caller: Caller): Promise<void> {
    const { config, responder, signer, audit } = this.options
    if (!signer.canSign) return responder.fail(res, 'unavailable', ERRORS.serviceNotReady)
    const body = await readJson(res, config.timeouts.idleSeconds * 1000)
    const fields = body.ok ? readLinkFields(body.value, config.links.maxLifetimeSeconds) : body
    if (!fields.ok) return responder.fail(res, 'invalid', fields.error)
    const { method, target, lifetimeSeconds } = fields.value
    if (!mayLink(caller.identity.scope, method, target))
      return responder.refuse(res, 'scope', ERRORS.accessDenied)
    const issued = await signer.issueLink(caller, method, target, lifetimeSeconds)
    if (issued === undefined)
      return responder.fail(res, 'invalid', badArgument('target is too long for a link of this account.'))
    const { url, linkId, expiresAtSeconds } = issued
    audit.request(res.req, { event: 'link_created', linkId })
    responder.sendJson(res, 200, { url, linkId, expirationSec: this.expirationSec(expiresAtSeconds) })
  }

  /** DELETE: ends a link of the account. The sidecar does not record which links exist. Rejects only on an internal error. */
  async endLink(res: SidecarResponse, { accountId }: Identity, path: string): Promise<void> {
    const { config, responder, now } = this.options
    const linkId = path.slice(config.listen.basePath.length + LINKS_PATH.length + 1)
    if (!isLinkId(linkId)) return responder.fail(res, 'invalid', badArgument('The path has no id of a link.'))
    if (!isLinkOf(linkId, accountId)) return responder.refuse(res, 'scope', ERRORS.accessDenied)
    // The link id does not tell when the link ends, so the longest lifetime counts.
    const expiresAtSeconds = Math.ceil(now() / 1000) + config.links.maxLifetimeSeconds
    const ended = { accountId, tokenId: linkId, expiresAtSeconds }
    await this.revoke(res, ended, { event: 'link_ended', linkId })
  }
}

function readLinkFields(members: Members, maxLifetimeSeconds: number) {
  const method = members.get('method')
  const target = members.get('target')
  const defaultLifetime = Math.min(3600, maxLifetimeSeconds)
  const lifetime = members.has('expirationSec') ? members.get('expirationSec') : defaultLifetime
  const problems: string[] = []
  if (!LINK_METHODS.has(method)) problems.push(`method must be one of ${[...LINK_METHODS].join(', ')}.`)
  const targetProblem = linkTargetProblem(target)
  if (targetProblem !== undefined) problems.push(`target ${targetProblem}.`)
  const isLifetime =
    Number.isInteger(lifetime) && Number(lifetime) >= 1 && Number(lifetime) <= maxLifetimeSeconds
  if (!isLifetime) problems.push(`expirationSec must be an integer from 1 to ${maxLifetimeSeconds}.`)
  if (problems.length > 0) return failed(badArgument(problems.join(' ')))
  return ok({ method: String(method), target: String(target), lifetimeSeconds: Number(lifetime) })
}

/** A scope may allow a PUT only with `If-None-Match: *`. The client of the link can send this header. */
function mayLink(scope: Scope | undefined, method: string, target: string): boolean {
  const request = { method, target, path: pathOf(target), host: undefined }
  const mayWith = (headers: HeaderList) =>
    scope === undefined || scopeAllows(scope, { ...request, lines: new HeaderLines(headers) })
  return mayWith([]) || mayWith(['If-None-Match', '*'])
}
