/**
 * `check`: looks at a running deployment from outside and reports ok, warning or failure with what to do.
 * Prints its own words only: no secret, no token and no byte of a response. Every request is bounded in time and size.
 */
import { randomBytes, randomUUID } from 'node:crypto'
import { request as httpRequest, type IncomingHttpHeaders } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { connect } from 'node:tls'
import { type Command, InvalidArgumentError } from 'commander'
import {
  CommandFailure,
  type CommandIo,
  createCommand,
  formatTable,
  printer,
  readSecret,
  UsageFailure,
} from './command-io.ts'

/** Four requests in sequence, at most, and the secret: within 15 s. */
const REQUEST_MS = 3000
const MAX_BODY_BYTES = 262_144
const MAX_CLOCK_DIFFERENCE_SECONDS = 5
const MIN_CERTIFICATE_DAYS = 14
const PROBE_PATH = '/storage-auth-sidecar-check'

export interface Finding {
  readonly check: string
  readonly status: 'ok' | 'warning' | 'failure'
  readonly message: string
  /** What to do. */
  readonly remedy?: string
}

interface CheckOptions {
  readonly url: URL
  readonly adminUrl?: URL
  readonly upstreamUrl?: URL
  readonly echoPath?: string
  readonly account?: string
  readonly accessKey?: string
  readonly secretStdin?: true
  readonly json?: true
}

const EXAMPLES = `
Exits with 0, or with 1 when a check fails. NODE_EXTRA_CA_CERTS names a file of further trusted authorities.

Examples:
  storage-auth-sidecar check --url http://127.0.0.1:8080 --admin-url http://127.0.0.1:8081
  printf %s "$SECRET" | storage-auth-sidecar check --url https://storage.example --upstream-url http://storage:9000 \\
    --account acme --access-key check --secret-stdin --echo-path /debug/headers --json`

export function checkCommand(io: CommandIo, { now = Date.now }: { now?: () => number } = {}): Command {
  return createCommand('check', 'look at a running deployment from outside', io)
    .requiredOption('--url <url>', 'the data listener, with listen.basePath if there is one', httpUrl)
    .option('--admin-url <url>', 'the admin listener', httpUrl)
    .option('--upstream-url <url>', 'the storage service, which must not answer from here', httpUrl)
    .option(
      '--echo-path <path>',
      'a path whose response shows the request headers that the service received',
      path,
    )
    .option('--account <id>', 'the account to log in with')
    .option('--access-key <key>', 'its access key')
    .option('--secret-stdin', 'read its secret from stdin')
    .option('--json', 'print JSON')
    .addHelpText('after', EXAMPLES)
    .action(async (options: CheckOptions) => {
      const findings = await checkDeployment(options, await login(options, io), now)
      const print = printer(io)
      const failures = findings.filter(({ status }) => status === 'failure').length
      if (options.json) print(JSON.stringify({ ok: failures === 0, checks: findings }, null, 2))
      else {
        const rows = findings.map((one) => [one.status, one.check, one.message, one.remedy ?? ''])
        print(formatTable([['STATUS', 'CHECK', 'FINDING', 'WHAT TO DO'], ...rows]))
      }
      if (failures > 0) throw new CommandFailure(`checks failed: ${failures}`)
    })
}

function httpUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (
    url === undefined ||
    !/^https?:$/.test(url.protocol) ||
    `${url.username}${url.password}${url.search}${url.hash}`
  ) {
    throw new InvalidArgumentError('It must be an http: or https: URL without user name, query and fragment.')
  }
  return url
}

function path(text: string): string {
  if (!/^\/[!-~]*$/.test(text))
    throw new InvalidArgumentError("It must begin with '/' and be percent-encoded.")
  return text
}

async function login(
  { account, accessKey, secretStdin }: CheckOptions,
  io: CommandIo,
): Promise<object | undefined> {
  const given = [account, accessKey, secretStdin].filter((option) => option !== undefined).length
  if (given === 0) return undefined
  if (given < 3) throw new UsageFailure('--account, --access-key and --secret-stdin go together')
  return { accountId: account, accessKey, secret: await readSecret(io.stdin, REQUEST_MS) }
}

async function checkDeployment(options: CheckOptions, credential: object | undefined, now: () => number) {
  const { url, adminUrl, upstreamUrl } = options
  const findings = await Promise.all([
    checkSidecar(options, credential, now),
    url.protocol === 'https:' ? checkCertificate(url, now) : [],
    adminUrl === undefined ? [] : checkAdmin(adminUrl),
    upstreamUrl === undefined ? [] : checkUpstream(upstreamUrl),
  ])
  return findings.flat()
}

async function checkSidecar(
  { url, echoPath }: CheckOptions,
  credential: object | undefined,
  now: () => number,
): Promise<Finding[]> {
  const endpoint = at(url, `${url.pathname.replace(/\/$/, '')}/v2/auth/token`)
  const probe = at(url, echoPath ?? PROBE_PATH)
  // OPTIONS is safe: whatever answers, nothing is written.
  const first = await send(endpoint, { method: 'OPTIONS' })
  if (first.status === 0) {
    const remedy = 'check the address, the port and whether the sidecar runs and is ready'
    return [failure('reachable', `no HTTP response: ${first.fault}`, remedy)]
  }
  const [endpointFinding, refusals, session, exposed] = await Promise.all([
    judgeEndpoint(first),
    checkRefusals(probe),
    credential === undefined ? [] : checkLogin(endpoint, probe, credential, echoPath !== undefined),
    checkExposure(url),
  ])
  const echoUnused = echoPath !== undefined && credential === undefined
  const echo = warning(
    'identity',
    'not checked: it takes a login',
    'give --account, --access-key and --secret-stdin',
  )
  const clock = judgeClock(first, now())
  return [endpointFinding, ...refusals, clock, ...exposed, ...session, ...(echoUnused ? [echo] : [])]
}

function judgeEndpoint(response: Response): Finding {
  if (response.status === 405 && isOurs(response)) return ok('endpoint', 'the token endpoint answers')
  if (isOurs(response) && codeOf(response) === 'InvalidToken') {
    const remedy = 'end --url with the path that listen.basePath holds, or correct that setting'
    return failure('endpoint', 'the sidecar answers, but its token endpoint is elsewhere', remedy)
  }
  const message = `another server answers in place of the sidecar (status ${response.status})`
  return failure('endpoint', message, 'check the address and port, and what routes requests to them')
}

async function checkRefusals(probe: URL): Promise<Finding[]> {
  const encode = (part: object) => Buffer.from(JSON.stringify(part)).toString('base64url')
  const token = (exp: number) => {
    const claims = {
      iss: 'check',
      aud: 'check',
      sub: 'check',
      client_id: 'check',
      jti: randomUUID(),
      iat: exp - 60,
      exp,
    }
    const signature = randomBytes(64).toString('base64url')
    return `${encode({ alg: 'ES256', kid: 'check', typ: 'at+jwt' })}.${encode(claims)}.${signature}`
  }
  const kinds = [
    ['without a token', {}],
    ['with a forged token', { Authorization: `Bearer ${token(4_000_000_000)}` }],
    ['with a forged token that looks expired', { Authorization: `Bearer ${token(1_000_000_000)}` }],
  ] as const
  return Promise.all(
    kinds.map(async ([kind, headers]) => {
      const response = await send(probe, { headers })
      const { status, fault } = response
      const isRefused =
        isOurs(response) && (status === 400 || status === 401) && codeOf(response) === 'InvalidToken'
      if (isRefused) return ok('enforcement', `a request ${kind} is refused`)
      if (status === 0)
        return failure('enforcement', `a request ${kind} got no response: ${fault}`, 'run the check again')
      const message = `a request ${kind} is not refused by the sidecar (status ${status})`
      return failure(
        'enforcement',
        message,
        'set enforcement: enforce, and let no route lead past the sidecar',
      )
    }),
  )
}

function judgeClock({ headers }: Response, now: number): Finding {
  const theirs = Date.parse(headers.date ?? '')
  if (Number.isNaN(theirs))
    return warning('clock', 'the response has no Date', 'find out which proxy removes it')
  const seconds = Math.round(Math.abs(theirs - now) / 1000)
  if (seconds <= MAX_CLOCK_DIFFERENCE_SECONDS) return ok('clock', 'the clocks agree')
  return failure(
    'clock',
    `the clocks differ by ${seconds} s`,
    'synchronize both machines (NTP): tokens expire by the clock',
  )
}

/** Whether the data listener shows what belongs on the admin listener. */
async function checkExposure(url: URL): Promise<Finding[]> {
  const paths = ['/metrics', '/status.json']
  const responses = await Promise.all(paths.map((path) => send(at(url, path))))
  const isExposed = responses.some(
    ({ status, body }) => status === 200 && /auth_sidecar_|"version"/.test(body),
  )
  const remedy = 'remove the route to admin.port, and keep that port inside the cluster'
  return [
    isExposed
      ? failure('admin exposure', 'the admin listener can be reached through the data address', remedy)
      : ok('admin exposure', 'the admin listener is not reachable through the data address'),
  ]
}

async function checkLogin(
  endpoint: URL,
  probe: URL,
  credential: object,
  isEcho: boolean,
): Promise<Finding[]> {
  const json = { 'Content-Type': 'application/json' }
  const issued = await send(endpoint, { method: 'POST', headers: json, body: JSON.stringify(credential) })
  const { token } = fieldsOf(issued)
  // Also keeps a hostile value out of the next request's head.
  if (issued.status !== 200 || typeof token !== 'string' || !/^[\w.-]{1,8192}$/.test(token)) {
    const remedy =
      issued.status === 403 ? 'check account, access key and secret' : 'see the log of the sidecar'
    return [failure('login', `the login fails (${describe(issued)})`, remedy)]
  }
  const Authorization = `Bearer ${token}`
  const marker = randomUUID()
  const requestId = randomUUID()
  const spoofed = Object.fromEntries(
    [
      'X-Authenticated-Account-Id',
      'X_Authenticated_Account_Id',
      'X.Authenticated.Account.Id',
      'X-Authenticated-Check',
    ].map((name) => [name, marker]),
  )
  const [left, passed] = await Promise.all([
    send(endpoint, { headers: { Authorization } }),
    send(probe, { headers: { Authorization, ...spoofed, 'X-Request-Id': requestId } }),
  ])
  const findings = [ok('login', 'a login works')]
  findings.push(
    left.status === 200 && Number(fieldsOf(left)['expirationSec']) > 0
      ? ok('time left', 'the time left of the token is reported')
      : failure(
          'time left',
          `the time left is not reported (${describe(left)})`,
          'check the clock and the keys of every replica',
        ),
  )
  findings.push(
    passed.status === 0 || isOurs(passed)
      ? failure(
          'token',
          `a valid token does not reach the service (${describe(passed)})`,
          'check upstreams and the service',
        )
      : ok('token', 'a valid token reaches the service'),
  )
  if (!isEcho) return findings
  if (passed.body.includes(marker)) {
    const remedy = 'let every route to the service pass the sidecar, and update the sidecar'
    return [...findings, failure('identity', "a client's own identity headers reach the service", remedy)]
  }
  const isShown = passed.body.includes(requestId)
  const unseen = warning(
    'identity',
    'the response of --echo-path does not show the request headers',
    'name another path',
  )
  return [...findings, isShown ? ok('identity', "a client's own identity headers are removed") : unseen]
}

async function checkAdmin(url: URL): Promise<Finding[]> {
  const response = await send(at(url, `${url.pathname.replace(/\/$/, '')}/readyz`))
  if (response.status === 200) return [ok('admin', 'the admin listener is ready')]
  return [
    failure(
      'admin',
      `the admin listener is not ready (${describe(response)})`,
      'see /readyz and the log of the sidecar',
    ),
  ]
}

async function checkUpstream(url: URL): Promise<Finding[]> {
  const { status, fault, connected } = await send(url)
  const remedy = 'bind the service to loopback, or let a NetworkPolicy admit the sidecar only'
  if (status > 0) return [failure('upstream', 'the service answers from here without the sidecar', remedy)]
  if (connected)
    return [warning('upstream', 'the service accepts connections from here, without an answer', remedy)]
  if (fault === 'ENOTFOUND')
    return [warning('upstream', 'the name of the service is unknown here', 'check --upstream-url')]
  return [ok('upstream', 'the service does not answer from here')]
}

function checkCertificate({ hostname, port }: URL, now: () => number): Promise<Finding[]> {
  const host = hostname.replace(/^\[|\]$/g, '')
  const servername = /^[\d.]+$|:/.test(host) ? {} : { servername: host }
  return new Promise((resolve) => {
    // No data is sent here; requests with data verify the certificate.
    const socket = connect({ host, port: Number(port || 443), ...servername, rejectUnauthorized: false })
    const end = (finding: Finding) => {
      clearTimeout(timer)
      socket.destroy()
      resolve([finding])
    }
    const noTls = () => end(failure('certificate', 'no TLS handshake', 'check listen.tls and the address'))
    const timer = setTimeout(noTls, REQUEST_MS)
    socket.once('error', noTls)
    socket.once('secureConnect', () => {
      const days = Math.floor((Date.parse(socket.getPeerCertificate().valid_to) - now()) / 86_400_000)
      const remedy = 'renew it; the sidecar loads the new one by itself'
      if (days < 0) end(failure('certificate', 'the certificate has expired', remedy))
      else if (!socket.authorized) {
        end(
          failure(
            'certificate',
            'the certificate is not trusted here',
            'name its authority in NODE_EXTRA_CA_CERTS',
          ),
        )
      } else if (days < MIN_CERTIFICATE_DAYS)
        end(warning('certificate', `the certificate ends in ${days} days`, remedy))
      else end(ok('certificate', `the certificate is valid for ${days} days`))
    })
  })
}

/** A response with status 0 is none: `fault` is an error code. */
interface Response {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: string
  readonly fault: string
  readonly connected: boolean
}

interface Request {
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
}

/** Sends one request on a connection of its own. Never rejects; a longer body is truncated. */
function send(url: URL, { method = 'GET', headers = {}, body = '' }: Request = {}): Promise<Response> {
  return new Promise((resolve) => {
    let connected = false
    const request = url.protocol === 'https:' ? httpsRequest : httpRequest
    const signal = AbortSignal.timeout(REQUEST_MS)
    const length = body === '' ? {} : { 'Content-Length': Buffer.byteLength(body) }
    const fail = (error: NodeJS.ErrnoException) => {
      const code = /^[A-Z0-9_]{1,64}$/.test(error.code ?? '') ? String(error.code) : 'error'
      const fault = signal.aborted ? 'timeout' : code
      resolve({ status: 0, headers: {}, body: '', fault, connected })
    }
    const outgoing = request(
      url,
      { method, headers: { ...headers, ...length }, agent: false, signal },
      (response) => {
        const chunks: Buffer[] = []
        let size = 0
        const end = () => {
          const { statusCode = 0, headers } = response
          resolve({
            status: statusCode,
            headers,
            body: Buffer.concat(chunks).toString(),
            fault: '',
            connected,
          })
          outgoing.destroy()
        }
        response.on('data', (chunk: Buffer) => {
          chunks.push(chunk)
          size += chunk.length
          if (size > MAX_BODY_BYTES) end()
        })
        response.on('end', end).on('error', fail)
      },
    )
    outgoing.on('socket', (socket) => {
      socket.on('connect', () => {
        connected = true
      })
    })
    outgoing
      .on('error', fail)
      .on('close', () => fail(new Error('closed')))
      .end(body)
  })
}

function at(url: URL, path: string): URL {
  return new URL(`${url.origin}${path}`)
}

/** Whether the sidecar itself made a response (RFC 9209). */
function isOurs({ headers }: Response): boolean {
  return /^storage-auth-sidecar(?:;|$)/.test(String(headers['proxy-status'] ?? ''))
}

function fieldsOf({ body }: Response): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(body)
    return value instanceof Object ? { ...value } : {}
  } catch {
    return {}
  }
}

const codeOf = (response: Response) => fieldsOf(response)['code']

const describe = ({ status, fault }: Response) => (status === 0 ? fault : `status ${status}`)

const ok = (check: string, message: string): Finding => ({ check, status: 'ok', message })

const warning = (check: string, message: string, remedy: string): Finding => ({
  check,
  status: 'warning',
  message,
  remedy,
})

const failure = (check: string, message: string, remedy: string): Finding => ({
  check,
  status: 'failure',
  message,
  remedy,
})
