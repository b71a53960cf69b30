/**
 * Loads, once, everything that the verdict on a token rests on: keys, revocations, credentials.
 *
 * In: settings. Out: what a sidecar with these settings would ask at this moment, from files, from the other issuer
 * and from the database.
 *
 * @module
 */
import type { Config } from '../config/schema.ts'
import { createFileStore } from '../credentials/file-store.ts'
import type { CredentialStore } from '../credentials/store.ts'
import { createJwkSetLoader } from '../keys/jwk-set.ts'
import type { KeyRing } from '../keys/key-ring.ts'
import { accountsIn, keysIn, revocationsIn } from '../reload/sources.ts'
import type { IsRevoked } from '../token/revocations.ts'
import { CommandFailure, UsageFailure } from './command-io.ts'

/** What decides about tokens, at one moment. */
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
  /** Told what works but should be mended. */
  readonly warn: (warning: string) => void
  /** For how many milliseconds a server that is away is waited for; default 5000. */
  readonly patienceMs?: number
}

const PATIENCE_MS = 5000

/**
 * Loads them all.
 *
 * @throws UsageFailure when a file cannot be used, CommandFailure when a server cannot be asked
 */
export async function loadVerdictSources(config: Config, options: SourcesOptions): Promise<VerdictSources> {
  const ring =
    config.keys.directory === undefined ? await fetchKeys(config, options) : await loadKeys(config, options)
  const revocations = take(await revocationsIn(config.revocations).load(), options)
  const credentials = await loadCredentials(config, options)
  return {
    ring,
    ...(credentials && { standing: credentials.standing }),
    isRevoked: (token) => revocations.value.isRevoked(token) || credentials?.isRevoked?.(token) === true,
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
  return take(await keysIn(keys.directory).load(), options).value
}

async function fetchKeys({ keys }: Config, options: SourcesOptions): Promise<KeyRing> {
  const { now, patienceMs = PATIENCE_MS } = options
  const loaded = await createJwkSetLoader(String(keys.jwksUrl), { now, timeoutMs: patienceMs })()
  if (!loaded.ok) throw new CommandFailure(`keys.jwksUrl: the JWK Set ${loaded.problems.join('; ')}`)
  return take(loaded, options).value
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
  const { now, patienceMs = PATIENCE_MS } = options
  if (file !== undefined) {
    const { value: accounts } = take(await accountsIn(file).load(), options)
    return createFileStore({ accounts: () => accounts, now })
  }
  if (postgres === undefined) return undefined
  // Loaded when needed: most have no database, and its client takes a while.
  const { openPostgresStore } = await import('../credentials/postgres/store.ts')
  const signal = AbortSignal.timeout(patienceMs)
  const quiet = () => {}
  const opened = await openPostgresStore({
    ...postgres,
    poolSize: 1,
    now,
    log: { info: quiet, warn: quiet },
    onChange: quiet,
    signal,
  })
  if (!opened.ok && signal.aborted) throw new CommandFailure(opened.problems.join('\n'))
  const { store, revocations, stop } = take(opened, options)
  await stop() // what has been read stays in force
  return { standing: store.standing, isRevoked: revocations().isRevoked }
}

/** What was loaded, with its warnings told. */
function take<T extends { readonly ok: true; readonly warnings: readonly string[] }>(
  loaded: T | { readonly ok: false; readonly problems: readonly string[] },
  { warn }: Pick<SourcesOptions, 'warn'>,
): T {
  if (!loaded.ok) throw new UsageFailure(loaded.problems.join('\n'))
  loaded.warnings.forEach(warn)
  return loaded
}
