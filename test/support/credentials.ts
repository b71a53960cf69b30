/** Credentials to log in with. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { stringify } from 'yaml'
import type { NamedSecret } from '../../src/credentials/credential-checks.ts'
import { generateSecret, hashSecret } from '../../src/credentials/secret-hash.ts'
import { temporaryDirectory } from './temporary-directory.ts'

/** One credential to create; omitted fields have defaults. */
export interface CredentialOptions {
  readonly accountId?: string
  readonly accessKey?: string
  readonly secret?: string
  /** default `sha256`; `scrypt` takes some 0.2 s for each login and each created credential. */
  readonly scheme?: 'sha256' | 'scrypt'
  readonly expiresAt?: string
  readonly disabled?: boolean
  readonly scope?: string
}

/**
 * Writes a credentials file, mode 0600, in a temporary directory;
 * returns the logins it accepts in the given order.
 */
export async function makeCredentialsFile(
  t: Pick<Test, 'teardown'>,
  credentials: readonly CredentialOptions[] = [{}],
) {
  const accounts = new Map<string, object[]>()
  const logins: NamedSecret[] = []
  for (const [index, credential] of credentials.entries()) {
    const { accountId = 'acme', accessKey = `AK${index}`, secret = generateSecret() } = credential
    const { scheme = 'sha256', expiresAt, disabled, scope } = credential
    const list = accounts.get(accountId) ?? []
    accounts.set(accountId, list)
    const secretHash = await hashSecret(secret, scheme)
    list.push({ accessKey, secretHash, expiresAt, disabled, scope })
    logins.push({ accountId, accessKey, secret })
  }
  const file = join(await temporaryDirectory(t), 'credentials.yaml')
  const entries = [...accounts].map(([accountId, list]) => ({ accountId, credentials: list }))
  await writeFile(file, stringify({ accounts: entries }, { lineWidth: 0 }), { mode: 0o600 })
  return { file, logins }
}
