/**
 * What a scope and a link allow, read as narrowly as any service could.
 * In: a request at the upstream. Out: whether it may be there. Shares no code with the program.
 */
import { type Field, valuesOf } from '../support/http-text.ts'

/** The request that a link is bound to. */
export interface BoundRequest {
  readonly method: string
  readonly target: string
  /** Without a port. */
  readonly host: string
}

export interface SeenRequest {
  readonly method: string
  readonly target: string
  readonly fields: readonly Field[]
}

/** `scopes.hosts` of the campaigns. Clients of the soak run use the address. */
export const LISTED_HOSTS = ['s', 't:81', '127.0.0.1']

/** The words of headers that may name a second resource. */
export const SECOND_RESOURCE_WORDS = (
  'copy rename move fetch link symlink source target destination location manifest path uri url ' +
  'redirect versions'
).split(' ')

/** A name as a server reads it that takes `_` and `.` for `-`. */
export const folded = (name: string) => name.toLowerCase().replace(/[_.]/g, '-')

/** Names that a scope judges by their values, and registered ones. */
const JUDGED_OR_REGISTERED =
  /^(?:destination|x-copy-from|x-(?:amz|goog|ms)-copy-source|location|content-location|link|uri|redirect-ref)$/
const ABOUT_SOURCE = /^x-(?:amz|goog|ms)-copy-source-(?:if-|range$|server-side-encryption-)/
const FROM_ELSEWHERE = /^(?:x-forwarded-|sec-fetch-|x-[a-z0-9]+-meta-)/
const METHOD_OVERRIDE = /^x-(?:http-method|method-override|http-method-override)$/

function namesMore(field: Field): boolean {
  const name = folded(field.name)
  if (METHOD_OVERRIDE.test(name)) {
    return true
  }
  // A look-alike, such as `X_Copy_From`, may not be there in any value.
  if (JUDGED_OR_REGISTERED.test(field.name.toLowerCase())) {
    return false
  }
  const isHarmless = ABOUT_SOURCE.test(name) || FROM_ELSEWHERE.test(name)
  return !isHarmless && name.split('-').some((word) => SECOND_RESOURCE_WORDS.includes(word))
}

function setsRights(field: Field): boolean {
  const name = folded(field.name)
  const isAcl = /^x-.*acl$/.test(name) || /^x-.*grant-/.test(name)
  return (isAcl && !FROM_ELSEWHERE.test(name)) || /^x-(?:container|account)-/.test(name)
}

function isListed(host: string): boolean {
  const lower = host.toLowerCase()
  return LISTED_HOSTS.includes(lower) || LISTED_HOSTS.includes(withoutPort(lower))
}

const withoutPort = (host: string) => host.replace(/:\d*$/, '')

const hostOf = (fields: readonly Field[]) => valuesOf(fields, 'host')[0] ?? ''

/** Whether a link allows exactly this request, and no header names another path or method. */
export function isBound(bound: BoundRequest, { method, target, fields }: SeenRequest): boolean {
  const isMethod = method === bound.method || (method === 'HEAD' && bound.method === 'GET')
  const host = hostOf(fields)
  const isHost = isListed(host) && withoutPort(host.toLowerCase()) === bound.host
  const isSecond = /^(?:destination|x-copy-from|x-(?:amz|goog|ms)-copy-source)$/
  const asksForMore = fields.some(
    (field) => isSecond.test(folded(field.name)) || namesMore(field) || setsRights(field),
  )
  return isMethod && isHost && target === bound.target && !asksForMore
}

/** Whether a path is below `/b`, in every reading. */
const isBelow = (path = '') =>
  /^\/b(?:\/|$)/.test(path) && !/\/\/|\\|\/\.{1,2}(?:[;/]|$)|%(?:2e|2f|5c|00|25)|%(?![\da-f]{2})/i.test(path)

const READS = ['GET', 'HEAD', 'OPTIONS', 'PROPFIND']
const NEVER_MODIFY = ['GET', 'OPTIONS', 'PROPFIND', 'REPORT', 'SEARCH', 'COPY']

/** Whether a request is within `/b` and needs no more than its scope has. */
export function isWithin(scope: string, request: SeenRequest): boolean {
  const { method, target, fields } = request
  const valuesLike = (pattern: RegExp) =>
    fields.filter(({ name }) => pattern.test(folded(name))).map(({ value }) => value)
  const sources = valuesLike(/^(?:x-copy-from|x-(?:amz|goog|ms)-copy-source)$/)
  if (!isBelow(target.split('?')[0]) || !isListed(hostOf(fields)) || fields.some(namesMore)) {
    return false
  }
  switch (scope) {
    case 'storage.read:/b':
      return READS.includes(method) && sources.every(isBelowAsSource)
    case 'storage.modify:/b': {
      const destinations = valuesLike(/^destination$/)
      const isMoved =
        method !== 'MOVE' || (destinations.length > 0 && destinations.every((to) => isBelow(to)))
      return !NEVER_MODIFY.includes(method) && sources.length === 0 && isMoved
    }
    default:
      return sources.length === 0 && (method === 'HEAD' || createsOnly(request))
  }
}

const isBelowAsSource = (value: string) =>
  isBelow(value.replace(/^http:\/\/s(?=\/)|\?.*/g, '').replace(/^\/?/, '/'))

function createsOnly({ method, target, fields }: SeenRequest): boolean {
  const conditions = fields.filter(({ name }) => folded(name) === 'if-none-match')
  const isConditional = conditions.length === 1 && conditions[0]?.value === '*'
  const isNew = method === 'MKCOL' || (method === 'PUT' && isConditional)
  return isNew && !target.includes('?') && !fields.some(setsRights)
}

/** Whether a trailer would have been judged, had it been in the head. */
export function isJudged(trailer: Field): boolean {
  const name = folded(trailer.name)
  const isCondition = /^(?:if-none-match|overwrite|destination|x-copy-from|x-.*-copy-source)$/.test(name)
  return isCondition || namesMore(trailer) || setsRights(trailer)
}
