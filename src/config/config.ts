/** The configuration as the program uses it: the settings, the rules across settings, and derived values. */
import type { z } from 'zod'
import { isWithin, LINKS_PATH, TOKEN_PATH } from '../http/request-target.ts'
import { PUBLIC_ALGORITHMS } from '../keys/key-ring.ts'
import {
  CREDENTIALS_FILE,
  KEYS_DIRECTORY,
  REVOCATIONS_FILE,
  RUN_ON_INVALID_INPUT,
  settingsSchema,
} from './schema.ts'
import { valueAt } from './settings.ts'

/** The documented lifetime of a token; longer ones are accepted only when the sidecar issues longer ones. */
const API_TOKEN_LIFETIME_SECONDS = 86_400

const VERIFIES_ONLY = ': such a sidecar only verifies and issues no tokens'

/** Settings that exclude each other: if both are set, the first is refused. The third item ends the message. */
const EXCLUSIVE = [
  ['keys.jwksUrl', 'keys.directory', ''],
  ['credentials.file', 'keys.jwksUrl', VERIFIES_ONLY],
  ['credentials.postgres', 'credentials.file', ''],
  ['identity.assertion.enabled', 'keys.jwksUrl', ': an assertion needs a key that signs'],
] as const

type Settings = z.output<typeof settingsSchema>

/** The rules across settings. A rule is skipped while a setting that it reads is invalid by itself. */
function checkAcross(settings: Settings, context: z.RefinementCtx): void {
  // An unknown name does not make its group invalid. The dot at the end keeps `a.b` apart from `a.bc`; '.' is the root.
  const known = context.issues.filter(({ code }) => code !== 'unrecognized_keys')
  const invalid = known.map(({ path = [] }) => `${path.join('.')}.`)
  if (invalid.includes('.')) return
  /** A path is valid unless there is an issue at it, below it or above it. */
  const areValid = (...paths: string[]) =>
    paths.every((path) => !invalid.some((one) => one.startsWith(`${path}.`) || `${path}.`.startsWith(one)))
  const isSet = (path: string) => (valueAt(settings, path.split('.')) ?? false) !== false
  const report = (path: string, message: string, below: readonly (string | number)[] = []) =>
    context.addIssue({ code: 'custom', path: [...path.split('.'), ...below], message })
  const { listen, admin, token, identity, forwardAuth, publicRoutes, keys, trustedIssuers } = settings

  for (const [path, other, why] of EXCLUSIVE) {
    if (areValid(path, other) && isSet(path) && isSet(other))
      report(path, `cannot be used with ${other}${why}`)
  }
  if (areValid('keys') && keys.caFile !== undefined && !/^https:/i.test(keys.jwksUrl ?? ''))
    report('keys.caFile', 'needs a keys.jwksUrl that begins with https:')
  if (areValid('token.issuer', 'trustedIssuers')) {
    const names = [token.issuer, ...trustedIssuers.map(({ issuer }) => issuer)]
    for (const [index, { issuer }] of trustedIssuers.entries()) {
      if (names.indexOf(issuer) <= index)
        report('trustedIssuers', 'is token.issuer, or that of an entry before it', [index, 'issuer'])
    }
  }
  if (areValid('token.lifetimeSeconds', 'token.maxLifetimeSeconds')) {
    const { lifetimeSeconds, maxLifetimeSeconds = lifetimeSeconds } = token
    const message = `must be at least token.lifetimeSeconds (${lifetimeSeconds}): the sidecar's own tokens would be refused`
    if (maxLifetimeSeconds < lifetimeSeconds) report('token.maxLifetimeSeconds', message)
  }
  if (
    areValid('contract.logout', 'credentials') &&
    isSet('contract.logout') &&
    !isSet('credentials.postgres')
  ) {
    report('contract.logout', 'needs credentials.postgres: a logout must reach every sidecar')
  }
  if (areValid('identity.assertion', 'token.audience') && identity.assertion.enabled) {
    const message = 'must differ from token.audience: an assertion is not an access token'
    if (identity.assertion.audience === token.audience) report('identity.assertion.audience', message)
    if (areValid('upstreams'))
      for (const [index, { assertionAudience }] of settings.upstreams.entries())
        if (assertionAudience === token.audience) report('upstreams', message, [index, 'assertionAudience'])
  }
  if (areValid('listen.basePath', 'forwardAuth.path', 'publicRoutes', 'links.enabled')) {
    const links = settings.links.enabled ? listen.basePath + LINKS_PATH : undefined
    const endpoint = listen.basePath + TOKEN_PATH
    const { path: decisionPath } = forwardAuth
    if (decisionPath !== '' && (isWithin(endpoint, decisionPath) || isWithin(decisionPath, endpoint))) {
      const message = `must not be the token endpoint ${endpoint}, a path above it or one below it`
      report('forwardAuth.path', message)
    } else if (links !== undefined && decisionPath !== '' && isWithin(decisionPath, links)) {
      report('forwardAuth.path', `must not be at or below the link endpoint ${links}`)
    }
    for (const [index, { path }] of publicRoutes.entries()) {
      const below = [index, 'path']
      if (path === endpoint || path === `${endpoint}/`) {
        report('publicRoutes', 'must not be the token endpoint, which is never forwarded', below)
      } else if (links !== undefined && isWithin(path, links)) {
        report('publicRoutes', 'must not be at or below the link endpoint, which is never forwarded', below)
      } else if (decisionPath !== '' && isWithin(path, decisionPath)) {
        report('publicRoutes', 'must not be at or below forwardAuth.path, which is never forwarded', below)
      }
    }
  }
  if (areValid('listen.host', 'listen.port', 'admin') && listen.port === admin.port && listen.port !== 0) {
    const hosts = [listen.host, admin.host]
    const overlap = hosts[0] === hosts[1] || hosts.some((host) => host === '::' || host === '0.0.0.0')
    if (overlap) report('admin.port', 'must be another port than listen.port')
  }
}

export const configSchema = settingsSchema
  .superRefine(checkAcross, RUN_ON_INVALID_INPUT)
  .transform(({ token, keys, credentials, revocations, ...rest }) => {
    const { maxLifetimeSeconds = Math.max(API_TOKEN_LIFETIME_SECONDS, token.lifetimeSeconds) } = token
    const { directory = KEYS_DIRECTORY, ...remote } = keys
    const { file = CREDENTIALS_FILE, postgres } = credentials
    const isRemote = remote.jwksUrl !== undefined
    const keySource: Settings['keys'] = isRemote ? remote : { directory }
    // With keys of a JWK Set there are no logins; a database tells which credentials are disabled.
    const credentialsFile: Settings['credentials'] = isRemote ? {} : { file }
    return {
      ...rest,
      token: { ...token, maxLifetimeSeconds },
      keys: keySource,
      credentials: postgres === undefined ? credentialsFile : { postgres },
      /** Only the default file may be missing. */
      revocations: { ...revocations, required: revocations.file !== REVOCATIONS_FILE },
    }
  })

/** The JWK Sets that are fetched, our own first. `setting`: the group that names it, such as `trustedIssuers[0]`. */
export function keySetsOf({ token, keys, trustedIssuers }: Config) {
  const trusted = trustedIssuers.map((entry, index) => ({ ...entry, setting: `trustedIssuers[${index}]` }))
  if (keys.jwksUrl === undefined) return trusted
  const { jwksUrl, caFile } = keys
  const own = { setting: 'keys', issuer: token.issuer, jwksUrl, caFile, algorithms: PUBLIC_ALGORITHMS }
  return [{ ...own, bearerTokenFile: undefined }, ...trusted]
}

/** Keys that anyone on the network path can replace let them sign tokens of any account. */
export const insecureKeySets = (config: Config) =>
  keySetsOf(config).flatMap(({ setting, jwksUrl }) => {
    const { protocol, hostname } = new URL(jwksUrl)
    const isLoopback = /^(?:localhost|127\.[\d.]+|\[::1\])$/.test(hostname)
    if (protocol === 'https:' || isLoopback) return []
    return [
      `${setting}.jwksUrl: the keys are fetched without TLS, so what changes them on the way can sign any token`,
    ]
  })

type DeepReadonly<T> = T extends readonly (infer Member)[]
  ? readonly DeepReadonly<Member>[]
  : T extends object
    ? { readonly [Name in keyof T]: DeepReadonly<T[Name]> }
    : T

/** The active settings: complete, consistent, frozen at every depth. */
export type Config = DeepReadonly<z.output<typeof configSchema>>
