/**
 * Loads the credentials file (YAML 1.2, core schema).
 * Out: credentials, or every problem as `file:line:column: path what`. No problem repeats a value: a hash or a misplaced
 * secret must not reach a log.
 */
import { z } from 'zod'
import { readRegularFile } from '../reload/files.ts'
import type { Loaded } from '../reload/loaded.ts'
import { parseBatches } from '../reload/parse-thread.ts'
import { parseFile, type YamlProblem } from '../reload/yaml-text.ts'
import { type Credential, type CredentialIndex, createCredentialIndex, parseTime } from './credential.ts'
import { nameProblem, namesProblem } from './names.ts'
import { parseSecretHash } from './secret-hash.ts'

/** About 100,000 credentials. */
const MAX_BYTES = 16_777_216

/** A readable file; its text may still be invalid. */
export type ReadCredentialsFile =
  | { readonly ok: true; readonly bytes: Buffer; readonly warnings: readonly string[] }
  | { readonly ok: false; readonly missing: boolean; readonly problems: readonly string[] }

/** Reads the file without parsing it. Never rejects. */
export async function readCredentialsFile(file: string): Promise<ReadCredentialsFile> {
  const read = await readRegularFile(file, MAX_BYTES)
  if (!read.ok) return { ok: false, missing: read.missing, problems: [`${file}: ${read.problem}`] }
  const worldReadable = (read.mode & 0o004) !== 0
  const warnings = worldReadable ? [`${file} can be read by every user of this machine`] : []
  return { ok: true, bytes: read.bytes, warnings }
}

/** Reads and parses the file at once, for commands. Problems begin with the path. Never rejects. */
export async function listCredentialsFile(file: string): Promise<Loaded<readonly Credential[]>> {
  const read = await readCredentialsFile(file)
  if (!read.ok) return read
  const parsed = parse(read.bytes)
  return parsed.ok ? { ...parsed, warnings: read.warnings } : invalid(file, parsed.problems)
}

/** Reads, parses and indexes the file without blocking the event loop. Problems begin with the path. Never rejects. */
export async function loadCredentialsFile(file: string): Promise<Loaded<CredentialIndex>> {
  const read = await readCredentialsFile(file)
  if (!read.ok) return read
  const index = createCredentialIndex()
  try {
    for await (const batch of parseBatches(parse, import.meta.url, read.bytes)) {
      if (!batch.ok) return invalid(file, batch.problems)
      for (const credential of batch.value) index.add(credential)
    }
  } catch {
    return { ok: false, problems: [`${file}: cannot be parsed: the worker thread failed`] }
  }
  return { ok: true, value: index, warnings: read.warnings }
}

function invalid(file: string, problems: readonly string[]) {
  return { ok: false, problems: problems.map((problem) => `${file}:${problem}`) } as const
}

/** Parses the bytes of a whole file, synchronously. Problems are lines, `line:column: path what`. */
export function parse(bytes: Uint8Array): Loaded<readonly Credential[]> {
  return parseFile(bytes, fileSchema, repeatedNames)
}

/** What was expected, that it is missing, or that YAML reads an unquoted text as something else. */
function expected(what: string) {
  return ({ input }: { readonly input?: unknown }) => {
    if (input === undefined) return 'is missing'
    const misread = what === 'a string' && (typeof input === 'number' || typeof input === 'boolean')
    return misread ? `must be a string: quote it (YAML reads it as a ${typeof input})` : `must be ${what}`
  }
}

/** A text without a problem. */
const checked = (problemOf: (value: string) => string | undefined) =>
  z.string({ error: expected('a string') }).superRefine((value, context) => {
    const problem = problemOf(value)
    if (problem !== undefined) context.addIssue(problem)
  })

const expiresAt = checked((value) =>
  parseTime(value) === undefined
    ? 'must be an RFC 3339 time with its zone, such as 2027-01-31T08:00:00Z'
    : undefined,
)

const secretHash = checked((value) => {
  const parsed = parseSecretHash(value)
  return parsed.ok ? undefined : parsed.problem
})

const credentialSchema = z.strictObject(
  {
    accessKey: checked(nameProblem),
    secretHash,
    expiresAt: expiresAt.optional(),
    disabled: z.boolean({ error: expected('true or false') }).default(false),
  },
  { error: expected('a map with accessKey and secretHash') },
)

const accountSchema = z
  .strictObject(
    {
      accountId: checked(nameProblem),
      credentials: z.array(credentialSchema, { error: expected('a list') }),
    },
    { error: expected('a map with accountId and credentials') },
  )
  .transform(({ accountId, credentials }, context): Credential[] =>
    credentials.map(({ expiresAt, ...credential }, index) => {
      const message = namesProblem(accountId, credential.accessKey)
      const path = ['credentials', index, 'accessKey']
      if (message !== undefined) context.addIssue({ code: 'custom', path, message })
      return {
        accountId,
        ...credential,
        expiresAt: parseTime(expiresAt ?? '') ?? Number.POSITIVE_INFINITY,
      }
    }),
  )

const EMPTY = 'is empty; without accounts, write `accounts: []`'
const fileSchema = z
  .strictObject(
    { accounts: z.array(accountSchema, { error: expected('a list') }) },
    { error: ({ input }) => (input === null ? EMPTY : 'must be a map with the one member accounts') },
  )
  .transform(({ accounts }) => accounts.flat())

/** Reported beside any other problem, and so looked for in the raw value. */
function repeatedNames(value: unknown): YamlProblem[] {
  const accounts = memberOf(value, 'accounts')
  const problems = repeats(accounts, 'accountId', 'names an account that stands in the list before', [
    'accounts',
  ])
  for (const [at, account] of (Array.isArray(accounts) ? accounts : []).entries()) {
    const path = ['accounts', at, 'credentials']
    const message = 'names an access key that this account has before'
    problems.push(...repeats(memberOf(account, 'credentials'), 'accessKey', message, path))
  }
  return problems
}

/** The maps of a list whose `member` holds a name that stands earlier in the list. */
function repeats(list: unknown, member: string, message: string, path: YamlProblem['path']): YamlProblem[] {
  const seen = new Set<unknown>()
  return (Array.isArray(list) ? list : []).flatMap((item: unknown, index) => {
    const name = memberOf(item, member)
    const isRepeated = typeof name === 'string' && name !== '' && seen.has(name)
    seen.add(name)
    return isRepeated ? [{ path: [...path, index, member], message }] : []
  })
}

function memberOf(value: unknown, name: string): unknown {
  return value instanceof Object && Object.hasOwn(value, name) ? Reflect.get(value, name) : undefined
}
