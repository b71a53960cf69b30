/**
 * The settings that name files, as far as they can be relied on.
 *
 * Of settings with mistakes these are what is left to look into, so that somebody who has to mend both the
 * settings and the files is told of both at once.
 *
 * @module
 */
import type { Config } from './schema.ts'

/** Where keys, credentials, revocations and certificates are; left out where the settings do not say, or say it wrong. */
export interface NamedFiles {
  /** Directory of key files. */
  readonly keysDirectory?: string
  readonly credentialsFile?: string
  readonly revocationsFile?: Config['revocations']
  /** Certificates of the data listener. */
  readonly tls?: NonNullable<Config['listen']['tls']>
  readonly upstreams: Config['upstreams']
}

/** @param broken - settings that hold a mistake, a default in their place */
export function namedFiles(
  {
    listen,
    keys,
    credentials,
    revocations,
    upstreams,
  }: Pick<Config, 'listen' | 'keys' | 'credentials' | 'revocations' | 'upstreams'>,
  broken: ReadonlySet<string> = new Set(),
): NamedFiles {
  // A mistake anywhere in the group may have meant another source than the default that is left.
  const isSound = (group: string) => ![...broken].some((setting) => setting.startsWith(`${group}.`))
  return {
    ...(keys.directory !== undefined && isSound('keys') && { keysDirectory: keys.directory }),
    ...(credentials.file !== undefined && isSound('credentials') && { credentialsFile: credentials.file }),
    ...(isSound('revocations') && { revocationsFile: revocations }),
    ...(listen.tls !== undefined && { tls: listen.tls }),
    upstreams,
  }
}
