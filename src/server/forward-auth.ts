/**
 * Forward auth: a proxy asks whether it may forward a request to its own upstream (`auth_request` of nginx, `ext_authz`).
 * In: the caller of the original request (`gate/original-request.ts`). Out: the headers of the response, which approves it.
 */
import type { Config } from '../config/config.ts'
import type { Peer } from '../request/client-address.ts'
import { type Caller, identityHeaders, isRestricted } from '../token/caller.ts'

/** A proxy that caches the response must not give it to another client. */
export const VARY_BY_TOKEN = ['Vary', 'Authorization']

/** Returns names and values, alternating. `caller`: absent where report mode ignores a refused token. */
export function approvalHeaders(
  caller: Caller | undefined,
  { isTrusted }: Peer,
  { identity: { assertion: settings }, forwardAuth }: Config,
  now: number,
): readonly string[] {
  if (caller === undefined) return VARY_BY_TOKEN
  const { identity, assertions, credentialEndMs = Number.POSITIVE_INFINITY, usableUntilMs } = caller
  // A client that reaches the forward-auth path itself must not collect assertions.
  const assertion = isTrusted ? assertions?.get(settings.audience) : undefined
  // At `usableUntilMs` the assertion is renewed: a proxy must not keep it until it expires.
  const renewalMs = assertion === undefined ? Number.POSITIVE_INFINITY : usableUntilMs
  const endMs = Math.min(identity.expiresAtSeconds * 1000, credentialEndMs, renewalMs)
  const secondsLeft = Math.floor((endMs - now) / 1000)
  const age = isRestricted(caller) ? 0 : Math.min(forwardAuth.maxAgeSeconds, secondsLeft)
  return [
    // nginx ignores `Cache-Control: private` if `X-Accel-Expires` precedes it.
    ...(age > 0 ? ['X-Accel-Expires', String(age), 'Cache-Control', `private, max-age=${age}`] : []),
    ...VARY_BY_TOKEN,
    ...identityHeaders(identity, assertion),
  ]
}
