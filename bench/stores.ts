/**
 * Where a measured sidecar has its credentials from: a file, or PostgreSQL. Each has the two logins of a
 * run, and further credentials that nobody uses.
 */
import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { hashSecret } from '../src/credentials/secret-hash.ts'
import { startPostgres } from '../test/support/postgres.ts'
import type { Login } from './trust.ts'

export interface Store {
  readonly name: string
  /** Flags of `serve` that name keys and credentials. */
  readonly flags: readonly string[]
  /** Disables the other credential, or enables it again. */
  readonly setDisabled: (isDisabled: boolean) => Promise<unknown>
  readonly close: () => Promise<void>
}

export interface StoreOptions {
  /** With keys, and the file of the two credentials. */
  readonly directory: string
  readonly login: Login
  /** Whose credential is disabled and enabled. */
  readonly other: Login
  /** How many further credentials there are, two of each account. */
  readonly further: number
}

/** Replaces a file as the commands do, so that no reader sees a part of it. */
export function replaceFile(file: string, text: string): void {
  writeFileSync(`${file}.next`, text, { mode: 0o600 })
  renameSync(`${file}.next`, file)
}

export async function fileStore({ directory, other, further }: StoreOptions): Promise<Store> {
  const hash = await hashSecret('secret', 'sha256')
  const accounts = Array.from({ length: further / 2 }, (_, index) => accountText(index, hash))
  const written = readFileSync(join(directory, 'credentials.yaml'), 'utf8')
  const enabled = written + accounts.join('')
  const otherLine = new RegExp(`( +)- accessKey: ${other.accessKey}\n`)
  const disabled = enabled.replace(otherLine, '$&$1  disabled: true\n')
  if (enabled === disabled) {
    throw new Error('the credential is not in the file')
  }
  const file = join(directory, `credentials-${further}.yaml`)
  replaceFile(file, enabled)
  return {
    name: 'file',
    flags: ['--keys-directory', join(directory, 'keys'), '--credentials-file', file],
    setDisabled: async (isDisabled) => replaceFile(file, isDisabled ? disabled : enabled),
    close: async () => {},
  }
}

/** As `credentials add` writes it. */
function accountText(index: number, hash: string): string {
  const credentials = [0, 1].map(
    (count) => `      - accessKey: ${accessKeyOf(2 * index + count)}\n        secretHash: ${hash}\n`,
  )
  return `  - accountId: account-${index}\n    credentials:\n${credentials.join('')}`
}

/** As long as a generated one. */
const accessKeyOf = (index: number) => `AK${String(index).padStart(20, '0')}`

/** Undefined where no server can be had. */
export async function postgresStore(options: StoreOptions): Promise<Store | undefined> {
  const { directory, login, other, further } = options
  let close = async () => {}
  const server = await startPostgres({
    teardown: (cleanUp: () => Promise<void>) => {
      close = cleanUp
    },
  })
  if (server === undefined) {
    return undefined
  }
  const database = await server.createDatabase('tables')
  const insert = 'INSERT INTO storage_auth.credentials (account_id, access_key, secret_hash)'
  for (const { accountId, accessKey, secret } of [login, other]) {
    const hash = await hashSecret(secret, 'sha256')
    await database.sql(`${insert} VALUES ($1, $2, $3)`, [accountId, accessKey, hash])
  }
  await database.sql(
    `${insert} SELECT 'account-' || i / 2, 'AK' || lpad(i::text, 20, '0'), $1
     FROM generate_series(0, $2::int - 1) i`,
    [await hashSecret('secret', 'sha256'), further],
  )
  return {
    name: 'PostgreSQL',
    flags: ['--keys-directory', join(directory, 'keys'), '--credentials-postgres-url-file', database.urlFile],
    setDisabled: (isDisabled) =>
      database.sql('UPDATE storage_auth.credentials SET disabled = $1 WHERE access_key = $2', [
        isDisabled,
        other.accessKey,
      ]),
    close,
  }
}
