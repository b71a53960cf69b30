/**
 * A credential store over what a credentials file holds at this moment.
 *
 * @module
 */
import { createCredentialStore } from '../../src/credentials/store.ts'
import { accountsIn } from '../../src/reload/sources.ts'

/** Loads the file and makes a store of it. `now`: epoch milliseconds. */
export async function loadFileStore({ file, now }: { readonly file: string; readonly now: () => number }) {
  const loaded = await accountsIn(file).load()
  if (!loaded.ok) return loaded
  const { value: credentials, warnings } = loaded
  return {
    ok: true as const,
    store: createCredentialStore({ credentials: () => credentials, now }),
    warnings,
  }
}
