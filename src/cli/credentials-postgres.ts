/**
 * `credentials migrate|import`: what there is to do only where credentials are kept in PostgreSQL.
 *
 * @module
 */
import type { Command } from 'commander'
import { listCredentialsFile } from '../credentials/credentials-file.ts'
import { UsageFailure, unwrap } from './command-io.ts'

interface MigrateOptions {
  readonly postgresUrlFile: string
  readonly json?: true
}

interface ImportOptions extends MigrateOptions {
  readonly file: string
  readonly replace?: boolean
}

/** What the commands print to. */
interface Output {
  readonly print: (text: string) => void
  readonly warn: (warning: string) => void
}

const EXAMPLE = `
Example:
  storage-auth-sidecar credentials`

/** What a database administrator grants; nobody else may read or write anything there. */
const GRANTS = `
Grants, once the tables are there (the role names are yours):
  -- A sidecar only reads, and listens for changes, which needs no grant:
  GRANT USAGE ON SCHEMA storage_auth TO sidecar;
  GRANT SELECT ON ALL TABLES IN SCHEMA storage_auth TO sidecar;
  -- Whoever runs \`credentials add\` and the like or writes revocations, on top of that:
  GRANT INSERT, UPDATE, DELETE ON storage_auth.credentials, storage_auth.revocations TO operator;
Revocations are rows of storage_auth.revocations: one of jti, account_id and access_key, and with the latter two an
optional issued_before. Every change of both tables is in force within a second, however it is made.
`

/** Adds the commands to the group. */
export function addPostgresCommands(group: Command, { print, warn }: Output): void {
  const subcommand = (name: string, description: string) =>
    group
      .command(name)
      .description(description)
      .requiredOption('--postgres-url-file <path>', 'a file that holds the URL of the PostgreSQL database')
      .option('--json', 'print JSON')

  subcommand('migrate', 'make the tables in PostgreSQL, or bring them up to date; may be repeated')
    .addHelpText('after', `${EXAMPLE} migrate --postgres-url-file postgres.url\n${GRANTS}`)
    .action(async ({ postgresUrlFile, json }: MigrateOptions) => {
      const { migrate } = await import('../credentials/postgres/editor.ts')
      const { isNew, warnings } = unwrap(await migrate(postgresUrlFile))
      warnings.forEach(warn)
      const state = isNew ? 'are up to date' : 'were up to date'
      print(
        json ? JSON.stringify({ version: 1, applied: isNew ? [1] : [] }) : `the tables ${state} (version 1)`,
      )
    })

  subcommand('import', 'take all credentials of a file into PostgreSQL, or none')
    .requiredOption('--file <path>', 'the credentials file')
    .option('--replace', 'let credentials of the file take the place of those that are there already')
    .addHelpText(
      'after',
      `${EXAMPLE} import --file credentials.yaml --postgres-url-file postgres.url

Credentials that are only in the database stay as they are.`,
    )
    .action(async ({ file, postgresUrlFile, replace = false, json }: ImportOptions) => {
      const read = await listCredentialsFile(file)
      if (!read.ok) throw new UsageFailure(read.problems.join('\n'))
      read.warnings.forEach(warn)
      const { importCredentials } = await import('../credentials/postgres/editor.ts')
      const { imported, replaced } = unwrap(await importCredentials(postgresUrlFile, read.value, { replace }))
      print(
        json ? JSON.stringify({ imported, replaced }) : `imported ${imported}, ${replaced} of them replaced`,
      )
    })
}
