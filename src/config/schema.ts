/**
 * Every setting: its name, its kind and bounds, its default, what it means.
 *
 * The loader, the environment variables, the flags, the JSON Schema and the documentation are all made from
 * this one description. Rules that concern several settings are in `rules.ts`. Unknown names are errors.
 *
 * @module
 */
import { z } from 'zod'
import { upstreamsSchema } from './upstream.ts'
import {
  addressRange,
  basePath,
  exactPath,
  filePath,
  forwardedMethod,
  httpUrl,
  listenHost,
  oneOf,
  oneOfNumbers,
  origin,
  port,
  seconds,
  text,
  whole,
  wholeOrAuto,
  yesOrNo,
} from './values.ts'

/** Ten years: longer is a slip of the finger, and far from the limits of whole numbers. */
const MOST_TOKEN_SECONDS = 315_360_000

/** Where revocations are looked for when no file is named. */
export const REVOCATIONS_FILE = '/etc/storage-auth-sidecar/revocations.yaml'

const WANTS_ROUTE = 'must be a map such as { method: GET, path: /healthz }'

/** A group of settings; leaving it out, or leaving it empty, means its defaults. */
function section<Shape extends z.core.$ZodLooseShape>(description: string, shape: Shape) {
  const group = z.strictObject(shape)
  // The type of a generic shape cannot say that every member of every group has a default; a test does.
  return group.prefault({} as z.input<typeof group>).describe(description)
}

/** The settings as the file, the environment and the flags give them. */
export const settingsSchema = z
  .strictObject({
    listen: section('Data listener: what clients connect to.', {
      host: listenHost().default('0.0.0.0').describe('Address it listens on.'),
      port: port().default(8080).describe('TCP port; 0 lets the system choose one.'),
      basePath: basePath()
        .default('')
        .describe(
          'Path in front of /v2/auth/token; moves the token endpoint only, forwarded targets keep it.',
        ),
      tls: z
        .strictObject({
          certFile: filePath().describe(
            'PEM file of the certificate chain clients are shown; re-read on change.',
          ),
          keyFile: filePath().describe('PEM file of the private key of certFile; re-read on change.'),
          clientCaFile: filePath()
            .optional()
            .describe(
              'PEM file of the authorities that sign client certificates; clients must then show one.',
            ),
        })
        .optional()
        .describe('TLS to clients; plain HTTP without it.'),
    }),
    admin: section('Admin listener: metrics, health, public keys.', {
      host: listenHost().default('0.0.0.0').describe('Address it listens on.'),
      port: port().default(8081).describe('TCP port; 0 lets the system choose one.'),
    }),
    upstreams: upstreamsSchema
      .default([])
      .describe(
        'Storage services requests are forwarded to, at least one: prefix, url and for https caFile, certFile, keyFile.',
      ),
    token: section('Tokens, issued and verified.', {
      issuer: text().default('storage-account-api').describe('Claim iss of every token.'),
      audience: text().default('storage-api').describe('Claim aud of every token.'),
      lifetimeSeconds: whole(1, MOST_TOKEN_SECONDS)
        .default(86400)
        .describe('Seconds a new token is good for.'),
      clockToleranceSeconds: whole(0, 3600)
        .default(0)
        .describe('Seconds by which the clock of another issuer may differ from ours.'),
      maxLifetimeSeconds: whole(1, MOST_TOKEN_SECONDS)
        .optional()
        .describe(
          'Longest accepted lifetime of a token (exp - iat) in seconds; if not set, the larger of 86400 and token.lifetimeSeconds.',
        ),
    }),
    keys: section('Keys that sign and verify tokens: a directory or a URL, not both.', {
      directory: filePath()
        .default('/etc/storage-auth-sidecar/keys')
        .describe(
          'Directory of key files (KID.jwk.json) and the file active, which names the one that signs; not used with keys.jwksUrl.',
        ),
      jwksUrl: httpUrl()
        .optional()
        .describe("URL of another issuer's JWK Set; the sidecar then only verifies and issues no tokens."),
    }),
    credentials: section('Who may log in: a file or a database, not both; neither with keys.jwksUrl.', {
      file: filePath()
        .default('/etc/storage-auth-sidecar/credentials.yaml')
        .describe('YAML file of accounts; not used with credentials.postgres or keys.jwksUrl.'),
      postgres: z
        .strictObject({
          urlFile: filePath().describe('File that holds the connection URL, as the URL holds a password.'),
          poolSize: whole(1, 1000).default(5).describe('Most connections to the database at one time.'),
        })
        .optional()
        .describe('Credentials in PostgreSQL, shared by all replicas.'),
    }),
    revocations: section('Tokens withdrawn before they expire.', {
      file: filePath()
        .default(REVOCATIONS_FILE)
        .describe('YAML file of revocations; the default one may be missing, any other must exist.'),
    }),
    cache: section('Verified tokens that are remembered.', {
      maxTokens: whole(1, 10_000_000).default(10000).describe('Most tokens remembered at one time.'),
      maxAgeSeconds: whole(1, 2_147_483)
        .default(300)
        .describe('Seconds after which a remembered token is verified anew.'),
    }),
    identity: section('What upstreams are told of the caller.', {
      forwardAuthorization: yesOrNo()
        .default(false)
        .describe('Whether upstreams receive the Authorization header.'),
      assertion: section('A signed statement of the identity, X-Authenticated-Assertion.', {
        enabled: yesOrNo()
          .default(false)
          .describe('Whether upstreams receive X-Authenticated-Assertion; it needs a key that signs.'),
        audience: text().default('storage-upstream').describe('Claim aud of the assertion.'),
        lifetimeSeconds: whole(1, 86400)
          .default(300)
          .describe('Seconds an assertion is good for, never longer than its token.'),
      }),
    }),
    enforcement: oneOf(['enforce', 'report'])
      .default('enforce')
      .describe(
        'report: a request that the token check would refuse is forwarded without identity, counted and logged.',
      ),
    forwarded: section('Proxies in front of the sidecar.', {
      trust: z
        .array(addressRange(), 'must be a list of IP addresses and CIDR ranges')
        .default([])
        .describe('Addresses and CIDR ranges of peers whose X-Forwarded-* and Forwarded headers are kept.'),
    }),
    publicRoutes: z
      .array(
        z.strictObject(
          {
            method: forwardedMethod().describe('Exact method.'),
            path: exactPath().describe('Exact path, without query.'),
          },
          { error: ({ code }) => (code === 'invalid_type' ? WANTS_ROUTE : undefined) },
        ),
        `must be a list; each member ${WANTS_ROUTE}`,
      )
      .default([])
      .describe(
        'Requests forwarded without a token and without identity: exact method and path, no patterns.',
      ),
    forwardAuth: section('Decisions for proxies that keep their own data path.', {
      path: basePath()
        .default('')
        .describe('Path at which a proxy asks for a decision, and everything below it; off when empty.'),
      maxAgeSeconds: whole(0, 86400)
        .default(0)
        .describe('Seconds a proxy may cache a decision; revocations apply to it that late.'),
    }),
    corsPreflight: oneOf(['deny', 'pass'])
      .default('deny')
      .describe('pass: OPTIONS with Origin and Access-Control-Request-Method is forwarded without a token.'),
    upgrade: section('Protocol upgrades.', {
      enabled: yesOrNo()
        .default(false)
        .describe('Whether WebSocket handshakes with a valid token are forwarded.'),
    }),
    limits: section('Bounds on what clients can take.', {
      loginFailures: section('Throttle of failed logins, for each pair of account and client address.', {
        count: whole(1, 1_000_000)
          .default(20)
          .describe('Failed logins within the window before more get 503.'),
        windowSeconds: whole(1, 86400).default(60).describe('Length of the window in seconds.'),
      }),
      headerBytes: whole(1024, 1_048_576)
        .default(16384)
        .describe('Most bytes of the header lines of a request; the request target alone may have as many.'),
      headerLines: whole(1, 10_000).default(200).describe('Most header lines of a request.'),
      connections: whole(1, 1_000_000)
        .default(10000)
        .describe('Most client connections at one time; more are closed at once.'),
      inFlightPerConnection: whole(1, 10_000)
        .default(16)
        .describe('Most requests of one connection (pipelining) in progress at one time.'),
      upstreamConnections: whole(1, 100_000).default(256).describe('Most connections to each upstream.'),
      upstreamQueue: whole(0, 1_000_000)
        .default(1024)
        .describe('Most requests that wait for a connection to one upstream; more get 503.'),
    }),
    timeouts: section('How long the sidecar waits.', {
      headersSeconds: seconds().default(10).describe('Seconds a client may take to send the request head.'),
      idleSeconds: seconds()
        .default(60)
        .describe('Seconds a body may stand still, in either direction; a transfer that moves is never cut.'),
      keepAliveSeconds: seconds().default(75).describe('Seconds an idle client connection is kept open.'),
      upstreamConnectSeconds: seconds()
        .default(3)
        .describe('Seconds to connect to an upstream, TLS included.'),
      upstreamResponseSeconds: seconds()
        .default(60)
        .describe('Seconds an upstream may take to send the response head.'),
    }),
    shutdown: section('What SIGTERM starts.', {
      lameDuckSeconds: seconds(0)
        .default(5)
        .describe('Seconds connections are still accepted while /readyz says 503.'),
      deadlineSeconds: seconds(0)
        .default(25)
        .describe('Seconds transfers are given to finish before they are cut.'),
    }),
    log: section('Log lines on standard output.', {
      level: oneOf(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'])
        .default('info')
        .describe('Least severity that is written.'),
      access: oneOf(['all', 'errors', 'off'])
        .default('errors')
        .describe('Which requests get a line: all, those that failed, or none.'),
    }),
    workers: wholeOrAuto(1024)
      .default(1)
      .describe('Processes that share the listener; auto: one for each core.'),
    contract: section('Spellings that published clients of the API disagree on.', {
      expirationSec: oneOf(['integer', 'string'])
        .default('integer')
        .describe('JSON type of expirationSec; integer is the documented one.'),
      authenticationFailedCode: oneOf(['Authentication failed', 'AuthenticationFailed'])
        .default('Authentication failed')
        .describe('Code of a failed login; the one with a space is the documented one.'),
      refusedTokenStatus: oneOfNumbers([400, 401])
        .default(400)
        .describe('Status of a refused token; 401 also sends WWW-Authenticate; 400 is the documented one.'),
    }),
    cors: section('Browser apps of other origins.', {
      allowedOrigins: z
        .array(origin(), 'must be a list of origins')
        .default([])
        .describe("Origins whose scripts may read the sidecar's own responses; * for all."),
    }),
  })
  .meta({ title: 'Settings of the storage auth sidecar' })

/** The settings once every one of them is valid by itself. */
export type Settings = z.output<typeof settingsSchema>

type DeepReadonly<T> = T extends readonly (infer Member)[]
  ? readonly DeepReadonly<Member>[]
  : T extends object
    ? { readonly [Name in keyof T]: DeepReadonly<T[Name]> }
    : T

/** Where keys come from: exactly one of the two. */
export type KeySource =
  | { readonly directory: string; readonly jwksUrl?: undefined }
  | { readonly directory?: undefined; readonly jwksUrl: string }

/** Where credentials come from: one of the two, or none in a sidecar that reads its keys from a JWK Set. */
export type CredentialSource =
  | { readonly file: string; readonly postgres?: undefined }
  | { readonly file?: undefined; readonly postgres: { readonly urlFile: string; readonly poolSize: number } }
  | { readonly file?: undefined; readonly postgres?: undefined }

/** The settings in force: complete, consistent, frozen at every depth. */
export type Config = DeepReadonly<Omit<Settings, 'token' | 'keys' | 'credentials' | 'revocations'>> & {
  readonly token: DeepReadonly<Settings['token']> & { readonly maxLifetimeSeconds: number }
  readonly keys: KeySource
  readonly credentials: CredentialSource
  /** `required`: the file is not the default one, so it must be there. */
  readonly revocations: DeepReadonly<Settings['revocations']> & { readonly required: boolean }
}
