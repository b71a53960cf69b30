/**
 * Every setting: its name, kind of value, bounds, default and meaning. `setting-kinds.ts` has the kinds,
 * and the members of lists. The loader, variables and flags derive from this schema, and by `npm run docs`
 * the JSON Schema, the sample file and the documentation.
 * A new setting: a line here, and its use. A wait also needs a row in `listener.ts` or `upstream/waits.ts`.
 * A setting that depends on others may need a rule (`rules.ts`) or a default (`config.ts`).
 */
import { z } from 'zod'
import { boolean, integer, nameSchema } from '../base/values.ts'
import {
  API_TOKEN_SECONDS,
  addressRange,
  basePath,
  exactPaths,
  filePath,
  httpUrl,
  ignoredScopes,
  listenHost,
  oneOf,
  optionalFilePath,
  optionalHttpUrl,
  optionalText,
  plainText,
  publicRoutes,
  ratio,
  realm,
  scopeHost,
  seconds,
  secureUrl,
  share,
  strictMap,
  timerSeconds,
  tokenSeconds,
  trustedIssuers,
  upstreams,
  webOrigin,
} from './setting-kinds.ts'

const ETC = '/etc/storage-auth-sidecar'
export const KEYS_DIRECTORY = `${ETC}/keys`
export const CREDENTIALS_FILE = `${ETC}/credentials.yaml`
export const REVOCATIONS_FILE = `${ETC}/revocations.yaml`
export const DEFAULT_SAMPLE_RATIO = 0.01

const group = <Shape extends z.core.$ZodLooseShape>(shape: Shape) =>
  strictMap(`must be a map of settings: ${Object.keys(shape).join(', ')}`, shape)

/** Must have the type of the setting. */
type Fallback<Output> = z.core.util.NoUndefined<NoInfer<Output>>

const setting = <Output>(kind: z.ZodType<Output>, fallback: Fallback<Output>, description: string) =>
  kind.default(fallback).describe(description)

/** A setting whose default depends on other settings. `config.ts` applies the default. */
const dependentSetting = <Output>(kind: z.ZodType<Output>, fallback: Output, description: string) =>
  kind.optional().meta({ description, default: fallback })

/** The sample settings file shows the example. */
const withExample = <Kind extends z.ZodType>(kind: Kind, description: string, example: unknown) =>
  kind.meta({ description, examples: [example] })

function certificatePair(receivers: string, directory: string) {
  const path = `${ETC}/${directory}`
  return {
    certFile: withExample(filePath, `PEM file of the chain that ${receivers} receive.`, `${path}/tls.crt`),
    keyFile: withExample(filePath, 'PEM file of the private key of certFile.', `${path}/tls.key`),
  }
}

const workerLimit = (max: number, fallback: number, description: string) =>
  setting(integer(1, max), fallback, `${description} In each worker.`)

const sharedLimit = (max: number, fallback: number, description: string) =>
  setting(integer(1, max), fallback, `${description} Divided among workers, at least 1 for each.`)

const list = <Member extends z.ZodType>(kind: z.ZodArray<Member>, description: string) =>
  kind.default([]).describe(description)

/** A group that is left out, or left empty, means its defaults. */
function section<Shape extends z.core.$ZodLooseShape>(description: string, shape: Shape) {
  const members = group(shape)
  // The type of a generic shape cannot say that every member of every group has a default.
  return members.prefault({} as z.input<typeof members>).describe(description)
}

const optionalSection = <Shape extends z.core.$ZodLooseShape>(description: string, shape: Shape) =>
  group(shape).optional().describe(description)

const sharedLimits = group({
  connections: sharedLimit(
    1_000_000,
    10000,
    'Maximum client connections; a new one closes the oldest idle one.',
  ),
  upstreamConnections: sharedLimit(100_000, 256, 'Maximum number of connections to an upstream.'),
  upstreamQueue: sharedLimit(1_000_000, 1024, 'Maximum requests that wait for an upstream.'),
})
export const SHARED_LIMITS = sharedLimits.keyof().options

const MAX_STALE_SECONDS = 31_536_000

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const
const WORKERS = "must be an integer from 1 to 1024, or 'auto'"

export const settingsSchema = group({
  name: setting(optionalText, '', 'Name of the sidecar on its status page; empty: the host name.'),
  listen: section('Data listener: what clients connect to.', {
    host: setting(listenHost, '0.0.0.0', 'Address it listens on.'),
    port: setting(integer(0, 65535), 8080, 'TCP port; 0 lets the system choose one.'),
    basePath: setting(basePath, '', 'Path in front of /v2/auth/token; forwarded targets keep it.'),
    tls: optionalSection('TLS to clients; plain HTTP without it. Files are re-read on change.', {
      ...certificatePair('clients', 'tls'),
      clientCaFile: withExample(filePath.optional(), 'PEM file of the CAs of clients.', `${ETC}/tls/ca.crt`),
    }),
  }),
  admin: section('Admin listener: metrics, health, public keys.', {
    host: setting(listenHost, '0.0.0.0', 'Address it listens on.'),
    port: setting(integer(0, 65535), 8081, 'TCP port; 0 lets the system choose one.'),
    tls: optionalSection(
      'TLS on the admin listener; plain HTTP without it. Files are re-read on change.',
      certificatePair('probes, scrapers and sidecars', 'admin-tls'),
    ),
  }),
  upstreams: withExample(
    upstreams.default([]),
    'Storage services that requests are forwarded to, at least one.',
    [{ prefix: '/', url: 'http://127.0.0.1:9000' }],
  ),
  token: section('Tokens, issued and verified.', {
    issuer: setting(plainText, 'storage-account-api', 'Claim iss of every token.'),
    audience: setting(plainText, 'storage-api', 'Claim aud of every token.'),
    lifetimeSeconds: setting(tokenSeconds, API_TOKEN_SECONDS, 'Seconds a new token is good for.'),
    clockToleranceSeconds: setting(
      integer(0, 3600),
      5,
      'Seconds that `iat` and `nbf` may lie ahead of this clock.',
    ),
    maxLifetimeSeconds: withExample(
      tokenSeconds.optional(),
      `Longest accepted exp - iat in seconds; default: the larger of ${API_TOKEN_SECONDS} and token.lifetimeSeconds.`,
      API_TOKEN_SECONDS,
    ),
  }),
  keys: section('Keys that sign and verify tokens: a directory or a URL, not both.', {
    directory: dependentSetting(
      filePath,
      KEYS_DIRECTORY,
      'Directory of KID.jwk.json files and the file active, which names the kid that signs.',
    ),
    jwksUrl: withExample(
      httpUrl.optional(),
      "URL of another issuer's JWK Set; the sidecar then issues no tokens.",
      'https://issuer:8081/.well-known/jwks.json',
    ),
    caFile: withExample(filePath.optional(), 'PEM file of the CAs of keys.jwksUrl.', `${ETC}/issuer-ca.crt`),
  }),
  credentials: section('Who may log in: a file or a database; with keys.jwksUrl, a database or a feed.', {
    file: dependentSetting(filePath, CREDENTIALS_FILE, 'YAML file of accounts.'),
    postgres: optionalSection('Credentials in PostgreSQL, shared by all replicas.', {
      urlFile: withExample(filePath, 'File of the connection URL, with its password.', `${ETC}/postgres-url`),
      poolSize: workerLimit(1000, 5, 'Maximum number of connections.'),
    }),
    feed: optionalSection('Credentials and revocations of issuing sidecars, followed without a database.', {
      url: withExample(
        secureUrl,
        'URL of their feed; http: only to this machine.',
        'https://issuer:8081/feed',
      ),
      caFile: withExample(filePath.optional(), 'PEM file of the CAs of url.', `${ETC}/issuer-ca.crt`),
      tokenFile: withExample(
        filePath,
        'File of the token that is sent there, read anew for each request.',
        '/var/run/secrets/feed/token',
      ),
      maxStaleSeconds: withExample(
        integer(60, MAX_STALE_SECONDS).optional(),
        'Age of the state from which every token gets 503; default: the last state stays in use.',
        3600,
      ),
    }),
  }),
  revocations: section('Tokens withdrawn before they expire.', {
    file: setting(filePath, REVOCATIONS_FILE, 'YAML file of revocations; only the default may be missing.'),
  }),
  trustedIssuers: list(trustedIssuers, 'Other issuers whose tokens are accepted: docs/trusted-issuers.md.'),
  cache: section('Verified tokens that are cached.', {
    maxTokens: workerLimit(10_000_000, 10000, 'Maximum number of cached tokens.'),
    maxAgeSeconds: setting(timerSeconds, 300, 'Seconds until a cached token is verified again.'),
  }),
  identity: section('What upstreams receive about the caller.', {
    forwardAuthorization: setting(boolean, false, 'Whether upstreams receive the Authorization header.'),
    assertion: section('A signed statement of the identity, X-Authenticated-Assertion.', {
      enabled: setting(boolean, false, 'Whether upstreams receive it; needs a key that signs.'),
      audience: setting(plainText, 'storage-upstream', 'Claim aud of the assertion.'),
      lifetimeSeconds: setting(integer(1, 86400), 300, 'Seconds it lives, never longer than its token.'),
    }),
  }),
  enforcement: setting(oneOf(['enforce', 'report']), 'enforce', 'report: forwards what it would refuse.'),
  forwarded: section('Proxies in front of the sidecar.', {
    trust: list(
      z.array(addressRange, 'must be a list of IP addresses and CIDR ranges'),
      'Addresses and CIDR ranges of peers whose X-Forwarded-* and Forwarded headers are kept.',
    ),
  }),
  publicRoutes: list(
    publicRoutes,
    'Requests forwarded without a token and without identity: exact method and path, no patterns.',
  ),
  forwardAuth: section('Decisions for proxies that keep their own data path.', {
    path: setting(basePath, '', 'Path, with all below it, at which proxies ask; empty: off.'),
    maxAgeSeconds: setting(integer(0, 86400), 0, 'Seconds a proxy may cache a decision.'),
  }),
  corsPreflight: setting(oneOf(['deny', 'pass']), 'deny', 'pass: bodyless CORS preflights need no token.'),
  scopes: section('Where restricted tokens and links are accepted.', {
    hosts: list(
      z.array(scopeHost, "must be a list of hosts, or ['*']"),
      "Hosts at which restricted tokens and links are accepted, with or without a port; ['*']: all, for a service that does not choose by Host; empty: none.",
    ),
  }),
  links: section('URLs that allow one request without a token.', {
    enabled: setting(boolean, false, 'Whether links are accepted, and made where a key signs.'),
    maxLifetimeSeconds: setting(tokenSeconds, 604800, 'Seconds a link lives at most.'),
  }),
  basic: section('HTTP Basic, for clients that cannot send a token.', {
    enabled: setting(boolean, false, 'Whether a name and a secret in HTTP Basic are a login.'),
    realm: setting(realm, 'storage', 'Realm of the challenge, which some clients show.'),
    cacheSeconds: setting(integer(1, 86400), 300, 'Seconds until the secret is checked again.'),
  }),
  oauth: section('OAuth 2.0 (client_credentials), for clients that speak the standard.', {
    enabled: setting(boolean, false, 'Whether clients log in at oauth.tokenPaths.'),
    tokenPaths: list(
      exactPaths,
      'Exact paths of the token endpoint, the first for the metadata; none: {listen.basePath}/v2/oauth/token.',
    ),
    ignoredScopes: list(ignoredScopes, 'Words that are left out of the scope that a client asks for.'),
  }),
  fairUse: section('Limits for one account, so that none takes the service from the others.', {
    file: setting(optionalFilePath, '', 'YAML file with the limits, re-read on change; empty: no limits.'),
    enforcement: setting(
      oneOf(['enforce', 'report']),
      'enforce',
      'report: count and log, but limit nothing.',
    ),
    refusedStatus: setting(oneOf([429, 503]), 429, 'Status of a refused request; S3 clients retry a 503.'),
  }),
  tracing: section('Spans of requests, for OpenTelemetry: docs/tracing.md.', {
    endpoint: setting(
      optionalHttpUrl,
      '',
      'URL that takes OTLP over HTTP, such as http://collector:4318/v1/traces; empty: no tracing.',
    ),
    sampleRatio: withExample(
      ratio.optional(),
      `Part of the requests without a trace that are sampled; default: OTEL_TRACES_SAMPLER_ARG, or ${DEFAULT_SAMPLE_RATIO}.`,
      DEFAULT_SAMPLE_RATIO,
    ),
    trustIncoming: setting(
      boolean,
      true,
      'Whether a traceparent decides on sampling and is continued; false for an edge: it is only linked.',
    ),
    accountAttribute: setting(boolean, false, 'Whether spans name the account.'),
  }),
  feed: section('Serves credentials and revocations to the sidecars of a fleet: docs/fleet.md.', {
    enabled: setting(boolean, false, 'Whether /feed of the admin listener serves them.'),
    tokenFile: setting(optionalFilePath, '', 'File with the token of followers, re-read on change.'),
    subjects: list(
      z.array(nameSchema, 'must be a list of access keys'),
      'Access keys of trusted issuers whose tokens may follow, such as system:serviceaccount:storage:follower.',
    ),
    maxFollowers: setting(integer(1, 1_000_000), 20000, 'Maximum followers that are served or wait.'),
  }),
  upgrade: section('Protocol upgrades.', {
    enabled: setting(boolean, false, 'Whether WebSocket handshakes are forwarded like other requests.'),
  }),
  limits: section('Limits on what clients can use.', {
    loginFailures: section('Throttle of failed logins, for each pair of account and client network.', {
      count: workerLimit(1_000_000, 20, 'Failed logins after which more get 503.'),
      windowSeconds: setting(integer(1, 86400), 60, 'Length of the window in seconds.'),
    }),
    headerBytes: setting(integer(1024, 1_048_576), 16384, 'Maximum bytes of the header lines of a message.'),
    headerLines: setting(integer(1, 10_000), 200, 'Maximum number of header lines of a message.'),
    ...sharedLimits.shape,
    connectionsPerAddress: setting(
      integer(0, 1_000_000),
      0,
      'Maximum client connections of one address (IPv6: /64) to a process, except those of trusted proxies; 0: no limit.',
    ),
    uploadBytesPerSecond: setting(
      integer(0, 1_000_000_000),
      500,
      'Bytes a second that an upload must bring on average over timeouts.idleSeconds; 0: any byte counts.',
    ),
    accountShare: setting(
      share,
      0.5,
      'Part of upstreamConnections and of upstreamQueue that one account may use.',
    ),
  }),
  timeouts: section('How long the sidecar waits.', {
    headersSeconds: setting(
      seconds(),
      10,
      'Seconds for the TLS handshake, for the request head, and for the body of a login or link.',
    ),
    idleSeconds: setting(seconds(), 60, 'Seconds a body may make no progress.'),
    keepAliveSeconds: setting(seconds(), 75, 'Seconds an idle client connection is kept open.'),
    upstreamConnectSeconds: setting(seconds(), 3, 'Seconds to connect to an upstream, TLS included.'),
    upstreamMaxAgeSeconds: setting(
      seconds(),
      300,
      'Seconds after which a connection to an upstream is not reused: DNS is asked again.',
    ),
    upstreamResponseSeconds: setting(seconds(), 60, 'Seconds for a response head, or for a free connection.'),
  }),
  shutdown: section('What happens on SIGTERM.', {
    lameDuckSeconds: setting(seconds(0), 5, 'Seconds that the sidecar still accepts while not ready.'),
    deadlineSeconds: setting(seconds(0), 25, 'Seconds that transfers may take to finish.'),
  }),
  log: section('Log lines on standard output.', {
    level: setting(oneOf(LOG_LEVELS), 'info', 'Minimum severity. Access and audit lines have `info`.'),
    audit: setting(boolean, true, 'Whether logins, logouts, links and reloads have a line each.'),
    access: setting(oneOf(['all', 'errors', 'off']), 'errors', 'errors: 5xx, faults and refusals only.'),
    slowSeconds: setting(seconds(), 10, 'A request that waits longer for its first byte has a line, too.'),
  }),
  workers: setting(
    z.union([integer(1, 1024, WORKERS), z.literal('auto', WORKERS)], WORKERS),
    1,
    'Processes that share the listener; auto: one for each core, or fewer if there is a CPU quota (Node 22.12 and newer).',
  ),
  contract: section('Forms that clients of the API disagree on; the defaults are documented.', {
    expirationSec: setting(oneOf(['integer', 'string']), 'integer', 'JSON type of expirationSec.'),
    authenticationFailedCode: setting(
      oneOf(['Authentication failed', 'AuthenticationFailed']),
      'Authentication failed',
      'Code of a failed login.',
    ),
    refusedTokenStatus: setting(oneOf([400, 401]), 400, 'Status of a refused token; 401 challenges.'),
    logout: setting(boolean, false, 'Whether DELETE ends the token; needs credentials.postgres.'),
  }),
  cors: section('Browser apps of other origins.', {
    allowedOrigins: list(
      z.array(webOrigin, 'must be a list of origins'),
      "Origins whose scripts may read the sidecar's own responses; * for all.",
    ),
  }),
}).meta({ title: 'Settings of the storage auth sidecar' })
