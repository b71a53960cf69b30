/**
 * `credentials` and `revocations`: change who may log in, and end tokens early, in a file or in PostgreSQL.
 * Only `credentials add` and `rotate` print a secret, once; no command prints a hash.
 */
import { randomBytes } from 'node:crypto'
import { type Command, Option } from 'commander'
import { printable } from '../base/log.ts'
import { claimsProblem, nameProblem, parseTime, timeProblem } from '../base/values.ts'
import { type Credential, isActive } from '../credentials/credential-list.ts'
import type { CredentialUpdate, RevocationName } from '../credentials/editor.ts'
import { fileEditors, revocationEntry } from '../credentials/editor.ts'
import { generateSecret, hashSecret, scryptPrefixOf } from '../credentials/secret-hash.ts'
import { scopeProblem } from '../token/scopes.ts'
import {
  type CommandIo,
  describe,
  type Flags,
  integerIn,
  parsePath,
  parserWith,
  UsageFailure,
} from './command-io.ts'

type Source = { readonly [Name in 'file' | 'postgresUrlFile']?: string | undefined }
type SourceFlags = Source & Flags<never, never, 'json'>
type AddFlags = SourceFlags & Flags<'account', 'accessKey' | 'expiresAt' | 'scope', 'secretStdin'>
type ChangeFlags = SourceFlags & Flags<'account' | 'accessKey', 'scope', 'unrestricted'>
type DisableFlags = SourceFlags & Flags<'account', 'accessKey'>
type RotateFlags = SourceFlags & Flags<'account' | 'accessKey'> & { readonly overlapSeconds: number }
type RevocationFlags = SourceFlags & Flags<never, 'jti' | 'issuer' | 'account' | 'accessKey' | 'issuedBefore'>

/** `example`: the arguments after the source. */
function addSourceCommand(group: Command, name: string, description: string, example = ''): Command {
  const subject = group.name()
  const call = `storage-auth-sidecar ${subject} ${name} --file ${subject}.yaml`
  const file = new Option('--file <path>', `the ${subject} file`).argParser(parsePath)
  return describe(group.command(name), description, `${call} ${example}`.trimEnd())
    .addOption(file.conflicts('postgresUrlFile'))
    .option('--postgres-url-file <path>', 'or a file with the URL of the PostgreSQL database', parsePath)
    .option('--json', 'print JSON')
}

export async function openEditors({ file, postgresUrlFile }: Source) {
  if (postgresUrlFile !== undefined) {
    const { tableEditors } = await import('../credentials/postgres/tables.ts') // slow to load
    return tableEditors(postgresUrlFile)
  }
  if (file === undefined) {
    throw new UsageFailure('--file or --postgres-url-file is required')
  }
  return fileEditors(file)
}

export const parseName = parserWith(nameProblem)

export function credentialNameOf({ account, accessKey, scope }: Flags<'account' | 'accessKey', 'scope'>) {
  const problem = claimsProblem(account, accessKey, scope)
  if (problem !== undefined) {
    throw new UsageFailure(`--access-key ${problem}`)
  }
  return { accountId: account, accessKey }
}

const SCOPE_HELP =
  'what it may do at most: storage.read:/path, storage.create:/path, storage.modify:/path, separated by a space'

const parseScopeFlag = parserWith(scopeProblem)

export function credentialsCommand(io: CommandIo): Command {
  const group = io.command(
    'credentials',
    'add, list, rotate, disable, enable and remove credentials, in a file or in PostgreSQL',
    'storage-auth-sidecar credentials add --file credentials.yaml --account acme',
    'printf %s "$SECRET" | storage-auth-sidecar credentials add --postgres-url-file postgres.url \\',
    '  --account acme --access-key backup --secret-stdin --expires-at 2027-12-31T23:59:59Z',
  )

  addSourceCommand(group, 'add', 'add a credential, and print it with its secret, once', '--account acme')
    .requiredOption('--account <id>', 'the account identifier', parseName)
    .option('--access-key <key>', 'the access key (default: a new one)', parseName)
    .option('--secret-stdin', 'read the secret from stdin (default: a new one), without a final newline')
    .option('--expires-at <time>', 'when it expires, as RFC 3339 with its zone', parserWith(timeProblem))
    .option('--scope <scope>', SCOPE_HELP, parseScopeFlag)
    .action((flags: AddFlags) => addCredential(flags, io))

  addSourceCommand(group, 'list', 'list credentials, without secrets and hashes').action(
    (flags: SourceFlags) => listCredentials(flags, io),
  )

  const named = (name: string, description: string, example = '') =>
    addSourceCommand(group, name, description, `--account acme --access-key AK1 ${example}`)
      .requiredOption('--account <id>', 'the account identifier', parseName)
      .requiredOption('--access-key <key>', 'the access key', parseName)
  const change = async (flags: ChangeFlags, update: CredentialUpdate | { removed: true }, done: string) => {
    const name = credentialNameOf(flags)
    const { credentials } = await openEditors(flags)
    io.unwrap(await ('removed' in update ? credentials.remove(name) : credentials.update(name, update)))
    io.print(flags.json ? JSON.stringify({ ...name, ...update }) : done)
  }
  addSourceCommand(group, 'disable', 'refuse logins with a credential, and end its tokens', '--account acme')
    .requiredOption('--account <id>', 'the account identifier', parseName)
    .option('--access-key <key>', 'the access key (default: all of the account)', parseName)
    .action(async ({ accessKey, ...flags }: DisableFlags) => {
      if (accessKey !== undefined) {
        return change({ accessKey, ...flags }, { disabled: true }, 'disabled')
      }
      const { credentials } = await openEditors(flags)
      const accessKeys = io.unwrap(await credentials.disableAccount(flags.account))
      const text = `disabled: ${accessKeys.join(', ')}`
      io.print(flags.json ? JSON.stringify({ accountId: flags.account, accessKeys, disabled: true }) : text)
    })
  const changes = [
    ['enable', 'enabled', 'let a disabled credential log in again', { disabled: false }],
    ['remove', 'removed', 'remove a credential, and end its tokens', { removed: true }],
  ] as const
  for (const [name, done, description, update] of changes) {
    named(name, description).action((flags: ChangeFlags) => change(flags, update, done))
  }
  named('rotate', 'make a new secret, and print it once; the former one logs in for a while')
    .option('--overlap-seconds <n>', OVERLAP_HELP, integerIn(0, MAX_OVERLAP_SECONDS), 604_800)
    .action((flags: RotateFlags) => rotateSecret(flags, io))
  named('restrict', 'let a credential and its tokens do less or, again, more', "--scope 'storage.read:/a'")
    .addOption(new Option('--scope <scope>', SCOPE_HELP).argParser(parseScopeFlag).conflicts('unrestricted'))
    .option('--unrestricted', 'instead of --scope: lift the restriction')
    .action(({ unrestricted, ...flags }: ChangeFlags) => {
      const { scope = null } = flags
      if (scope === null && !unrestricted) {
        throw new UsageFailure('--scope or --unrestricted is required')
      }
      return change(flags, { scope }, scope === null ? 'unrestricted' : `restricted to ${scope}`)
    })

  describe(
    group.command('import'),
    'copy the credentials of a file into PostgreSQL, with their hashes; those that are there stay as they are',
    'storage-auth-sidecar credentials import --file credentials.yaml --postgres-url-file postgres.url',
  )
    .requiredOption('--file <path>', 'the credentials file', parsePath)
    .requiredOption('--postgres-url-file <path>', 'a file with the URL of the PostgreSQL database', parsePath)
    .option('--json', 'print JSON')
    .action((flags: Flags<'file' | 'postgresUrlFile', never, 'json'>) => importFile(flags, io))

  describe(
    group.command('migrate'),
    'create the tables in PostgreSQL, or bring them up to date; may be repeated',
    'storage-auth-sidecar credentials migrate --postgres-url-file postgres.url',
  )
    .addHelpText('after', '\nThe grants that roles need then: docs/credentials-and-revocations.md')
    .requiredOption('--postgres-url-file <path>', 'a file with the URL of the PostgreSQL database', parsePath)
    .option('--json', 'print JSON')
    .action(async ({ postgresUrlFile, json }: Flags<'postgresUrlFile', never, 'json'>) => {
      const { migrate } = await import('../credentials/postgres/tables.ts')
      const created = io.unwrap(await migrate(postgresUrlFile))
      const text = created ? 'created the tables' : 'the tables are up to date'
      io.print(json ? JSON.stringify({ created }) : text)
    })
  return group
}

/** A hundred years. */
const MAX_OVERLAP_SECONDS = 3_155_760_000
const OVERLAP_HELP = 'how long the former secret logs in, too (0: no more)'

const MIN_CHOSEN_CHARACTERS = 12

async function addCredential({ expiresAt, secretStdin, ...flags }: AddFlags, io: CommandIo): Promise<void> {
  // Operators type and dictate access keys, so a new one has only upper-case letters and digits.
  const newKey = `AK${randomBytes(10).toString('hex').toUpperCase()}`
  const name = credentialNameOf({ accessKey: newKey, ...flags })
  if (expiresAt !== undefined && Number(parseTime(expiresAt)) <= io.now()) {
    throw new UsageFailure('--expires-at is in the past')
  }
  const { credentials } = await openEditors(flags)
  const secret = secretStdin ? await io.readSecret() : generateSecret()
  if (secretStdin && [...secret].length < MIN_CHOSEN_CHARACTERS) {
    throw new UsageFailure(
      `a secret of fewer than ${MIN_CHOSEN_CHARACTERS} characters can be guessed: choose a longer one, or leave out --secret-stdin`,
    )
  }
  const secretHash = await hashSecret(secret, secretStdin ? 'scrypt' : 'sha256')
  const { scope } = flags
  io.unwrap(await credentials.add({ ...name, secretHash, expiresAt, scope }))
  io.print(JSON.stringify({ ...name, secret, expiresAt, scope }))
}

async function rotateSecret({ overlapSeconds, ...flags }: RotateFlags, io: CommandIo): Promise<void> {
  const name = credentialNameOf(flags)
  const { credentials } = await openEditors(flags)
  const secret = generateSecret()
  const secretHash = await hashSecret(secret, 'sha256')
  const endsAt = new Date(io.now() + overlapSeconds * 1000).toISOString()
  const previousSecretExpiresAt = overlapSeconds === 0 ? undefined : endsAt
  io.unwrap(await credentials.rotate(name, { secretHash, previousSecretExpiresAt }))
  io.print(JSON.stringify({ ...name, secret, previousSecretExpiresAt }))
}

async function importFile(
  flags: Flags<'file' | 'postgresUrlFile', never, 'json'>,
  io: CommandIo,
): Promise<void> {
  const credentials = io.unwrap(await fileEditors(flags.file).credentials.list())
  const { importCredentials } = await import('../credentials/postgres/tables.ts')
  const existing = io.unwrap(await importCredentials(flags.postgresUrlFile, credentials))
  const imported = credentials.length - existing.length
  if (flags.json) {
    io.print(JSON.stringify({ imported, existing }))
    return
  }
  io.print(`imported ${imported} of ${credentials.length}`)
  for (const { accountId, accessKey } of existing) {
    io.print(`was there, and is unchanged: ${printable(accountId)} ${printable(accessKey)}`)
  }
}

async function listCredentials(flags: SourceFlags, io: CommandIo): Promise<void> {
  const { credentials } = await openEditors(flags)
  const listed = io.unwrap(await credentials.list()).map((one) => listEntry(one, io.now()))
  const columns: Record<string, (entry: CredentialEntry) => string> = {
    ACCOUNT: ({ accountId }) => accountId,
    'ACCESS KEY': ({ accessKey }) => accessKey,
    STATE: stateOf,
    SECRET: ({ secretKind }) => secretKind,
    EXPIRES: ({ expiresAt }) => expiresAt ?? 'never',
  }
  if (listed.some(({ previousSecretExpiresAt }) => previousSecretExpiresAt)) {
    columns['PREVIOUS SECRET UNTIL'] = ({ previousSecretExpiresAt = '-' }) => previousSecretExpiresAt
  }
  if (listed.some(({ scope }) => scope)) {
    columns['SCOPE'] = ({ scope = '' }) => scope
  }
  io.printList(flags.json, listed, columns)
}

type RevocationEntry = ReturnType<typeof revocationEntry>
type CredentialEntry = ReturnType<typeof listEntry>

function stateOf({ disabled, active }: { readonly disabled: boolean; readonly active: boolean }): string {
  if (disabled) {
    return 'disabled'
  }
  return active ? 'active' : 'expired'
}

function listEntry(credential: Credential, now: number) {
  const { accountId, accessKey, disabled, expiresAtMs, secretHash, scope } = credential
  const { previousSecretExpiresAtMs: previousMs } = credential
  const optional: { previousSecretExpiresAt?: string; scope?: string } = {}
  if (previousMs != null) {
    optional.previousSecretExpiresAt = new Date(previousMs).toISOString()
  }
  if (scope != null) {
    optional.scope = scope
  }
  return {
    accountId,
    accessKey,
    active: isActive(credential, now),
    disabled,
    expiresAt: expiresAtMs === Number.POSITIVE_INFINITY ? null : new Date(expiresAtMs).toISOString(),
    secretKind: scryptPrefixOf(secretHash) === undefined ? 'generated' : 'chosen',
    ...optional,
  }
}

export function revocationsCommand(io: CommandIo): Command {
  const example =
    'storage-auth-sidecar revocations add --file revocations.yaml --account acme --issued-before now'
  const description = 'end tokens before they expire, in a file or in PostgreSQL'
  const group = io.command('revocations', description, example)
  const named = (name: string, description: string, example: string) =>
    addSourceCommand(group, name, description, example)
      .addOption(new Option('--jti <id>', 'one token by jti').argParser(parseName).conflicts('issuedBefore'))
      .option('--account <id>', 'the tokens of an account', parseName)
      .option('--access-key <key>', 'the tokens of an access key', parseName)

  named('add', 'add a revocation, and print it as JSON', '--account acme --issued-before now')
    .option('--issuer <issuer>', 'with --jti: only the token of this issuer', parseName)
    .option(
      '--issued-before <time>',
      'only tokens issued before this time (RFC 3339), or before now',
      parserWith((text) => (text === 'now' ? undefined : timeProblem(text)?.concat(', or now'))),
    )
    .action(async ({ issuedBefore, issuer, ...flags }: RevocationFlags) => {
      if (issuer !== undefined && flags.jti === undefined) {
        throw new UsageFailure('--issuer needs --jti')
      }
      const issuedBeforeMs = issuedBefore === 'now' ? io.now() : parseTime(issuedBefore ?? '')
      const revocation = { ...revocationNameOf(flags), issuer, issuedBeforeMs }
      const { revocations } = await openEditors(flags)
      io.unwrap(await revocations.add(revocation))
      io.print(JSON.stringify(revocationEntry(revocation)))
    })

  addSourceCommand(group, 'list', 'list the revocations').action(async (flags: SourceFlags) => {
    const { revocations } = await openEditors(flags)
    const listed = io.unwrap(await revocations.list()).map(revocationEntry)
    const columns: Record<string, (entry: RevocationEntry) => string> = {
      BY: ({ issuedBefore: _, ...name }) => String(Object.keys(name)[0]),
      NAME: ({ issuedBefore: _, ...name }) => String(Object.values(name)[0]),
      'ISSUED BEFORE': ({ issuedBefore = 'any time' }) => issuedBefore,
    }
    if (listed.some(({ issuer }) => issuer)) {
      columns['ISSUER'] = ({ issuer = 'any' }) => issuer
    }
    io.printList(flags.json, listed, columns)
  })

  named('remove', 'remove all revocations of a name', '--account acme').action(
    async (flags: RevocationFlags) => {
      const name = revocationNameOf(flags)
      const { revocations } = await openEditors(flags)
      io.unwrap(await revocations.remove(name))
      io.print(flags.json ? JSON.stringify({ ...name, removed: true }) : 'removed')
    },
  )
  return group
}

function revocationNameOf({ jti, account, accessKey }: RevocationFlags): RevocationName {
  const names = Object.entries({ jti, accountId: account, accessKey })
  const given = names.filter(([, value]) => value !== undefined)
  if (given.length !== 1) {
    throw new UsageFailure('give exactly one of --jti, --account and --access-key')
  }
  return Object.fromEntries(given)
}
