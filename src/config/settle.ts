/**
 * Fills in what depends on other settings, leaves out what does not apply, and freezes the result.
 *
 * @module
 */
import { type Config, type CredentialSource, REVOCATIONS_FILE, type Settings } from './schema.ts'

/** The documented lifetime of a token; longer ones are accepted only when we issue longer ones. */
const DOCUMENTED_LIFETIME_SECONDS = 86400

/** Turns valid settings into the configuration in force. */
export function settle(settings: Settings): Config {
  const { token, keys, revocations } = settings
  const maxLifetimeSeconds =
    token.maxLifetimeSeconds ?? Math.max(DOCUMENTED_LIFETIME_SECONDS, token.lifetimeSeconds)
  return freeze({
    ...settings,
    token: { ...token, maxLifetimeSeconds },
    keys: keys.jwksUrl === undefined ? { directory: keys.directory } : { jwksUrl: keys.jwksUrl },
    credentials: credentials(settings),
    revocations: { ...revocations, required: revocations.file !== REVOCATIONS_FILE },
  })
}

function credentials({ keys, credentials: { file, postgres } }: Settings): CredentialSource {
  if (keys.jwksUrl !== undefined) return {}
  return postgres === undefined ? { file } : { postgres }
}

function freeze<T>(value: T): T {
  if (value instanceof Object) for (const inner of Object.values(value)) freeze(inner)
  return Object.freeze(value)
}
