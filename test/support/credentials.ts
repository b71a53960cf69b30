/** Credentials to log in with. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { stringify } from 'yaml'
import { generateSecret, hashSecret, type SecretHash } from '../../src/credentials/secret-hash.ts'
import type { Login } from '../../src/credentials/store.ts'
import { temporaryDirectory } from './temporary-directory.ts'

/** One credential to make; what is left out gets a usual value. */
export interface CredentialWanted {
  readonly accountId?: string
  readonly accessKey?: string
  readonly secret?: string
  /** default `sha256`; `scrypt` takes some 0.2 s for each login and each credential made. */
  readonly scheme?: SecretHash['scheme']
  readonly expiresAt?: string
  readonly disabled?: boolean
}

/** A file of credentials, and the logins it accepts, in the order they were wanted. */
export interface CredentialsFile {
  readonly file: string
  readonly logins: readonly Login[]
}

/** Writes a credentials file, mode 0600, in a temporary directory. */
export async function makeCredentialsFile(
  t: Pick<Test, 'teardown'>,
  wanted: readonly CredentialWanted[] = [{}],
): Promise<CredentialsFile> {
  const accounts = new Map<string, object[]>()
  const logins: Login[] = []
  for (const [index, want] of wanted.entries()) {
    const { accountId = 'acme', accessKey = `AK${index}`, secret = generateSecret() } = want
    const { scheme = 'sha256', expiresAt, disabled } = want
    const credentials = accounts.get(accountId) ?? []
    accounts.set(accountId, credentials)
    const secretHash = await hashSecret(secret, scheme)
    credentials.push({ accessKey, secretHash, expiresAt, disabled })
    logins.push({ accountId, accessKey, secret })
  }
  const file = join(await temporaryDirectory(t), 'credentials.yaml')
  const list = [...accounts].map(([accountId, credentials]) => ({ accountId, credentials }))
  await writeFile(file, stringify({ accounts: list }, { lineWidth: 0 }), { mode: 0o600 })
  return { file, logins }
}
