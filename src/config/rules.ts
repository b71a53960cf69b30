/** The rules between settings. The rules of a single setting stand in its schema. */
import type { z } from 'zod'
import { isHttps } from '../http/hosts.ts'
import { isWithin, LINKS_PATH, TOKEN_PATH, withoutFinalSlash } from '../http/request-target.ts'
import { oauthTokenPaths, otherOAuthPaths } from './oauth-paths.ts'
import { isOwnListener } from './own-listener.ts'
import { type Settings, valueAt } from './settings.ts'

/** The path of each setting and each group. No path leads into a list or an optional group. */
type PathIn<Group> = {
  [Name in keyof Group & string]:
    | Name
    | (Group[Name] extends Readonly<Record<string, unknown>> ? `${Name}.${PathIn<Group[Name]>}` : never)
}[keyof Group & string]

type SettingPath = PathIn<Settings>
type PathInList = `${SettingPath}.${number}` | `${SettingPath}.${number}.${string}`
type Report = (path: SettingPath | PathInList, message: string) => void

/**
 * `validate` is called only if each of the settings at `paths` is valid by itself. It must read no others.
 */
const rule =
  (paths: readonly SettingPath[], validate: (settings: Settings, report: Report) => void) =>
  (settings: Settings, isValid: (path: SettingPath) => boolean, report: Report): void => {
    if (paths.every(isValid)) {
      validate(settings, report)
    }
  }

/** If both are set, `path` is refused. `why` ends the message. */
const exclusive = (path: SettingPath, other: SettingPath, why = '') =>
  rule([path, other], (settings, report) => {
    const isSet = (path: SettingPath) => (valueAt(settings, path.split('.')) ?? false) !== false
    if (isSet(path) && isSet(other)) {
      report(path, `cannot be used with ${other}${why}`)
    }
  })

const NOT_AN_ACCESS_TOKEN = 'must differ from token.audience: an assertion is not an access token'

/** The paths that the sidecar itself serves must differ, and none of them may be a public route. */
const OWN_PATHS = rule(
  ['listen.basePath', 'forwardAuth.path', 'publicRoutes', 'links.enabled'],
  ({ listen, forwardAuth: { path: forwardAuthPath }, publicRoutes, links }, report) => {
    const token = listen.basePath + TOKEN_PATH
    const link = listen.basePath + LINKS_PATH
    const isLink = (path: string) => links.enabled && isWithin(path, link)
    const isForwardAuth = (path: string) => forwardAuthPath !== '' && isWithin(path, forwardAuthPath)
    if (isForwardAuth(token) || isWithin(forwardAuthPath, token)) {
      report('forwardAuth.path', `must not be the token endpoint ${token}, a path above it or one below it`)
    } else if (isLink(forwardAuthPath)) {
      report('forwardAuth.path', `must not be at or below the link endpoint ${link}`)
    }
    for (const [index, { path }] of publicRoutes.entries()) {
      const reportPlace = (where: string) =>
        report(`publicRoutes.${index}.path`, `must not be ${where}, which is never forwarded`)
      if (path === token || path === `${token}/`) {
        reportPlace('the token endpoint')
      } else if (isLink(path)) {
        reportPlace('at or below the link endpoint')
      } else if (isForwardAuth(path)) {
        reportPlace('at or below forwardAuth.path')
      }
    }
  },
)

const OAUTH_PATHS = rule(
  [
    'listen.basePath',
    'oauth',
    'contract.logout',
    'token.issuer',
    'forwardAuth.path',
    'publicRoutes',
    'links.enabled',
  ],
  (settings, report) => {
    const { oauth, listen, links, forwardAuth, publicRoutes } = settings
    if (!oauth.enabled) {
      return
    }
    const token = listen.basePath + TOKEN_PATH
    const isLink = (path: string) => links.enabled && isWithin(path, listen.basePath + LINKS_PATH)
    const reserved = new Set([token, `${token}/`, ...otherOAuthPaths(settings)])
    for (const [index, path] of oauth.tokenPaths.entries()) {
      if (oauth.tokenPaths.indexOf(path) < index) {
        report(`oauth.tokenPaths.${index}`, 'repeats a path before it')
      } else if (reserved.has(path) || isLink(path)) {
        report(`oauth.tokenPaths.${index}`, 'must not be another endpoint of the sidecar')
      }
    }
    const paths = [...oauthTokenPaths(settings), ...otherOAuthPaths(settings)]
    const hidden = paths.find((path) => forwardAuth.path !== '' && isWithin(path, forwardAuth.path))
    if (hidden !== undefined) {
      report('forwardAuth.path', `must not be the OAuth endpoint ${hidden}, or a path above it`)
    }
    for (const [index, { path }] of publicRoutes.entries()) {
      if (paths.includes(path)) {
        report(`publicRoutes.${index}.path`, 'must not be an OAuth endpoint, which is never forwarded')
      }
    }
  },
)

const RULES = [
  exclusive('keys.jwksUrl', 'keys.directory'),
  exclusive('credentials.file', 'keys.jwksUrl', ': such a sidecar only verifies and issues no tokens'),
  exclusive('credentials.postgres', 'credentials.file'),
  exclusive('credentials.feed', 'credentials.file'),
  exclusive('credentials.feed', 'credentials.postgres'),
  rule(['credentials', 'keys.jwksUrl'], ({ credentials: { feed }, keys }, report) => {
    if (feed !== undefined && keys.jwksUrl === undefined) {
      report('credentials.feed', 'needs keys.jwksUrl: the feed has no secrets, so nobody can log in')
    }
    if (feed?.caFile !== undefined && !isHttps(feed.url)) {
      report('credentials.feed', 'has a caFile, which needs a url that begins with https:')
    }
  }),
  exclusive('identity.assertion.enabled', 'keys.jwksUrl', ': an assertion needs a key that signs'),
  exclusive('oauth.enabled', 'keys.jwksUrl', ': such a sidecar only verifies and issues no tokens'),
  rule(['keys'], ({ keys: { caFile, jwksUrl } }, report) => {
    if (caFile !== undefined && !isHttps(jwksUrl)) {
      report('keys.caFile', 'needs a keys.jwksUrl that begins with https:')
    }
  }),
  rule(['upstreams'], ({ upstreams }, report) => {
    const prefixes = upstreams.map(({ prefix }) => withoutFinalSlash(prefix))
    for (const [index, prefix] of prefixes.entries()) {
      if (prefixes.indexOf(prefix) < index) {
        report(`upstreams.${index}.prefix`, 'serves the same paths as an upstream before it')
      }
    }
  }),
  rule(['upstreams', 'listen.host', 'listen.port', 'admin'], ({ upstreams, listen, admin }, report) => {
    for (const [index, { url }] of upstreams.entries()) {
      if (isOwnListener(url, listen)) {
        report(
          `upstreams.${index}.url`,
          'is the data listener of this sidecar, which would forward to itself',
        )
      } else if (isOwnListener(url, admin)) {
        report(`upstreams.${index}.url`, 'is the admin listener of this sidecar, which is not for clients')
      }
    }
  }),
  rule(['token.issuer', 'trustedIssuers'], ({ token, trustedIssuers }, report) => {
    const earlier = new Set([token.issuer])
    for (const [index, { issuer }] of trustedIssuers.entries()) {
      if (earlier.has(issuer)) {
        report(`trustedIssuers.${index}.issuer`, 'is token.issuer, or that of an entry before it')
      }
      earlier.add(issuer)
    }
  }),
  rule(['trustedIssuers'], ({ trustedIssuers }, report) => {
    const prefixes = trustedIssuers.map(({ accountPrefix }) => accountPrefix)
    const reachesInto = (prefix: string | undefined, longer: string | undefined) =>
      prefix !== undefined && prefix !== longer && longer?.startsWith(prefix)
    const message = 'begins with that of another entry, which reaches its accounts'
    for (const [index, longer] of prefixes.entries()) {
      if (prefixes.some((prefix) => reachesInto(prefix, longer))) {
        report(`trustedIssuers.${index}.accountPrefix`, message)
      }
    }
  }),
  rule(['token.lifetimeSeconds', 'token.maxLifetimeSeconds'], ({ token }, report) => {
    const { lifetimeSeconds, maxLifetimeSeconds } = token
    if (maxLifetimeSeconds !== undefined && maxLifetimeSeconds < lifetimeSeconds) {
      const bound = `must be at least token.lifetimeSeconds (${lifetimeSeconds})`
      report('token.maxLifetimeSeconds', `${bound}: the sidecar's own tokens would be refused`)
    }
  }),
  rule(['basic.enabled', 'credentials', 'keys'], ({ basic, credentials, keys }, report) => {
    const hasCredentials = keys.jwksUrl === undefined || credentials.postgres !== undefined
    if (basic.enabled && !hasCredentials) {
      report('basic.enabled', 'needs credentials: with keys.jwksUrl, those of credentials.postgres')
    }
  }),
  rule(['contract.logout', 'credentials'], ({ contract, credentials }, report) => {
    if (contract.logout && credentials.postgres === undefined) {
      report('contract.logout', 'needs credentials.postgres: a logout must reach every sidecar')
    }
  }),
  rule(['feed'], ({ feed: { enabled, tokenFile, subjects } }, report) => {
    if (enabled && tokenFile === '' && subjects.length === 0) {
      report('feed.enabled', 'needs feed.tokenFile or feed.subjects: nobody could follow')
    }
  }),
  rule(['feed.enabled', 'keys.jwksUrl', 'credentials'], ({ feed, keys, credentials }, report) => {
    if (feed.enabled && keys.jwksUrl !== undefined && credentials.postgres === undefined) {
      report('feed.enabled', 'needs a store of its own: a key directory with credentials, or a database')
    }
  }),
  rule(['identity.assertion', 'token.audience'], ({ identity: { assertion }, token }, report) => {
    if (assertion.enabled && assertion.audience === token.audience) {
      report('identity.assertion.audience', NOT_AN_ACCESS_TOKEN)
    }
  }),
  rule(['identity.assertion', 'token.audience', 'upstreams'], ({ identity, token, upstreams }, report) => {
    for (const [index, { assertionAudience }] of upstreams.entries()) {
      if (identity.assertion.enabled && assertionAudience === token.audience) {
        report(`upstreams.${index}.assertionAudience`, NOT_AN_ACCESS_TOKEN)
      }
    }
  }),
  OWN_PATHS,
  OAUTH_PATHS,
  rule(['listen.host', 'listen.port', 'admin'], ({ listen: { host, port }, admin }, report) => {
    const isOnAllAddresses = [host, admin.host].some((one) => one === '::' || one === '0.0.0.0')
    const isShared = host === admin.host || isOnAllAddresses
    if (isShared && port === admin.port && port !== 0) {
      report('admin.port', 'must be another port than listen.port')
    }
  }),
]

const NEEDS_UPSTREAM = rule(['upstreams', 'forwardAuth.path'], ({ upstreams, forwardAuth }, report) => {
  const message =
    'at least one upstream is needed; set upstreams in a file (--config FILE), or SIDECAR_UPSTREAM_URL'
  if (upstreams.length === 0 && forwardAuth.path === '') {
    report('upstreams', message)
  }
})

/** Adds all problems that can be known while other settings are invalid. */
export function checkRules(settings: Settings, context: z.RefinementCtx, needsUpstream: boolean): void {
  // An unknown name does not make its group invalid.
  const known = context.issues.filter(({ code }) => code !== 'unrecognized_keys')
  const invalid = known.map(({ path = [] }) => path)
  // A value in an invalid group is invalid. A group or list with an invalid value is invalid.
  const isValid = (path: string) =>
    !invalid.some((steps) => path.split('.').every((step, at) => at >= steps.length || step === steps[at]))
  const report: Report = (path, message) => {
    const steps = path.split('.').map((step) => (/^\d+$/.test(step) ? Number(step) : step))
    context.addIssue({ code: 'custom', path: steps, message })
  }
  for (const applyRule of needsUpstream ? [NEEDS_UPSTREAM, ...RULES] : RULES) {
    applyRule(settings, isValid, report)
  }
}
