/** The line that says what has started: enough to tell one deployment from another. Nothing in it is secret. */
import { isIP } from 'node:net'
import type { Config } from '../config/config.ts'
import { VERSION } from '../version.ts'
import type { Logger } from './log.ts'
import { addressOf } from './status.ts'

interface Started {
  /** Undefined without one. */
  readonly settingsFile: string | undefined
  /** The `kid` of the key that signs; undefined in a sidecar that only verifies. */
  readonly signingKey: string | undefined
}

/** Warns, too, if clients send tokens and secrets over a network without TLS. */
export function logStart(log: Logger, config: Config, { settingsFile, signingKey }: Started): void {
  const { listen, admin, upstreams, keys, forwarded, trustedIssuers, enforcement } = config
  log.info(
    {
      version: VERSION,
      node: process.version,
      settingsFile,
      upstreams: upstreams.map(({ prefix, url }) => `${prefix} ${addressOf(url)}`),
      signingKey,
      keysFrom: keys.jwksUrl && addressOf(keys.jwksUrl),
      tls: listen.tls !== undefined,
      adminTls: admin.tls !== undefined,
      enforcement,
      trustedProxies: forwarded.trust,
      trustedIssuers: trustedIssuers.map(({ issuer }) => issuer),
    },
    'started',
  )
  if (listen.tls === undefined && !isLoopback(listen.host))
    log.warn(
      { host: listen.host },
      'clients connect over plain HTTP: anyone between them and this listener reads tokens and secrets',
    )
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'))
}
