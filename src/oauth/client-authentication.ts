/**
 * Reads how a client authenticates: `client_secret_basic` or `client_secret_post` (RFC 6749, section 2.3.1).
 * In: a request with its form. Out: a login, which is not checked yet, or why there is none.
 */
import type { PublicError } from '../base/errors.ts'
import { failed, ok, type Result } from '../base/result.ts'
import { textProblem } from '../base/values.ts'
import type { Login, NamedSecret } from '../credentials/credential-checks.ts'
import { type AccountLookup, credentialOfUser } from '../endpoints/user-name.ts'
import type { AdmittedRequest } from '../gate/admission.ts'
import { type BasicCredentials, parseBasicAuthorization } from '../http/basic-authorization.ts'
import type { Form } from './form.ts'
import { INVALID_CLIENT, invalidRequest } from './oauth-errors.ts'

type Authorization = Pick<AdmittedRequest, 'authorization' | 'hasTwoAuthorizations'>

export function readClient(
  { admitted }: { readonly admitted: Authorization | undefined },
  form: Form,
  accounts: AccountLookup,
): Result<Login, PublicError> {
  if (admitted === undefined || admitted.hasTwoAuthorizations) {
    return failed(INVALID_CLIENT)
  }
  const { authorization } = admitted
  const readings = authorization === undefined ? inForm(form) : inHeader(authorization, form)
  if (!readings.ok) {
    return readings
  }
  const [first, second] = readings.value.filter(mayExist)
  if (first === undefined) {
    return failed(INVALID_CLIENT)
  }
  const otherReading = second && namedSecret(second, accounts)
  return ok({ ...namedSecret(first, accounts), otherReading })
}

type Readings = Result<readonly BasicCredentials[], PublicError>

function inForm(form: Form): Readings {
  const name = form.get('client_id')
  const secret = form.get('client_secret')
  return name === undefined || secret === undefined ? failed(INVALID_CLIENT) : ok([{ name, secret }])
}

/**
 * The standard encodes name and secret as in a form, but many clients send them as they are.
 * Both readings are returned if they differ.
 */
function inHeader(authorization: string, form: Form): Readings {
  const raw = parseBasicAuthorization(authorization)
  if (raw === undefined) {
    return failed(INVALID_CLIENT)
  }
  if (form.has('client_secret')) {
    return failed(invalidRequest('The client authenticates in two ways: Authorization and client_secret.'))
  }
  const decoded = formDecoded(raw)
  const differs = decoded !== undefined && (decoded.name !== raw.name || decoded.secret !== raw.secret)
  const readings = differs ? [decoded, raw] : [raw]
  const clientId = form.get('client_id')
  if (clientId === undefined) {
    return ok(readings)
  }
  const ofClient = readings.filter(({ name }) => name === clientId)
  const isOther = ofClient.length === 0
  return isOther ? failed(invalidRequest('client_id is not the name in Authorization.')) : ok(ofClient)
}

function formDecoded({ name, secret }: BasicCredentials): BasicCredentials | undefined {
  try {
    return { name: formDecodedText(name), secret: formDecodedText(secret) }
  } catch {
    return undefined // an invalid escape
  }
}

const formDecodedText = (text: string) => decodeURIComponent(text.replaceAll('+', ' '))

/** Whether a credential can have this name and this secret. */
const mayExist = ({ name, secret }: BasicCredentials) =>
  name !== '' && !/\p{Cc}/u.test(name) && textProblem(secret) === undefined

const namedSecret = ({ name, secret }: BasicCredentials, accounts: AccountLookup): NamedSecret => ({
  ...credentialOfUser(name, accounts),
  secret,
})
