/**
 * Forward auth: a proxy (nginx `auth_request`, Envoy `ext_authz`) asks whether it may forward a request.
 * In: a request whose headers name the original request.
 * Out: the original request, and the headers of an approval.
 */
import type { Config } from '../config/config.ts'
import { HeaderLines, type HeaderList } from '../http/headers.ts'
import { originForm, pathOf, type RequestedAccess } from '../http/request-target.ts'
import { type Caller, identityHeaders } from '../token/caller.ts'
import type { AdmittedRequest } from './admission.ts'

const PAIRS = [
  ['x-forwarded-method', 'x-forwarded-uri'],
  ['x-original-method', 'x-original-uri'],
] as const

/**
 * The form of the methods that Node's parser accepts.
 * Services may ignore the case of others, or read a list of them.
 */
const METHOD = /^[A-Z][A-Z-]*$/

/**
 * Returns the request that a trusted proxy names.
 * Undefined unless its headers name exactly one method and one target.
 * Both pairs of headers must agree: a proxy that sets one pair may pass the other pair as the client sent it.
 */
export function originalRequest(admitted: AdmittedRequest, isTrusted: boolean): RequestedAccess | undefined {
  const { lines } = admitted
  const named = isTrusted ? namedRequest(lines) : undefined
  if (named === undefined || hasUnclearPath(lines) || !METHOD.test(named.method)) {
    return undefined
  }
  const target = originForm(named.target, undefined)
  if (target === undefined) {
    return undefined
  }
  const [host = admitted.host, ...otherHosts] = lines.values('x-forwarded-host')
  const onlyHost = otherHosts.length === 0 ? host : undefined
  const judged = linesOfClient(lines, target)
  return { method: named.method, target, path: pathOf(target), host: onlyHost, lines: judged }
}

type NamedRequest = Readonly<{ method: string; target: string }>

/** Returns undefined unless one or both pairs are complete, and name the same request. */
function namedRequest(lines: HeaderLines): NamedRequest | undefined {
  let named: NamedRequest | undefined
  for (const [methodName, targetName] of PAIRS) {
    const methods = lines.values(methodName)
    const targets = lines.values(targetName)
    if (methods.length === 0 && targets.length === 0) {
      continue
    }
    const [method = ''] = methods
    const [target = ''] = targets
    const isOther = named !== undefined && (named.method !== method || named.target !== target)
    if (isOther || methods.length !== 1 || targets.length !== 1) {
      return undefined
    }
    named = { method, target }
  }
  return named
}

/**
 * A comma may join two lines that a proxy received. Only some proxies forward a line that `Connection` names.
 */
const hasUnclearPath = (lines: HeaderLines) =>
  lines.kinds.some((_kind, line) => {
    const isUnclear = lines.value(line).includes(',') || lines.isNamedByConnection(line)
    return isUnclear && lines.rule(line).adds === 'path'
  })

/**
 * Leaves out the lines in which the proxy names the target.
 * An `X-Original-URL` of another target stays, and is refused.
 */
function linesOfClient(lines: HeaderLines, target: string): HeaderLines {
  const raw: string[] = []
  for (const line of lines.kinds.keys()) {
    const name = lines.name(line).toLowerCase()
    // ingress-nginx names the target a second time, as a whole URL.
    const isTarget = lines.value(line).replace(/^https?:\/\/[^/?#]*/, '') === target
    if (name !== 'x-original-uri' && !(name === 'x-original-url' && isTarget)) {
      raw.push(lines.name(line), lines.value(line))
    }
  }
  return new HeaderLines(raw, true)
}

/** A proxy that caches the response must not give it to another client. */
export const VARY_BY_TOKEN = ['Vary', 'Authorization']

export function approvalHeaders(
  { caller, isRestricted }: { readonly caller: Caller | undefined; readonly isRestricted: boolean },
  { peer }: { readonly peer: { readonly isTrusted: boolean } },
  config: Pick<Config, 'identity' | 'forwardAuth'>,
  nowMs: number,
): HeaderList {
  if (caller === undefined) {
    return VARY_BY_TOKEN
  }
  const { identity, assertions, validUntilMs, recheckAtMs } = caller
  // A client that reaches the forward-auth path itself must not collect assertions.
  const assertion = peer.isTrusted ? assertions?.get(config.identity.assertion.audience) : undefined
  // The sidecar renews the assertion at `recheckAtMs`. A proxy must not keep the former one until it expires.
  const renewAtMs = assertion === undefined ? Number.POSITIVE_INFINITY : recheckAtMs
  const approvalEndsAtMs = Math.min(identity.expiresAtSeconds * 1000, validUntilMs, renewAtMs)
  const secondsLeft = Math.floor((approvalEndsAtMs - nowMs) / 1000)
  // A proxy would reuse the approval for other requests with the token.
  const age = isRestricted ? 0 : Math.min(config.forwardAuth.maxAgeSeconds, secondsLeft)
  return [
    // nginx ignores `Cache-Control: private` if `X-Accel-Expires` precedes it.
    ...(age > 0 ? ['X-Accel-Expires', String(age), 'Cache-Control', `private, max-age=${age}`] : []),
    ...VARY_BY_TOKEN,
    ...identityHeaders(identity, assertion),
  ]
}
