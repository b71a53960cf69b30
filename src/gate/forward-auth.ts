/**
 * Forward auth: a proxy asks whether it may forward a request to its own upstream (`auth_request` of nginx, `ext_authz`).
 * In: the proxy's request, which names the original one in headers. Out: the original request; the headers of an approval.
 */
import type { Config } from '../config/config.ts'
import type { HeaderList } from '../http/headers.ts'
import { originForm, pathOf } from '../http/request-target.ts'
import { type Caller, identityHeaders } from '../token/caller.ts'
import type { ScopedRequest } from '../token/scopes.ts'
import type { Admitted } from './admission.ts'

export interface OriginalRequest extends ScopedRequest {
  readonly target: string
}

const PAIRS = [
  ['x-forwarded-method', 'x-forwarded-uri'],
  ['x-original-method', 'x-original-uri'],
] as const

/** The form of the methods that Node's parser accepts. Services may read others without regard to case, or as a list. */
const METHOD = /^[A-Z][A-Z-]*$/

/**
 * The request that a proxy names. Undefined unless the proxy is trusted and names one method and one target: a proxy that sets
 * one pair of headers may pass the client's spelling of the other.
 */
export function originalRequest(admitted: Admitted, isTrusted: boolean): OriginalRequest | undefined {
  if (!isTrusted) return undefined
  const { lines } = admitted
  let named: { readonly method: string; readonly target: string } | undefined
  for (const pair of PAIRS) {
    const values = pair.map((name) => lines.values(name))
    if (values.every(({ length }) => length === 0)) continue
    const [method = '', target = ''] = values.map(([first]) => first)
    const isOther = named !== undefined && (named.method !== method || named.target !== target)
    if (isOther || values.some(({ length }) => length !== 1)) return undefined
    named = { method, target }
  }
  // Proxies may join repeated lines. Whether a line that `Connection` names reaches the service is up to the proxy.
  const isUnclear = lines.kinds.some(
    (kind, line) =>
      kind === 'secondPath' && (lines.value(line).includes(',') || lines.isNamedByConnection(line)),
  )
  if (named === undefined || isUnclear || !METHOD.test(named.method)) return undefined
  const target = originForm(named.target, undefined)
  if (target === undefined) return undefined
  const hosts = lines.values('x-forwarded-host')
  const host = hosts.length === 0 ? admitted.host : hosts.length === 1 ? hosts[0] : undefined
  return { method: named.method, target, path: pathOf(target), host, lines }
}

/** A proxy that caches the response must not give it to another client. */
export const VARY_BY_TOKEN = ['Vary', 'Authorization']

/** `peer`: trusted if it is a proxy of `forwarded.trust`. */
export function approvalHeaders(
  { caller, dependsOnRequest }: { readonly caller: Caller | undefined; readonly dependsOnRequest: boolean },
  peer: { readonly isTrusted: boolean },
  config: Config,
  now: number,
): HeaderList {
  if (caller === undefined) return VARY_BY_TOKEN
  const { identity, assertions, validUntilMs, recheckAtMs } = caller
  // A client that reaches the forward-auth path itself must not collect assertions.
  const assertion = peer.isTrusted ? assertions?.get(config.identity.assertion.audience) : undefined
  // At `recheckAtMs` the assertion is renewed: a proxy must not keep it until it expires.
  const renewAtMs = assertion === undefined ? Number.POSITIVE_INFINITY : recheckAtMs
  const endsAtMs = Math.min(identity.expiresAtSeconds * 1000, validUntilMs, renewAtMs)
  const secondsLeft = Math.floor((endsAtMs - now) / 1000)
  const age = dependsOnRequest ? 0 : Math.min(config.forwardAuth.maxAgeSeconds, secondsLeft)
  return [
    // nginx ignores `Cache-Control: private` if `X-Accel-Expires` precedes it.
    ...(age > 0 ? ['X-Accel-Expires', String(age), 'Cache-Control', `private, max-age=${age}`] : []),
    ...VARY_BY_TOKEN,
    ...identityHeaders(identity, assertion),
  ]
}
