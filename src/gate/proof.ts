/**
 * Checks what a request proves its caller with: a bearer token (RFC 6750) or a link (`token/links.ts`).
 * In: the header `Authorization`, the request target. Out: the verdict of the verifier, or why it is not asked.
 */

import type { Refused, Verdict, Verify } from '../token/caller.ts'
import { allowsRequest, type LinkParameter } from '../token/links.ts'

const missing: Refused = { ok: false, reason: 'missing' }
const malformed: Refused = { ok: false, reason: 'malformed' }
const claims: Refused = { ok: false, reason: 'claims', claim: 'typ' }
const otherRequest: Refused = { ok: false, reason: 'claims', claim: 'target' }

/** Scheme in any case, then spaces (RFC 6750 section 2.1, RFC 9110 section 11.4). A list fails on the token's shape. */
export function checkBearer(authorization: string | undefined, verify: Verify): Verdict | Promise<Verdict> {
  if (authorization === undefined) return missing
  if (authorization.charCodeAt(6) !== 0x20) return malformed
  const scheme = authorization.slice(0, 6)
  if (scheme !== 'Bearer' && scheme.toLowerCase() !== 'bearer') return malformed
  let start = 7
  while (authorization.charCodeAt(start) === 0x20) start++
  if (start >= authorization.length) return malformed
  const verdict = verify(authorization.slice(start))
  return verdict instanceof Promise ? verdict.then(noLink) : noLink(verdict)
}

const noLink = (verdict: Verdict): Verdict =>
  verdict.ok && verdict.caller.link !== undefined ? claims : verdict

/** A link beside `Authorization` is refused: two proofs may name two callers. */
export function checkLink(
  parameter: LinkParameter,
  method: string,
  authorization: string | undefined,
  verify: Verify,
): Verdict | Promise<Verdict> {
  if (parameter === 'several' || authorization !== undefined) return malformed
  const check = (verdict: Verdict): Verdict => {
    if (!verdict.ok) return verdict
    const { link } = verdict.caller
    if (link === undefined) return claims
    return allowsRequest(link, method, parameter.target) ? verdict : otherRequest
  }
  const verdict = verify(parameter.token)
  return verdict instanceof Promise ? verdict.then(check) : check(verdict)
}
