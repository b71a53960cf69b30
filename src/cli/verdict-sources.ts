/**
 * Loads, once, everything that the verdict on a token depends on: keys, revocations and credentials, from files, from
 * another issuer and from the database.
 */
import type { Config } from '../config/schema.ts'
import { loadCredentialsFile } from '../credentials/credentials-file.ts'
import type { IsRevoked } from '../credentials/revocations.ts'
import { createRevocationsLoader } from '../credentials/revocations-file.ts'
import { type CredentialStore, createCredentialStore } from '../credentials/store.ts'
import { createJwkSetLoader } from '../keys/jwk-set.ts'
import { loadKeyRing } from '../keys/key-directory.ts'
import type { KeyRing } from '../keys/key-ring.ts'
import type { Loaded } from '../reload/loaded.ts'
import { CommandFailure, UsageFailure, unwrap } from './command-io.ts'

export interface VerdictSources {
  readonly ring: KeyRing
  /** Absent in a sidecar that only verifies. */
  readonly standing?: CredentialStore['standing']
  readonly isRevoked: IsRevoked
}

/** What loading works with. */
export interface SourcesOptions {
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Receives problems that keep nothing from working. */
  readonly warn: (warning: string) => void
  /** How long to wait for an unavailable server, in milliseconds; default 5000. */
  readonly waitMs?: number
}

const WAIT_MS = 5000

/**
 * Loads them all.
 *
 * @throws UsageFailure when a file cannot be used, CommandFailure when a server cannot be asked
 */
export async function loadVerdictSources(config: Config, options: SourcesOptions): Promise<VerdictSources> {
  const ring =
    config.keys.directory === undefined ? await fetchKeys(config, options) : await loadKeys(config, options)
  const revocations = take(await createRevocationsLoader(config.revocations)(), options)
  const credentials = await loadCredentials(config, options)
  return {
    ring,
    ...(credentials && { standing: credentials.standing }),
    isRevoked: (token) => revocations.isRevoked(token) || credentials?.isRevoked?.(token) === true,
  }
}

/**
 * Loads the keys of a sidecar that issues tokens.
 *
 * @throws UsageFailure when they cannot be used
 */
export async function loadKeys({ keys }: Config, options: Pick<SourcesOptions, 'warn'>): Promise<KeyRing> {
  if (keys.directory === undefined) {
    throw new UsageFailure('keys.directory is needed: with keys.jwksUrl no tokens are issued')
  }
  return take(await loadKeyRing(keys.directory), options)
}

async function fetchKeys({ keys }: Config, options: SourcesOptions): Promise<KeyRing> {
  const { now, waitMs = WAIT_MS } = options
  const loaded = await createJwkSetLoader(String(keys.jwksUrl), { now, timeoutMs: waitMs })()
  if (!loaded.ok) throw new CommandFailure(`keys.jwksUrl: the JWK Set ${loaded.problems.join('; ')}`)
  return take(loaded, options)
}

/** What a store of credentials knows of tokens; one in PostgreSQL holds revocations, too. */
interface LoadedCredentials {
  readonly standing: CredentialStore['standing']
  readonly isRevoked?: IsRevoked
}

async function loadCredentials(
  { credentials: { file, postgres } }: Config,
  options: SourcesOptions,
): Promise<LoadedCredentials | undefined> {
  const { now, waitMs = WAIT_MS } = options
  if (file !== undefined) {
    const credentials = take(await loadCredentialsFile(file), options)
    return createCredentialStore({ credentials: () => credentials, now })
  }
  if (postgres === undefined) return undefined
  // Loaded when needed: most have no database, and its client takes a while.
  const { openPostgresStore } = await import('../credentials/postgres/store.ts')
  const signal = AbortSignal.timeout(waitMs)
  const quiet = () => {}
  const opened = await openPostgresStore({
    ...postgres,
    now,
    log: { info: quiet, warn: quiet },
    onChange: quiet,
    signal,
  })
  if (!opened.ok && signal.aborted) throw new CommandFailure(opened.problems.join('\n'))
  const { store, revocations, stop, warnings } = unwrap(opened)
  warnings.forEach(options.warn)
  await stop() // what has been read stays usable
  return { standing: store.standing, isRevoked: revocations().isRevoked }
}

/** A loaded value, after its warnings have been reported. */
function take<T>(loaded: Loaded<T>, { warn }: Pick<SourcesOptions, 'warn'>): T {
  const { value, warnings } = unwrap(loaded)
  warnings.forEach(warn)
  return value
}
