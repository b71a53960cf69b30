/**
 * Logins by OAuth 2.0 of the fuzz run: forms and client authentication, right, wrong and malformed.
 * In: a random choice. Out: a request, and what its response may be. Shares no code with the program.
 */
import { type Field, valuesOf } from '../support/http-text.ts'
import type { Random } from './random.ts'
import type { CampaignTrust } from './sidecar-process.ts'

/** `maybe`: something has changed the request of a right login. A wrong one stays wrong. */
export interface ExpectedLogin {
  readonly accountId: string
  readonly success: 'yes' | 'no' | 'maybe'
}

export interface OAuthLogin {
  readonly expected: ExpectedLogin
  readonly lines: readonly string[]
  /** In Latin-1, a character for each byte. */
  readonly content: string
}

type Pair = [name: string, value: string]

/** The UTF-8 bytes of a text, in Latin-1. */
const utf8Bytes = (text: string) => Buffer.from(text, 'utf8').toString('latin1')

const formOf = (pairs: readonly Pair[]) => new URLSearchParams([...pairs]).toString()

const encoded = (text: string) => formOf([['', text]]).slice(1) // without the `=` of the empty name

const authorization = (name: string, secret: string) =>
  `Authorization: Basic ${Buffer.from(`${name}:${secret}`).toString('base64')}`

const TYPE = 'application/x-www-form-urlencoded'

/** Each makes a login fail that would else succeed. */
const FAULTS: readonly ((login: Parts, random: Random) => Partial<Parts>)[] = [
  ({ secret }, random) => ({
    secret: random.pick([`${secret}x`, secret.slice(1), '', 'x'.repeat(1025), ' ']),
  }),
  ({ name }, random) => ({
    name: random.pick([`${name}x`, `x${name}`, '', '~', `${name}~`, 'a\nb', '\ufeff']),
  }),
  (_login, random) => ({
    grant: random.pick(['password', '', 'client_credentials\0', 'CLIENT_CREDENTIALS']),
  }),
  (_login, random) => ({
    scope: random.pick(['storage.read', 'admin', 'storage.read:/a/../b', ' ', 'catalog ']),
  }),
  (_login, random) => ({
    type: random.pick(['application/json', 'text/plain', `${TYPE}; charset=utf-16`, '']),
  }),
  (_login, random) => ({ before: random.pick(['?', '\xef\xbb\xbf', '\0', '{"a":"']) }),
  (_login, random) => ({ after: random.pick(BAD_ENDS) }),
  (_login, random) => ({ extraLine: random.pick(BAD_LINES) }),
  ({ isInHeader }) => (isInHeader ? { after: '&client_secret=x' } : { after: '&client_id=x' }),
]

const BAD_ENDS = [
  '&grant_type=client_credentials',
  '&grant%5ftype=',
  '&x=1&x=2',
  '&x=%',
  '&x=%f',
  '&x=%zz',
  '&x=%ff',
  '&x=%c3&y=%a4',
  '&x=%ed%a0%80',
  '&x=%00',
  '&\0=x',
  '&x=\xff',
  `&x=${'x'.repeat(17_000)}`,
]

const BAD_LINES = ['Content-Encoding: gzip', 'Content-Type: application/json', 'Authorization: Bearer x']

const GOOD_ENDS = ['', '', '&scope=', '&scope=catalog', '&x=%E2%82%AC&y=+&z', '&&', '&audience=a&resource=b']

interface Parts {
  readonly name: string
  readonly secret: string
  readonly isInHeader: boolean
  readonly grant: string
  readonly scope: string
  readonly type: string
  /** In Latin-1, before and after the form. */
  readonly before: string
  readonly after: string
  /** A further line of the head. */
  readonly extraLine: string
}

export function randomOAuthLogin(random: Random, trust: CampaignTrust): OAuthLogin {
  const { accountId, accessKey, secret } = random.pick(trust.logins)
  const right: Parts = {
    name: random.pick([accessKey, `${accountId}~${accessKey}`]),
    secret,
    isInHeader: random.chance(0.5),
    grant: 'client_credentials',
    scope: '',
    type: random.pick([TYPE, TYPE.toUpperCase(), `${TYPE};charset="UTF-8"`]),
    before: '',
    after: random.pick(GOOD_ENDS),
    extraLine: '',
  }
  const isWrong = random.chance(0.6)
  const parts = isWrong ? { ...right, ...random.pick(FAULTS)(right, random) } : right
  return { expected: { accountId, success: isWrong ? 'no' : 'yes' }, ...linesAndContent(parts, random) }
}

function linesAndContent(parts: Parts, random: Random): Pick<OAuthLogin, 'lines' | 'content'> {
  const { name, secret, isInHeader, type, before, after, extraLine } = parts
  const pairs: Pair[] = [['grant_type', parts.grant]]
  if (parts.scope !== '') {
    pairs.push(['scope', parts.scope])
  }
  if (!isInHeader) {
    pairs.push(['client_id', name], ['client_secret', secret])
  }
  const lines = [`Content-Type: ${type}`]
  if (isInHeader) {
    const asItIs = (text: string) => text
    const encode = random.pick([encoded, asItIs])
    lines.push(authorization(encode(name), encode(secret)))
  }
  if (extraLine !== '') {
    lines.push(extraLine)
  }
  return { lines, content: before + utf8Bytes(formOf(pairs)) + after }
}

/** An answer of the sidecar to an OAuth login. */
export interface OAuthResponse {
  readonly status: number
  readonly fields: readonly Field[]
  readonly body: string
}

/** Whether a body is one of OAuth. A request that is not admitted gets the body of any other. */
export function isOAuthBody(status: number, body: Readonly<Record<string, unknown>>): boolean {
  const { access_token: token, token_type: type, expires_in: seconds } = body
  if (status === 200) {
    return typeof token === 'string' && type === 'Bearer' && Number.isInteger(seconds)
  }
  const { error, error_description: description } = body
  return ERRORS.includes(`${status} ${error}`) && /^[ !#-[\]-~]+$/.test(String(description))
}

const ERRORS = [
  '400 invalid_request',
  '400 unsupported_grant_type',
  '400 invalid_scope',
  '401 invalid_client',
  '405 invalid_request',
  '408 invalid_request',
  '431 invalid_request',
  '503 temporarily_unavailable',
]

/** A violation of the response to a login. */
export function loginProblem(
  { accountId, success }: ExpectedLogin,
  { status, fields, body }: OAuthResponse,
): string | undefined {
  const challenge = valuesOf(fields, 'www-authenticate').join()
  if ((status === 401) !== (challenge === 'Basic realm="storage"')) {
    return `with the challenge ${challenge} (${status})`
  }
  if (status !== 200) {
    const isRefused = success === 'yes' && status !== 503
    return isRefused ? `to a right login that is refused (${status})` : undefined
  }
  if (success === 'no') {
    return 'to a wrong login that gets a token'
  }
  const [, claims = ''] = body.split('.')
  const { sub } = JSON.parse(Buffer.from(claims, 'base64url').toString())
  return sub === accountId ? undefined : 'with a token of another account'
}
