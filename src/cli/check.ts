/**
 * `check`: probes a running deployment from outside, and reports each finding with what to do.
 * The report contains no secret, no token and no part of a response.
 */
import { randomBytes, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import http, { type IncomingHttpHeaders, type IncomingMessage, type RequestOptions } from 'node:http'
import https from 'node:https'
import { TLSSocket } from 'node:tls'
import type { Command } from 'commander'
import { type ForwardingFailure, networkFailureOf, PROXY_NAME } from '../base/errors.ts'
import { parseJsonObject } from '../base/json.ts'
import { NotDone } from '../base/result.ts'
import { errorCode, readUpTo } from '../files/files.ts'
import { TOKEN_PATH, withoutFinalSlash } from '../http/request-target.ts'
import { MAX_TOKEN_BYTES } from '../token/verify.ts'
import { type CommandIo, type Flags, parserWith, UsageFailure } from './command-io.ts'

const REMEDIES = {
  reachable: 'check the address, the port, and whether the sidecar runs and is ready',
  certificate: 'renew it, use a name of it in the URL, or name the file of its CA in NODE_EXTRA_CA_CERTS',
  endpoint: 'check the address, and end --url with the path of listen.basePath if there is one',
  enforcement: 'set enforcement: enforce, and let no route lead past the sidecar',
  clock: 'synchronize both machines (NTP), as tokens expire by the clock',
  'admin exposure': 'remove the route to admin.port, and keep that port inside the cluster',
  login: 'check account, access key and secret, then the log of the sidecar',
  'time left': 'check that all replicas have the same keys',
  token: 'check upstreams and the service',
  identity: 'let every route to the service pass the sidecar; log in; let --echo-path show the headers',
  admin: 'see /readyz and the log of the sidecar',
  upstream: 'let only the sidecar reach it (loopback, NetworkPolicy); run check from another host or pod',
}

const MAX_CLOCK_DIFFERENCE_SECONDS = 5
const MIN_CERTIFICATE_DAYS = 14

export interface Finding {
  readonly check: keyof typeof REMEDIES
  readonly status: 'ok' | 'warning' | 'failure'
  readonly message: string
  readonly remedy: string | undefined
}

type Check = Finding['check']

const ok = (check: Check, message: string): Finding => ({ check, status: 'ok', message, remedy: undefined })

const warning = (check: Check, message: string): Finding => problem(check, 'warning', message)

const failure = (check: Check, message: string): Finding => problem(check, 'failure', message)

const problem = (check: Check, status: 'warning' | 'failure', message: string): Finding => ({
  check,
  status,
  message,
  remedy: REMEDIES[check],
})

type OptionalFlag = 'adminUrl' | 'upstreamUrl' | 'echoPath' | 'account' | 'accessKey'
type CheckFlags = Flags<'url', OptionalFlag, 'secretStdin' | 'json'>

const parseUrl = parserWith((text) =>
  isPlainUrl(text) ? undefined : 'must be an http: or https: URL without user name, query and fragment',
)

function isPlainUrl(text: string): boolean {
  if (!URL.canParse(text) || /[?#]/.test(text)) {
    return false
  }
  const { protocol, username, password } = new URL(text)
  const isHttp = protocol === 'http:' || protocol === 'https:'
  return isHttp && username === '' && password === ''
}

const parseRequestPath = parserWith((text) =>
  /^\/[!-~]*$/.test(text) ? undefined : "must begin with '/' and be percent-encoded",
)

export function checkCommand(io: CommandIo): Command {
  return io
    .command(
      'check',
      'look at a running deployment from outside, within 15 seconds; exits with 1 when a check fails',
      'storage-auth-sidecar check --url http://127.0.0.1:8080 --admin-url http://127.0.0.1:8081',
      'printf %s "$SECRET" | storage-auth-sidecar check --url https://storage.example --upstream-url http://storage:9000 \\',
      '  --account acme --access-key check --secret-stdin --echo-path /debug/headers --json',
    )
    .requiredOption('--url <url>', 'the data listener, with listen.basePath if there is one', parseUrl)
    .option('--admin-url <url>', 'the admin listener', parseUrl)
    .option('--upstream-url <url>', 'the storage service, which must not answer from here', parseUrl)
    .option('--echo-path <path>', 'a path whose response shows the request headers', parseRequestPath)
    .option('--account <id>', 'the account to log in with')
    .option('--access-key <key>', 'its access key')
    .option('--secret-stdin', 'read its secret from stdin')
    .option('--json', 'print JSON')
    .action(async (flags: CheckFlags) => {
      const { adminUrl, upstreamUrl } = flags
      const credential = await readCredential(flags, io)
      const found = await Promise.all([
        checkSidecar(flags, credential),
        adminUrl === undefined ? [] : checkAdmin(adminUrl),
        upstreamUrl === undefined ? [] : checkUpstream(upstreamUrl),
      ])
      const findings = found.flat()
      const failures = findings.filter(({ status }) => status === 'failure').length
      if (flags.json) {
        io.print(JSON.stringify({ ok: failures === 0, checks: findings }, null, 2))
      } else {
        io.printTable(findings, {
          STATUS: ({ status }) => status,
          CHECK: ({ check }) => check,
          FINDING: ({ message }) => message,
          'WHAT TO DO': ({ remedy = '' }) => remedy,
        })
      }
      if (failures > 0) {
        throw new NotDone(`checks failed: ${failures}`)
      }
    })
}

async function readCredential({ account, accessKey, secretStdin }: CheckFlags, io: CommandIo) {
  const given = [account, accessKey, secretStdin].filter((option) => option !== undefined).length
  if (given === 0) {
    return undefined
  }
  if (given < 3) {
    throw new UsageFailure('--account, --access-key and --secret-stdin go together')
  }
  return { accountId: account, accessKey, secret: await io.readSecret(REQUEST_MS) }
}

async function checkSidecar({ url, echoPath }: CheckFlags, credential: object | undefined) {
  const { origin } = new URL(url)
  const tokenUrl = below(url, TOKEN_PATH)
  const objectUrl = new URL(`${origin}${echoPath ?? '/storage-auth-sidecar-check'}`)
  // OPTIONS is a safe method: it changes nothing, whichever server responds.
  const first = await sendRequest(tokenUrl, { method: 'OPTIONS' })
  if (first.status === 0) {
    return [judgeSilence(first)]
  }
  const isTokenEndpoint = first.status === 405 && isOurs(first)
  if (!isTokenEndpoint && !isInvalidToken(first)) {
    // What another server does with the other requests says nothing about the sidecar.
    return [judgeOtherServer(first)]
  }
  const [refusals, exposure, login] = await Promise.all([
    checkRefusals(objectUrl),
    checkExposure(origin),
    isTokenEndpoint && credential !== undefined ? checkLogin(tokenUrl, objectUrl, credential, echoPath) : [],
  ])
  const findings = [judgeEndpoint(isTokenEndpoint), ...refusals, judgeClock(first), exposure, ...login]
  if (echoPath !== undefined && credential === undefined) {
    findings.push(warning('identity', 'not checked: needs --account, --access-key and --secret-stdin'))
  }
  return [...findings, ...judgeCertificate(first)]
}

function judgeSilence({ error, code }: ProbeResponse): Finding {
  if (error === 'tls_certificate_error') {
    return failure('certificate', `the certificate is not accepted here (${code})`)
  }
  const reason = error === 'tls_protocol_error' ? 'the port speaks no TLS, or no known version of it' : code
  return failure('reachable', `no HTTP response: ${reason}`)
}

function judgeEndpoint(isTokenEndpoint: boolean): Finding {
  return isTokenEndpoint
    ? ok('endpoint', 'the token endpoint answers')
    : failure('endpoint', 'the sidecar answers, but its token endpoint is elsewhere')
}

function judgeOtherServer({ status }: ProbeResponse): Finding {
  return failure('endpoint', `another server responds instead of the sidecar (status ${status})`)
}

function checkRefusals(objectUrl: URL): Promise<Finding[]> {
  const requests = {
    'without a token': {},
    'with a forged token': { Authorization: `Bearer ${forgedToken(4_000_000_000)}` },
    'with a forged token that looks expired': { Authorization: `Bearer ${forgedToken(1_000_000_000)}` },
  }
  return Promise.all(
    Object.entries(requests).map(async ([kind, headers]) => {
      const response = await sendRequest(objectUrl, { headers })
      return isInvalidToken(response)
        ? ok('enforcement', `a request ${kind} is refused`)
        : failure('enforcement', `the sidecar does not refuse a request ${kind} (${outcomeOf(response)})`)
    }),
  )
}

/** A well-formed token with a random signature. `exp`: epoch seconds. */
function forgedToken(exp: number): string {
  const header = { alg: 'ES256', kid: 'check', typ: 'at+jwt' }
  const names = { iss: 'check', aud: 'check', sub: 'check', client_id: 'check', jti: 'check' }
  const claims = { ...names, iat: exp - 60, exp }
  const signature = randomBytes(64).toString('base64url')
  return `${base64urlOf(header)}.${base64urlOf(claims)}.${signature}`
}

const base64urlOf = (part: object) => Buffer.from(JSON.stringify(part)).toString('base64url')

function judgeClock({ headers }: ProbeResponse): Finding {
  const seconds = Math.round(Math.abs(Date.parse(headers.date ?? '') - Date.now()) / 1000)
  if (Number.isNaN(seconds)) {
    return warning('clock', 'the response has no Date')
  }
  if (seconds <= MAX_CLOCK_DIFFERENCE_SECONDS) {
    return ok('clock', 'the clocks agree')
  }
  return failure('clock', `the clocks differ by ${seconds} s`)
}

async function checkExposure(origin: string): Promise<Finding> {
  const requests = ['/metrics', '/status.json'].map((path) => sendRequest(new URL(path, origin)))
  const responses = await Promise.all(requests)
  return responses.some(({ status, body }) => status === 200 && /auth_sidecar_|"version"/.test(body))
    ? failure('admin exposure', 'the admin listener can be reached through the data address')
    : ok('admin exposure', 'the admin listener cannot be reached through the data address')
}

async function checkLogin(
  tokenUrl: URL,
  objectUrl: URL,
  credential: object,
  echoPath: string | undefined,
): Promise<Finding[]> {
  const issued = await sendRequest(tokenUrl, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(credential),
  })
  const { token } = fieldsOf(issued)
  // The pattern also keeps a hostile value out of the head of the next request.
  const isToken = typeof token === 'string' && token.length <= MAX_TOKEN_BYTES && /^[\w.-]+$/.test(token)
  if (issued.status !== 200 || !isToken) {
    return [failure('login', `the login fails (${outcomeOf(issued)})`)]
  }
  const authorization = { Authorization: `Bearer ${token}` }
  const forgedAccount = randomUUID()
  const requestId = randomUUID()
  const headers = { ...authorization, ...identityHeaders(forgedAccount), 'X-Request-Id': requestId }
  const [timeLeft, forwarded] = await Promise.all([
    sendRequest(tokenUrl, { headers: authorization }),
    sendRequest(objectUrl, { headers }),
  ])
  const findings = [ok('login', 'a login works'), judgeTimeLeft(timeLeft), judgeForwarded(forwarded)]
  if (echoPath !== undefined) {
    findings.push(judgeEcho(forwarded.body, forgedAccount, requestId))
  }
  return findings
}

/** In each spelling that a service may read as the header of the sidecar. */
const identityHeaders = (account: string) => ({
  'X-Authenticated-Account-Id': account,
  X_Authenticated_Account_Id: account,
  'X.Authenticated.Account.Id': account,
})

function judgeTimeLeft(response: ProbeResponse): Finding {
  const seconds = Number(fieldsOf(response)['expirationSec'])
  return response.status === 200 && seconds > 0
    ? ok('time left', 'the time left of the token is reported')
    : failure('time left', `the time left of the token is not reported (${outcomeOf(response)})`)
}

function judgeForwarded(response: ProbeResponse): Finding {
  // A 502 or 503 may come from a load balancer without a backend, and not from the service.
  const hasFailed = response.status === 0 || response.status >= 500
  return hasFailed || isOurs(response)
    ? failure('token', `a valid token does not reach the service, or it fails (${outcomeOf(response)})`)
    : ok('token', 'a valid token reaches the service')
}

function judgeEcho(body: string, forgedAccount: string, requestId: string): Finding {
  if (body.includes(forgedAccount)) {
    return failure('identity', "a client's own identity headers reach the service")
  }
  if (body.includes(requestId)) {
    return ok('identity', "a client's own identity headers are removed")
  }
  return warning('identity', 'the response of --echo-path does not show the request headers')
}

async function checkAdmin(url: string): Promise<Finding> {
  const response = await sendRequest(below(url, '/readyz'))
  if (response.status === 200 && fieldsOf(response)['status'] === 'ready') {
    return ok('admin', 'the admin listener is ready')
  }
  const outcome = outcomeOf(response)
  if (response.error === 'tls_certificate_error') {
    return failure('certificate', `the certificate of the admin listener is not accepted here (${outcome})`)
  }
  return failure('admin', `the admin listener is not ready, or this is another server (${outcome})`)
}

async function checkUpstream(url: string): Promise<Finding> {
  const { status, error, isConnected } = await sendRequest(new URL(url))
  if (status > 0) {
    return failure('upstream', 'the service answers from here without the sidecar')
  }
  if (isConnected) {
    return warning('upstream', 'the service accepts connections from here, without an answer')
  }
  if (error === 'dns_error') {
    return warning('upstream', 'the name in --upstream-url is unknown here')
  }
  return ok('upstream', 'the service does not answer from here')
}

function judgeCertificate({ certificateEndsAtMs }: ProbeResponse): Finding[] {
  if (Number.isNaN(certificateEndsAtMs)) {
    return []
  }
  const days = Math.floor((certificateEndsAtMs - Date.now()) / 86_400_000)
  if (days < MIN_CERTIFICATE_DAYS) {
    return [warning('certificate', `the certificate ends in ${days} days`)]
  }
  return [ok('certificate', `the certificate is valid for ${days} days`)]
}

const below = (url: string, path: string) => new URL(withoutFinalSlash(url) + path)

const REQUEST_MS = 3000
const MAX_BODY_BYTES = 262_144

interface ProbeResponse {
  /** 0 if there is no response. */
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: string
  /** Why there is no response: Node's error code or `timeout`. */
  readonly code: string
  readonly error: ForwardingFailure | undefined
  readonly isConnected: boolean
  /** NaN without TLS. */
  readonly certificateEndsAtMs: number
}

interface ProbeOptions extends Pick<RequestOptions, 'method' | 'headers'> {
  readonly body?: string
}

/** Never rejects. A body that is too long is truncated. */
async function sendRequest(url: URL, { body, ...options }: ProbeOptions = {}): Promise<ProbeResponse> {
  // A 101 ends the request without an event. This timer, unlike AbortSignal.timeout, keeps the process alive.
  const limit = new AbortController()
  const timer = setTimeout(() => limit.abort(), REQUEST_MS)
  const { signal } = limit
  const client = url.protocol === 'https:' ? https : http
  const request = client.request(url, { ...options, agent: false, signal })
  let isConnected = false
  request.on('socket', (socket) => {
    socket.on('connect', () => {
      isConnected = true
    })
  })
  request.on('error', () => {}) // `once` or the read of the body also throws the error
  try {
    request.end(body)
    const response: IncomingMessage = (await once(request, 'response', { signal }))[0]
    const { socket, statusCode, headers } = response
    const validTo = socket instanceof TLSSocket ? socket.getPeerCertificate().valid_to : ''
    const bytes = await readUpTo(response, MAX_BODY_BYTES)
    return {
      status: statusCode ?? 0,
      headers,
      body: bytes.toString(),
      code: '',
      error: undefined,
      isConnected,
      certificateEndsAtMs: Date.parse(validTo),
    }
  } catch (error) {
    return {
      status: 0,
      headers: {},
      body: '',
      code: signal.aborted ? 'timeout' : errorCode(error),
      error: networkFailureOf(error),
      isConnected,
      certificateEndsAtMs: Number.NaN,
    }
  } finally {
    clearTimeout(timer)
    request.destroy()
  }
}

const fieldsOf = ({ body }: ProbeResponse) => parseJsonObject(body) ?? {}

const isOurs = ({ headers }: ProbeResponse) =>
  String(headers['proxy-status'] ?? '').split(';', 1)[0] === PROXY_NAME

const isInvalidToken = (response: ProbeResponse) =>
  isOurs(response) && [400, 401].includes(response.status) && fieldsOf(response)['code'] === 'InvalidToken'

const outcomeOf = ({ status, code }: ProbeResponse) => (status === 0 ? code : `status ${status}`)
