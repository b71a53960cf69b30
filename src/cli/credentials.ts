/**
 * `credentials add|list|disable|enable|remove|restrict|migrate`: credentials in a file or in PostgreSQL. Only `add`
 * prints a secret, once; no command prints a hash. Modules of the database are loaded only where one is named.
 */
import { randomBytes } from 'node:crypto'
import { type Command, Option } from 'commander'
import type { CredentialUpdate } from '../credentials/editors.ts'
import { generateSecret, hashSecret } from '../credentials/secret-hash.ts'
import { type Credential, isActive } from '../credentials/store.ts'
import {
  type CommandIo,
  checkNames,
  createCommand,
  formatList,
  parsePath,
  printer,
  printOnce,
  readSecret,
  UsageFailure,
  unwrap,
  warner,
} from './command-io.ts'
import { addStoreFlags, DATABASE, openEditors, parseTimeFlag, type StoreFlags } from './store-flags.ts'

/** `add` chooses a new access key where none is given. */
interface AddOptions extends StoreFlags {
  readonly account: string
  readonly accessKey?: string
  readonly secretStdin?: boolean
  readonly expiresAt?: string
  readonly scope?: string
}

type NameOptions = StoreFlags & { readonly account: string; readonly accessKey: string }

const SCOPE_HELP =
  'what it may do at most: storage.read:/path, storage.create:/path, storage.modify:/path, separated by a space'

const PROGRAM = 'storage-auth-sidecar credentials'

const EXAMPLES = `
Examples:
  ${PROGRAM} add --file credentials.yaml --account acme
  printf %s "$SECRET" | ${PROGRAM} add --file credentials.yaml \\
    --account acme --access-key backup --secret-stdin --expires-at 2027-12-31T23:59:59Z
  ${PROGRAM} add --postgres-url-file postgres.url --account acme
`

const MIGRATE_HELP = `
Example:
  ${PROGRAM} migrate --postgres-url-file postgres.url

Grants, once the tables exist (the role names are yours):
  -- A sidecar only reads, and with contract.logout adds revocations of tokens:
  GRANT USAGE ON SCHEMA storage_auth TO sidecar;
  GRANT SELECT ON ALL TABLES IN SCHEMA storage_auth TO sidecar;
  GRANT INSERT (jti, expires_at) ON storage_auth.revocations TO sidecar;
  -- The role that runs \`credentials add\` and the like or writes revocations needs on top of that:
  GRANT INSERT, UPDATE, DELETE ON storage_auth.credentials, storage_auth.revocations TO operator;
Every change of both tables is active within a second, however it is made.
`

/** @param now - epoch milliseconds */
export function credentialsCommand(io: CommandIo, { now = Date.now }: { now?: () => number } = {}): Command {
  const print = printer(io)
  const warn = warner(io)
  const description = 'add, list, disable, enable and remove credentials, in a file or in PostgreSQL'
  const group = createCommand('credentials', description, io).addHelpText('after', EXAMPLES)
  const subcommand = (name: string, description: string, example = '') =>
    addStoreFlags(group.command(name).description(description), 'credentials').addHelpText(
      'after',
      `\nExample:\n  ${PROGRAM} ${name} --file credentials.yaml${example}`,
    )

  subcommand('add', 'add a credential, and print it with its secret as JSON, once', ' --account acme')
    .requiredOption('--account <id>', 'the account identifier')
    .option('--access-key <key>', 'the access key (default: a new one)')
    .option('--secret-stdin', 'read the secret from stdin (default: a new one), without a final newline')
    .option('--expires-at <time>', 'when it expires, as RFC 3339 with its zone')
    .option('--scope <scope>', SCOPE_HELP)
    .action(async (options: AddOptions) => {
      const editors = await openEditors(options)
      const { expiresAt, secretStdin, scope } = options
      const name = checkNames({ accessKey: newAccessKey(), ...options })
      if (expiresAt !== undefined) parseTimeFlag('--expires-at', expiresAt)
      const secret = secretStdin ? await readChosenSecret(io) : generateSecret()
      const secretHash = await hashSecret(secret, secretStdin ? 'scrypt' : 'sha256')
      const times = expiresAt === undefined ? {} : { expiresAt }
      unwrap(
        await editors.credentials.add({
          ...name,
          secretHash,
          ...times,
          ...(scope !== undefined && { scope }),
        }),
      )
      await printOnce(io, JSON.stringify({ ...name, secret }))
    })

  subcommand('list', 'list credentials, without secrets and hashes').action(async (options: StoreFlags) => {
    const { value, warnings } = unwrap(await (await openEditors(options)).credentials.list())
    warnings.forEach(warn)
    const listed = value.map((credential) => listEntry(credential, now()))
    const list = formatList(options.json, listed, {
      ACCOUNT: ({ accountId }) => accountId,
      'ACCESS KEY': ({ accessKey }) => accessKey,
      STATE: ({ disabled, active }) => (disabled ? 'disabled' : active ? 'active' : 'expired'),
      SECRET: ({ secretKind }) => secretKind,
      EXPIRES: ({ expiresAt }) => expiresAt ?? 'never',
      ...(listed.some(({ scope }) => scope) && { SCOPE: ({ scope = '' }) => scope }),
    })
    print(list)
  })

  const named = (name: string, description: string, example = '') =>
    subcommand(name, description, ` --account acme --access-key AK1${example}`)
      .requiredOption('--account <id>', 'the account identifier')
      .requiredOption('--access-key <key>', 'the access key')
  const update = async (options: NameOptions, fields: CredentialUpdate, done: string) => {
    const name = checkNames(options)
    unwrap(await (await openEditors(options)).credentials.update(name, fields))
    print(options.json ? JSON.stringify({ ...name, ...fields }) : done)
  }
  named('disable', 'refuse logins with a credential, and end its tokens').action((options: NameOptions) =>
    update(options, { disabled: true }, 'disabled'),
  )
  named('enable', 'let a disabled credential log in again').action((options: NameOptions) =>
    update(options, { disabled: false }, 'enabled'),
  )
  named('remove', 'remove a credential, and end its tokens').action(async (options: NameOptions) => {
    const name = checkNames(options)
    unwrap(await (await openEditors(options)).credentials.remove(name))
    print(options.json ? JSON.stringify({ ...name, removed: true }) : 'removed')
  })
  named(
    'restrict',
    'let a credential and its tokens do less or, again, more',
    " --scope 'storage.read:/photos'",
  )
    .addOption(new Option('--scope <scope>', SCOPE_HELP).conflicts('unrestricted'))
    .option('--unrestricted', 'instead of --scope: lift the restriction')
    .action((options: NameOptions & { readonly scope?: string; readonly unrestricted?: true }) => {
      const { scope = null, unrestricted } = options
      if (scope === null && !unrestricted) throw new UsageFailure('--scope or --unrestricted is required')
      return update(options, { scope }, scope === null ? 'unrestricted' : 'restricted')
    })

  group
    .command('migrate')
    .description('create the tables in PostgreSQL, or bring them up to date; may be repeated')
    .requiredOption(DATABASE, 'a file that holds the URL of the PostgreSQL database', parsePath)
    .option('--json', 'print JSON')
    .addHelpText('after', MIGRATE_HELP)
    .action(async ({ postgresUrlFile, json }: Required<StoreFlags>) => {
      const { migrate } = await import('../credentials/postgres/editors.ts')
      const { created, warnings } = unwrap(await migrate(postgresUrlFile))
      warnings.forEach(warn)
      const text = created === undefined ? 'the tables are up to date' : `created ${created}`
      print(json ? JSON.stringify({ created: created !== undefined }) : text)
    })
  return group
}

const MIN_CHOSEN_CHARACTERS = 12

async function readChosenSecret(io: CommandIo): Promise<string> {
  const secret = await readSecret(io)
  if ([...secret].length >= MIN_CHOSEN_CHARACTERS) return secret
  throw new UsageFailure(
    `a secret of fewer than ${MIN_CHOSEN_CHARACTERS} characters can be guessed: choose a longer one, or leave out --secret-stdin`,
  )
}

/** Upper-case letters and digits only: it is typed, spoken and pasted into command lines. */
function newAccessKey(): string {
  return `AK${randomBytes(10).toString('hex').toUpperCase()}`
}

function listEntry(credential: Credential, now: number) {
  const { accountId, accessKey, disabled, expiresAt, secretHash, scope } = credential
  return {
    accountId,
    accessKey,
    active: isActive(credential, now),
    disabled,
    expiresAt: expiresAt === Number.POSITIVE_INFINITY ? null : new Date(expiresAt).toISOString(),
    secretKind: secretHash.startsWith('$sha256$') ? 'generated' : 'chosen',
    ...(scope != null && { scope }),
  }
}
