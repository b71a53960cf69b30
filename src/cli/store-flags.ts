/** What commands on accounts, credentials and revocations share: names, and the store, a file or PostgreSQL. */
import { type Command, Option } from 'commander'
import { fileRecords } from '../credentials/file-records.ts'
import { claimsProblem, nameProblem } from '../values/names.ts'
import { describe, type Flags, parsePath, parserWith, UsageFailure } from './command-io.ts'

type Store = { readonly [Name in 'file' | 'postgresUrlFile']?: string | undefined }
export type StoreFlags = Store & Flags<never, never, 'json'>

/** `example` has the arguments besides the store. */
export function addStoreCommand(group: Command, name: string, description: string, example = ''): Command {
  const subject = group.name()
  const call = `storage-auth-sidecar ${subject} ${name} --file ${subject}.yaml`
  const file = new Option('--file <path>', `the ${subject} file`).argParser(parsePath)
  return describe(group.command(name), description, `${call} ${example}`.trimEnd())
    .addOption(file.conflicts('postgresUrlFile'))
    .option('--postgres-url-file <path>', 'or a file with the URL of the PostgreSQL database', parsePath)
    .option('--json', 'print JSON')
}

/** The modules of the database load slowly. */
export async function openRecords({ file, postgresUrlFile }: Store) {
  if (postgresUrlFile !== undefined) {
    const { tableRecords } = await import('../credentials/postgres/tables.ts')
    return tableRecords(postgresUrlFile)
  }
  if (file === undefined) throw new UsageFailure('--file or --postgres-url-file is required')
  return fileRecords(file)
}

export const parseName = parserWith(nameProblem)

export function credentialNameOf({ account, accessKey, scope }: Flags<'account' | 'accessKey', 'scope'>) {
  const problem = claimsProblem(account, accessKey, scope)
  if (problem !== undefined) throw new UsageFailure(`--access-key ${problem}`)
  return { accountId: account, accessKey }
}
