/** The configuration as the program uses it: validated settings, derived values, and their problems. */
import type { z } from 'zod'
import { printable } from '../base/log.ts'
import { isLoopback } from '../http/hosts.ts'
import { PUBLIC_ALGORITHMS } from '../keys/key-ring.ts'
import { oauthTokenPaths } from './oauth-paths.ts'
import { checkRules } from './rules.ts'
import { CREDENTIALS_FILE, KEYS_DIRECTORY, REVOCATIONS_FILE, settingsSchema } from './schema.ts'
import { API_TOKEN_SECONDS, RUN_ALWAYS } from './setting-kinds.ts'

export const configSchema = (needsUpstream: boolean) =>
  settingsSchema
    .superRefine((settings, context) => checkRules(settings, context, needsUpstream), RUN_ALWAYS)
    .transform(({ token, keys, credentials, revocations, ...rest }) => {
      const { links, trustedIssuers } = rest
      // By default,
      // tokens longer than `API_TOKEN_SECONDS` are accepted only if the sidecar issues such tokens.
      const longestIssuedSeconds = Math.max(API_TOKEN_SECONDS, token.lifetimeSeconds)
      const maxLifetimeSeconds = token.maxLifetimeSeconds ?? longestIssuedSeconds
      // The longest time a signature of the sidecar is accepted.
      // A token of another issuer, which may live longer, can make a link.
      const ofTokens = [maxLifetimeSeconds, ...trustedIssuers.map((issuer) => issuer.maxLifetimeSeconds)]
      const ofLinks = links.enabled ? Math.min(links.maxLifetimeSeconds, Math.max(...ofTokens)) : 0
      // The clock of the replica that signs may be ahead of the one that retires the key.
      const maxSignedSeconds = Math.max(maxLifetimeSeconds, ofLinks) + token.clockToleranceSeconds
      const hasKeyFiles = keys.jwksUrl === undefined
      const directory = keys.directory ?? (hasKeyFiles ? KEYS_DIRECTORY : undefined)
      // A sidecar that fetches its keys has no logins. A database still says which credentials are disabled.
      const hasCredentialsFile = hasKeyFiles && credentials.postgres === undefined
      const file = credentials.file ?? (hasCredentialsFile ? CREDENTIALS_FILE : undefined)
      return {
        ...rest,
        oauth: { ...rest.oauth, tokenPaths: oauthTokenPaths(rest) },
        token: { ...token, maxLifetimeSeconds, maxSignedSeconds },
        keys: { ...keys, directory },
        credentials: { ...credentials, file },
        // Only the default file may be missing.
        revocations: { ...revocations, required: revocations.file !== REVOCATIONS_FILE },
      }
    })

/** Returns the JWK Sets to fetch, one for each issuer. `setting`: its group, such as `trustedIssuers[0]`. */
export function keySetsOf({ token, keys, trustedIssuers }: Config) {
  const trusted = trustedIssuers.map((entry, index) => ({ ...entry, setting: `trustedIssuers[${index}]` }))
  if (keys.jwksUrl === undefined) {
    return trusted
  }
  const { jwksUrl, caFile } = keys
  const own = { setting: 'keys', issuer: token.issuer, jwksUrl, caFile, algorithms: PUBLIC_ALGORITHMS }
  return [{ ...own, bearerTokenFile: undefined }, ...trusted]
}

export type KeySetSettings = ReturnType<typeof keySetsOf>[number]

const insecureKeySets = (config: Config) =>
  keySetsOf(config).flatMap(({ setting, jwksUrl }) => {
    const { protocol, hostname } = new URL(jwksUrl)
    const danger = 'the keys are fetched without TLS, so what changes them on the way can sign any token'
    return protocol === 'https:' || isLoopback(hostname) ? [] : [`${setting}.jwksUrl: ${danger}`]
  })

const NO_SCOPE_HOSTS =
  'scopes.hosts: is empty, so links are refused; list the hosts at which clients reach the service'

const PLAIN_BASIC =
  'basic.enabled: clients send their secret with each request, here without TLS (listen.tls), so a proxy in front must have it'

/** What an operator should know of the settings before and after a start. */
export function configWarnings(config: Config): string[] {
  const warnings = insecureKeySets(config)
  if (config.links.enabled && config.scopes.hosts.length === 0) {
    warnings.push(NO_SCOPE_HOSTS)
  }
  if (config.basic.enabled && config.listen.tls === undefined) {
    warnings.push(PLAIN_BASIC)
  }
  return [...warnings, ...feedWarnings(config)]
}

function feedWarnings({ feed, admin, trustedIssuers }: Config): string[] {
  if (!feed.enabled) {
    return []
  }
  const warnings: string[] = []
  if (admin.tls === undefined && !isLoopback(admin.host)) {
    warnings.push(
      'feed.enabled: without admin.tls, the tokens of followers and the state cross the network in plain text',
    )
  }
  if (feed.subjects.length > 0 && trustedIssuers.length === 0) {
    warnings.push('feed.subjects: there are no trustedIssuers, so no token has such an access key')
  }
  return warnings
}

type DeepReadonly<T> = T extends readonly (infer Member)[]
  ? readonly DeepReadonly<Member>[]
  : T extends object
    ? { readonly [Name in keyof T]: DeepReadonly<T[Name]> }
    : T

/** Workers receive the configuration as JSON: each value must survive a conversion to JSON and back. */
export type Config = DeepReadonly<z.output<ReturnType<typeof configSchema>>>

/** A problem of a setting, or of the file that it names. */
export interface Problem {
  /** The setting (`upstreams[0].url`), or '' for a problem of a whole file, variable or flag. */
  readonly path: string
  readonly message: string
  /** `file:line:column`, a variable, a flag, or `default` if nothing sets the value. Absent if unknown. */
  readonly origin?: string
}

export const problemsAt = (path: string, messages: readonly string[]): readonly Problem[] =>
  messages.map((message) => ({ path, message }))

const MAX_PRINTED = 200 // more than there are settings

export function formatProblems(problems: readonly Problem[]): string {
  const lines = problems.slice(0, MAX_PRINTED).map(({ path, message, origin = 'default' }) => {
    const place = origin === 'default' ? '' : ` (${origin})`
    return printable(`  ${path === '' ? '' : `${path}: `}${message}${place}`)
  })
  const count = problems.length === 1 ? '1 problem' : `${problems.length} problems`
  const more = problems.length > MAX_PRINTED ? [`  and ${problems.length - MAX_PRINTED} more`] : []
  return [`the configuration has ${count}:`, ...lines, ...more].join('\n')
}
