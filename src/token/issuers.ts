/**
 * The issuers whose tokens are accepted, each with its keys, its rules and the way from its claims to the names of an
 * identity. Keys and rules of two issuers never mix (RFC 8725, section 3.8).
 */
import { nameProblem, namesProblem } from '../credentials/names.ts'
import { parseScope } from './scopes.ts'
import type { TokenIssuer } from './verify.ts'

interface OwnOptions
  extends Pick<TokenIssuer, 'audience' | 'findKey' | 'maxLifetimeSeconds' | 'credentialStatus'> {
  readonly issuer: string
}

export function ownIssuer({ issuer, findKey, ...options }: OwnOptions): TokenIssuer {
  return {
    ...options,
    name: issuer,
    findKey: (kid, alg) => (kid === undefined ? 'unknown_key' : findKey(kid, alg)),
    types: ['at+jwt'],
    namesOf({ sub, client_id, jti, ...claims }) {
      if (!isName(sub)) return 'sub'
      if (!isName(client_id) || namesProblem(sub, client_id) !== undefined) return 'client_id'
      if (!isTokenId(jti)) return 'jti'
      const names = { accountId: sub, accessKey: client_id, tokenId: jti }
      const { scope } = claims
      if (scope === undefined) return names
      const read = typeof scope === 'string' ? parseScope(scope) : undefined
      return read?.ok ? { ...names, scope: read.scope } : 'scope'
    },
  }
}

/** A name becomes part of a header and a log line: a control character could forge another. */
function isName(value: unknown): value is string {
  return typeof value === 'string' && nameProblem(value) === undefined
}

/** In UTF-16 units: it becomes a header line of the forwarded request. */
const MAX_TOKEN_ID_LENGTH = 256

function isTokenId(value: unknown): value is string {
  return isName(value) && value.length <= MAX_TOKEN_ID_LENGTH
}
