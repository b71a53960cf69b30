/**
 * A credential store over the accounts of a credentials file.
 *
 * @module
 */

import { createHashQueue } from './hash-queue.ts'
import { type CredentialStoreOptions, createCredentialStore } from './login-check.ts'
import type { CredentialStore } from './store.ts'

/** Makes a store with a hash queue of its own. */
export function createFileStore(options: Omit<CredentialStoreOptions, 'hashQueue'>): CredentialStore {
  return createCredentialStore({ ...options, hashQueue: createHashQueue() })
}
