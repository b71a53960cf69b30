/**
 * A credential store over what a credentials file holds at this moment.
 */
import { loadCredentialsFile } from '../../src/credentials/credentials-file.ts'
import { createCredentialStore } from '../../src/credentials/store.ts'

/** Loads the file and makes a store of it. `now`: epoch milliseconds. */
export async function loadFileStore({ file, now }: { readonly file: string; readonly now: () => number }) {
  const loaded = await loadCredentialsFile(file)
  if (!loaded.ok) return loaded
  const { value: credentials, warnings } = loaded
  return {
    ok: true as const,
    store: createCredentialStore(() => credentials, now),
    warnings,
  }
}
