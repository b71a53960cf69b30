/**
 * `credentials add|list|disable|enable|remove`: who may log in, in a file or in PostgreSQL. A secret is printed once, by
 * the `add` that sets it; a hash never.
 */
import { randomBytes } from 'node:crypto'
import type { Command } from 'commander'
import { type Credential, type CredentialName, isActive, parseTime } from '../credentials/credential.ts'
import { generateSecret, hashSecret } from '../credentials/secret-hash.ts'
import { nameProblem, namesProblem } from '../names.ts'
import {
  type CommandIo,
  createCommand,
  formatTable,
  printer,
  readSecret,
  UsageFailure,
  unwrap,
  warner,
} from './command-io.ts'
import { openEditor, type PlaceOptions } from './credential-places.ts'
import { addPostgresCommands } from './credentials-postgres.ts'

interface StoreOptions extends PlaceOptions {
  readonly json?: true
}

interface NameOptions extends StoreOptions {
  readonly account: string
  readonly accessKey: string
}

interface AddOptions extends StoreOptions {
  readonly account: string
  readonly accessKey?: string
  readonly secretStdin?: true
  readonly expiresAt?: string
}

const EXAMPLES = `
Examples:
  storage-auth-sidecar credentials add --file credentials.yaml --account acme
  printf %s "$SECRET" | storage-auth-sidecar credentials add --file credentials.yaml \\
    --account acme --access-key backup --secret-stdin --expires-at 2027-12-31T23:59:59Z
  storage-auth-sidecar credentials list --file credentials.yaml --json
  storage-auth-sidecar credentials disable --file credentials.yaml --account acme --access-key backup
  storage-auth-sidecar credentials migrate --postgres-url-file postgres.url
  storage-auth-sidecar credentials add --postgres-url-file postgres.url --account acme
`

/** @param now - epoch milliseconds, which decide whether a credential has expired */
export function credentialsCommand(io: CommandIo, { now = Date.now }: { now?: () => number } = {}): Command {
  const print = printer(io)
  const warn = warner(io)
  const description = 'add, list, disable, enable and remove credentials, in a file or in PostgreSQL'
  const group = createCommand('credentials', description, io).addHelpText('after', EXAMPLES)

  const subcommand = (name: string, description: string, example = '') =>
    group
      .command(name)
      .description(description)
      .addHelpText(
        'after',
        `\nExample:\n  storage-auth-sidecar credentials ${name} --file credentials.yaml${example}`,
      )
      .option('--file <path>', 'the credentials file')
      .option('--postgres-url-file <path>', 'or a file that holds the URL of the PostgreSQL database')
      .option('--json', 'print JSON')
  const namedSubcommand = (name: string, description: string) =>
    subcommand(name, description, ' --account acme --access-key AK1')
      .requiredOption('--account <id>', 'the account identifier')
      .requiredOption('--access-key <key>', 'the access key')

  subcommand('add', 'add a credential, and print it with its secret as JSON, once', ' --account acme')
    .requiredOption('--account <id>', 'the account identifier')
    .option('--access-key <key>', 'the access key (default: a new one)')
    .option(
      '--secret-stdin',
      'read the secret from stdin (default: a new one); a final newline is not part of it',
    )
    .option('--expires-at <time>', 'when it ceases to be in force, as RFC 3339 with its zone')
    .action(async (options: AddOptions) => {
      const editor = await openEditor(options)
      const { expiresAt } = options
      const name = checkedName({ accessKey: newAccessKey(), ...options })
      const tooLong = namesProblem(name.accountId, name.accessKey)
      if (tooLong !== undefined) throw new UsageFailure(`--access-key ${tooLong}`)
      if (expiresAt !== undefined && parseTime(expiresAt) === undefined) {
        throw new UsageFailure(
          '--expires-at must be an RFC 3339 time with its zone, in UTC before the year 10000: 2027-12-31T23:59:59Z',
        )
      }
      const secret = options.secretStdin ? await readSecret(io.stdin) : generateSecret()
      const secretHash = await hashSecret(secret, options.secretStdin ? 'scrypt' : 'sha256')
      unwrap(await editor.add({ ...name, secretHash, ...(expiresAt !== undefined && { expiresAt }) }))
      print(JSON.stringify({ ...name, secret }))
    })

  subcommand('list', 'list credentials, without secrets and hashes').action(async (options: StoreOptions) => {
    const { credentials, warnings } = unwrap(await (await openEditor(options)).list())
    warnings.forEach(warn)
    const listed = credentials.map((credential) => listEntry(credential, now()))
    print(options.json ? JSON.stringify(listed) : table(listed))
  })

  namedSubcommand('disable', 'refuse logins with a credential, and end its tokens').action(
    async (options: NameOptions) => {
      const name = checkedName(options)
      unwrap(await (await openEditor(options)).setDisabled(name, true))
      print(options.json ? JSON.stringify({ ...name, disabled: true }) : 'disabled')
    },
  )
  namedSubcommand('enable', 'let a disabled credential log in again').action(async (options: NameOptions) => {
    const name = checkedName(options)
    unwrap(await (await openEditor(options)).setDisabled(name, false))
    print(options.json ? JSON.stringify({ ...name, disabled: false }) : 'enabled')
  })
  namedSubcommand('remove', 'remove a credential, and end its tokens').action(
    async (options: NameOptions) => {
      const name = checkedName(options)
      unwrap(await (await openEditor(options)).remove(name))
      print(options.json ? JSON.stringify({ ...name, removed: true }) : 'removed')
    },
  )
  addPostgresCommands(group, { print, warn })
  return group
}

function checkedName({ account, accessKey }: { account: string; accessKey: string }): CredentialName {
  const accountProblem = nameProblem(account)
  if (accountProblem !== undefined) throw new UsageFailure(`--account ${accountProblem}`)
  const accessKeyProblem = nameProblem(accessKey)
  if (accessKeyProblem !== undefined) throw new UsageFailure(`--access-key ${accessKeyProblem}`)
  return { accountId: account, accessKey }
}

/** Upper-case letters and digits only: it is typed, spoken and pasted into command lines. */
function newAccessKey(): string {
  return `AK${randomBytes(10).toString('hex').toUpperCase()}`
}

function listEntry(credential: Credential, now: number) {
  const { accountId, accessKey, disabled, expiresAt, secretHash } = credential
  return {
    accountId,
    accessKey,
    inForce: isActive(credential, now),
    disabled,
    expiresAt: expiresAt === Number.POSITIVE_INFINITY ? null : new Date(expiresAt).toISOString(),
    secretKind: secretHash.startsWith('$sha256$') ? 'generated' : 'chosen',
  }
}

function table(entries: readonly ReturnType<typeof listEntry>[]): string {
  const rows = entries.map(({ accountId, accessKey, disabled, inForce, secretKind, expiresAt }) => [
    accountId,
    accessKey,
    disabled ? 'disabled' : inForce ? 'active' : 'expired',
    secretKind,
    expiresAt ?? 'never',
  ])
  return formatTable([['ACCOUNT', 'ACCESS KEY', 'STATE', 'SECRET', 'EXPIRES'], ...rows])
}
