/** What commands on credentials and revocations share: where the entries are, in a file or in PostgreSQL, and times. */
import type { Command } from 'commander'
import {
  type CredentialEditor,
  createFileEditor,
  createRevocationFileEditor,
  type RevocationEditor,
} from '../credentials/editors.ts'
import { parseTime } from '../credentials/names.ts'
import { parsePath, UsageFailure } from './command-io.ts'

export interface StoreFlags {
  readonly file?: string
  readonly postgresUrlFile?: string
  readonly json?: boolean
}

interface Editors {
  readonly credentials: CredentialEditor
  readonly revocations: RevocationEditor
}

export const DATABASE = '--postgres-url-file <path>'

export const addStoreFlags = (command: Command, subject: 'credentials' | 'revocations') =>
  command
    .option('--file <path>', `the ${subject} file`, parsePath)
    .option(DATABASE, 'or a file that holds the URL of the PostgreSQL database', parsePath)
    .option('--json', 'print JSON')

/** Modules of the database are loaded only where one is named. */
export async function openEditors({ file, postgresUrlFile }: StoreFlags): Promise<Editors> {
  if (file !== undefined && postgresUrlFile !== undefined) {
    throw new UsageFailure('--file and --postgres-url-file cannot be used together')
  }
  if (postgresUrlFile !== undefined) {
    const { openPostgresEditors } = await import('../credentials/postgres/editors.ts')
    return openPostgresEditors(postgresUrlFile)
  }
  if (file === undefined) throw new UsageFailure('--file or --postgres-url-file is required')
  return { credentials: createFileEditor(file), revocations: createRevocationFileEditor(file) }
}

/** RFC 3339 to epoch milliseconds. @throws UsageFailure that names the flag */
export function parseTimeFlag(flag: string, text: string): number {
  const time = parseTime(text)
  if (time !== undefined) return time
  const rule = 'must be an RFC 3339 time with its zone, in UTC before the year 10000'
  throw new UsageFailure(`${flag} ${rule}: 2027-12-31T23:59:59Z`)
}
