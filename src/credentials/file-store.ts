/**
 * A credential store over a credentials file.
 *
 * The file is read once, here; what follows it while it changes hands its newer accounts to
 * `createCredentialStore` the same way.
 *
 * @module
 */
import { type Accounts, createAccounts } from './accounts.ts'
import { readAccountsFile } from './accounts-file.ts'
import { createCredentialStore } from './credential-store.ts'
import { createHashQueue } from './hash-queue.ts'
import type { CredentialStore } from './store.ts'

/** What a file store needs. */
export interface FileStoreOptions {
  /** Path of the credentials file. */
  readonly file: string
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Told why a login ended `unavailable`. */
  readonly onFault?: (cause: unknown) => void
}

/** The outcome of loading; problems and warnings are lines for a person, free of secrets. */
export type LoadedFileStore =
  | { readonly ok: true; readonly store: CredentialStore; readonly warnings: readonly string[] }
  | { readonly ok: false; readonly problems: readonly string[] }

/** Loads a credentials file and makes a store of it. Never rejects. */
export async function loadFileStore({ file, ...options }: FileStoreOptions): Promise<LoadedFileStore> {
  const read = await readAccountsFile(file)
  if (!read.ok) return { ok: false, problems: read.problems }
  const accounts: Accounts = createAccounts(read.accounts)
  const store = createCredentialStore({ accounts: () => accounts, hashQueue: createHashQueue(), ...options })
  return { ok: true, store, warnings: read.warnings }
}
