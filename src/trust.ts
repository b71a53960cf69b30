/**
 * Loads the files that the settings name: what decides who gets in, and the certificates of upstreams.
 *
 * In: where they are. Out: keys and credentials, or every problem of every file at once.
 *
 * @module
 */
import type { NamedFiles } from './config/named-files.ts'
import type { Problem } from './config/problem.ts'
import { loadFileStore } from './credentials/file-store.ts'
import type { CredentialStore } from './credentials/store.ts'
import { upstreamAddress } from './forward/upstreams.ts'
import { loadKeyRing } from './keys/key-directory.ts'
import type { KeyRing } from './keys/key-ring.ts'

/** What the store of credentials works with. */
export interface TrustOptions {
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Told why a login could not be checked. */
  readonly onFault?: (cause: unknown) => void
}

/** The outcome of loading; `ring` and `store` are absent where no file was named. */
export type LoadedTrust =
  | {
      readonly ok: true
      readonly ring: KeyRing | undefined
      readonly store: CredentialStore | undefined
      /** Lines for a person, free of secrets. */
      readonly warnings: readonly string[]
    }
  | { readonly ok: false; readonly problems: readonly Problem[] }

/** Loads every file. Never rejects. */
export async function loadTrust(files: NamedFiles, options: TrustOptions): Promise<LoadedTrust> {
  const { keysDirectory: directory, credentialsFile: file } = files
  const [keys, credentials] = await Promise.all([
    directory === undefined ? NOTHING : loadKeyRing({ directory }),
    file === undefined ? NOTHING : loadFileStore({ file, ...options }),
  ])
  const problems = [
    ...(keys.ok ? [] : keys.problems.map(problemOf('keys.directory'))),
    ...(credentials.ok ? [] : credentials.problems.map(problemOf('credentials.file'))),
    ...files.upstreams.flatMap(certificateProblems),
  ]
  if (!keys.ok || !credentials.ok || problems.length > 0) return { ok: false, problems }
  const warnings = [...keys.warnings, ...credentials.warnings]
  return { ok: true, ring: keys.ring, store: credentials.store, warnings }
}

/** What is loaded where no file is named. */
const NOTHING = { ok: true, ring: undefined, store: undefined, warnings: [] } as const

/** Makes a problem of a setting whose file is at fault. Its origin is the file itself, which the message names. */
export const problemOf =
  (path: string) =>
  (message: string): Problem => ({ path, message, origin: 'default' })

/** Why an upstream's certificate files cannot be used. */
export function certificateProblems(upstream: NamedFiles['upstreams'][number], index: number): Problem[] {
  try {
    upstreamAddress(upstream)
    return []
  } catch (error) {
    return [problemOf(`upstreams[${index}]`)((error as Error).message)]
  }
}
