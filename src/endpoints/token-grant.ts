/**
 * Issues the token of an accepted login.
 * In: a credential, and the scope that the client asks for. Out: the token, or why the scope is refused.
 */
import type { PublicError } from '../base/errors.ts'
import { failed, ok, type Result } from '../base/result.ts'
import { claimsProblem } from '../base/values.ts'
import type { Credential } from '../credentials/credential-list.ts'
import type { TokenSigner } from '../token/issue.ts'
import { coversScope, parseScope, parseStoredScope, type Scope } from '../token/scopes.ts'
import { badArgument } from './request-body.ts'

/** @param requestedScope - undefined: the scope of the credential */
export async function grantToken(
  signer: TokenSigner,
  credential: Credential,
  requestedScope: string | undefined,
) {
  const scope = grantScope(requestedScope, credential)
  if (!scope.ok) {
    return scope
  }
  const { accountId, accessKey } = credential
  return ok(await signer.issueToken({ accountId, accessKey, scope: scope.value }))
}

/** The limit of every field of a login. The scope of a credential may be longer. */
const MAX_REQUESTED_SCOPE_CHARACTERS = 1024

/** Returns the requested scope if the credential covers it. The default is the scope of the credential. */
function grantScope(
  requested: string | undefined,
  { accountId, accessKey, scope: ownText }: Credential,
): Result<Scope | undefined, PublicError> {
  const own = parseStoredScope(ownText)
  if (requested === undefined) {
    return ok(own)
  }
  if (requested.length > MAX_REQUESTED_SCOPE_CHARACTERS) {
    return failed(badArgument(`scope must have at most ${MAX_REQUESTED_SCOPE_CHARACTERS} characters.`))
  }
  const scope = parseScope(requested)
  if (!scope.ok) {
    return failed(badArgument(`scope ${scope.error}.`))
  }
  if (own !== undefined && !coversScope(own, scope.value)) {
    return failed(badArgument('scope has an item that the credential does not cover.'))
  }
  const isTooLong = claimsProblem(accountId, accessKey, requested) !== undefined
  return isTooLong ? failed(badArgument('scope is too long for a token with these names.')) : scope
}
