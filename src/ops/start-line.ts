/** The lines that say what has started: enough to tell one deployment from another. Nothing in them is secret. */
import type { Config } from '../config/config.ts'
import { isLoopback } from '../config/values.ts'
import { VERSION } from '../version.ts'
import type { Addresses } from './life-cycle.ts'
import type { Logger } from './log.ts'
import { addressOf } from './status.ts'

interface Started {
  /** Undefined without one. */
  readonly settingsFile: string | undefined
  /** The `kid` of the key that signs; undefined in a sidecar that only verifies. */
  readonly signingKey: string | undefined
  readonly where: Addresses
}

/** Warns, too, if clients send tokens and secrets over a network without TLS. */
export function logStart(log: Logger, config: Config, { settingsFile, signingKey, where }: Started): void {
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
  for (const name of ['data', 'admin'] as const) {
    const { address, port } = where[name]
    log.info({ listener: name, address, port }, 'listening')
  }
}

const HOUR_MS = 3_600_000

/** Warns now and every hour. */
export function warnOfReportMode(log: Logger): NodeJS.Timeout {
  const warn = () => log.warn('report mode: requests without a valid token are forwarded')
  warn()
  return setInterval(warn, HOUR_MS).unref()
}
