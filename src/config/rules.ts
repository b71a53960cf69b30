/**
 * The rules that concern several settings at once.
 *
 * A rule sees settings that are valid by themselves; it is skipped while one that it reads is not.
 *
 * @module
 */
import type { Step } from './problem.ts'
import type { Settings } from './schema.ts'

/** What a rule found. */
export interface Finding {
  /** What is wrong, as the documentation writes it: a setting or a group. */
  readonly path: string
  readonly message: string
  /** The setting to point at, and the way into its value. */
  readonly at: string
  readonly below?: readonly Step[]
}

/** One rule. `isSet` tells settings that somebody gave a value from those left at their default. */
export interface Rule {
  readonly reads: readonly string[]
  readonly check: (settings: Settings, isSet: (path: string) => boolean) => readonly Finding[]
}

/** A sidecar has to forward somewhere. Commands that forward nothing leave this rule out. */
export const NEEDS_UPSTREAM: Rule = {
  reads: ['upstreams', 'forwardAuth.path'],
  check: ({ upstreams, forwardAuth }) =>
    upstreams.length > 0 || forwardAuth.path !== ''
      ? []
      : [
          {
            path: 'upstreams',
            message: 'at least one upstream is needed; set upstreams or SIDECAR_UPSTREAM_URL',
            at: 'upstreams',
          },
        ],
}

/** All other rules. */
export const RULES: readonly Rule[] = [
  {
    reads: ['keys.directory', 'keys.jwksUrl'],
    check: (_settings, isSet) =>
      isSet('keys.directory') && isSet('keys.jwksUrl')
        ? [{ path: 'keys', message: 'must have directory or jwksUrl, not both', at: 'keys.jwksUrl' }]
        : [],
  },
  {
    reads: ['credentials.file', 'credentials.postgres'],
    check: ({ credentials }, isSet) =>
      isSet('credentials.file') && credentials.postgres !== undefined
        ? [
            {
              path: 'credentials',
              message: 'must have file or postgres, not both',
              at: 'credentials.postgres.urlFile',
            },
          ]
        : [],
  },
  {
    reads: ['credentials.file', 'credentials.postgres', 'keys.jwksUrl'],
    check: ({ keys }, isSet) =>
      ['credentials.file', 'credentials.postgres.urlFile']
        .filter((path) => keys.jwksUrl !== undefined && isSet(path))
        .map((at) => ({
          path: at,
          message: 'cannot be used with keys.jwksUrl: such a sidecar only verifies and issues no tokens',
          at,
        })),
  },
  {
    reads: ['token.lifetimeSeconds', 'token.maxLifetimeSeconds'],
    check: ({ token: { lifetimeSeconds, maxLifetimeSeconds = lifetimeSeconds } }) =>
      maxLifetimeSeconds >= lifetimeSeconds
        ? []
        : [
            {
              path: 'token.maxLifetimeSeconds',
              message: `must be at least token.lifetimeSeconds (${lifetimeSeconds}): our own tokens would be refused`,
              at: 'token.maxLifetimeSeconds',
            },
          ],
  },
  {
    reads: ['listen.basePath', 'publicRoutes'],
    check: ({ listen, publicRoutes }) => {
      const endpoint = `${listen.basePath}/v2/auth/token`
      return publicRoutes.flatMap(({ path }, index) =>
        path === endpoint || path === `${endpoint}/`
          ? [
              {
                path: `publicRoutes[${index}].path`,
                message: 'must be another path than the token endpoint, which is never forwarded',
                at: 'publicRoutes',
                below: [index, 'path'],
              },
            ]
          : [],
      )
    },
  },
  {
    reads: ['listen.basePath', 'forwardAuth.path'],
    check: ({ listen, forwardAuth: { path } }) => {
      const endpoint = `${listen.basePath}/v2/auth/token`
      const message = `must not be the token endpoint ${endpoint}, a path above it or one below it`
      return path !== '' && (isWithin(endpoint, path) || isWithin(path, endpoint))
        ? [{ path: 'forwardAuth.path', message, at: 'forwardAuth.path' }]
        : []
    },
  },
  {
    reads: ['forwardAuth.path', 'publicRoutes'],
    check: ({ forwardAuth, publicRoutes }) =>
      publicRoutes.flatMap(({ path }, index) =>
        forwardAuth.path !== '' && isWithin(path, forwardAuth.path)
          ? [
              {
                path: `publicRoutes[${index}].path`,
                message: 'must not be at or below forwardAuth.path, which is never forwarded',
                at: 'publicRoutes',
                below: [index, 'path'],
              },
            ]
          : [],
      ),
  },
  {
    reads: ['identity.assertion.enabled', 'keys.jwksUrl'],
    check: ({ identity, keys }) =>
      identity.assertion.enabled && keys.jwksUrl !== undefined
        ? [
            {
              path: 'identity.assertion.enabled',
              message: 'cannot be used with keys.jwksUrl: an assertion needs a key that signs',
              at: 'identity.assertion.enabled',
            },
          ]
        : [],
  },
  {
    reads: ['identity.assertion.enabled', 'identity.assertion.audience', 'token.audience'],
    check: ({ identity: { assertion }, token }) =>
      assertion.enabled && assertion.audience === token.audience
        ? [
            {
              path: 'identity.assertion.audience',
              message: 'must differ from token.audience: an assertion is not an access token',
              at: 'identity.assertion.audience',
            },
          ]
        : [],
  },
  {
    reads: ['listen.host', 'listen.port', 'admin.host', 'admin.port'],
    check: ({ listen, admin }) =>
      listen.port === admin.port && listen.port !== 0 && overlap(listen.host, admin.host)
        ? [{ path: 'admin.port', message: 'must be another port than listen.port', at: 'admin.port' }]
        : [],
  },
]

/** Whether two listeners on one port would get in each other's way. */
function overlap(a: string, b: string): boolean {
  const hosts = [a, b]
  return (
    a === b ||
    hosts.includes('::') ||
    (hosts.includes('0.0.0.0') && !hosts.some((host) => host.includes(':')))
  )
}

/** Whether a path is `parent` or lies below it, on segment boundaries. */
function isWithin(path: string, parent: string): boolean {
  return path === parent || path.startsWith(`${parent}/`)
}
