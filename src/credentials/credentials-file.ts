/**
 * Loads the credentials file (YAML 1.2, core schema).
 * Out: credentials, or every problem as `file:line:column: path message`. No problem repeats a value, which may be a hash
 * or a misplaced secret.
 */
import { z } from 'zod'
import { boolean, must } from '../config/values.ts'
import { readRegularFile } from '../reload/files.ts'
import type { Loaded } from '../reload/loaded.ts'
import { parseRows } from '../reload/parse-thread.ts'
import { parseFile } from '../reload/yaml-text.ts'
import { type Credential, type CredentialIndex, createCredentialIndex } from './credential.ts'
import { nameProblem, namesProblem } from './names.ts'
import { parseSecretHash } from './secret-hash.ts'
import { text, time } from './yaml-fields.ts'

/** About 100,000 credentials. */
const MAX_BYTES = 16_777_216

export type ReadCredentialsFile =
  | { readonly ok: true; readonly bytes: Buffer; readonly warnings: readonly string[] }
  | { readonly ok: false; readonly missing: boolean; readonly problems: readonly string[] }

/** Reads the file without parsing it. Never rejects. */
export async function readCredentialsFile(file: string): Promise<ReadCredentialsFile> {
  const read = await readRegularFile(file, MAX_BYTES)
  if (!read.ok) return { ok: false, missing: read.missing, problems: [`${file}: ${read.problem}`] }
  return { ok: true, bytes: read.bytes, warnings: read.exposure }
}

/** Reads and parses the file synchronously, for commands. Problems begin with the path. Never rejects. */
export async function listCredentialsFile(file: string): Promise<Loaded<readonly Credential[]>> {
  const read = await readCredentialsFile(file)
  if (!read.ok) return read
  const parsed = parse(read.bytes)
  if (!parsed.ok) return { ok: false, problems: parsed.problems.map((problem) => `${file}:${problem}`) }
  return { ...parsed, warnings: read.warnings }
}

/** Reads, parses and indexes the file without blocking the event loop. Problems begin with the path. Never rejects. */
export async function loadCredentialsFile(file: string): Promise<Loaded<CredentialIndex>> {
  const read = await readCredentialsFile(file)
  if (!read.ok) return read
  const index = createCredentialIndex()
  const source = { path: file, bytes: read.bytes, parse, moduleUrl: import.meta.url }
  const problems = await parseRows(source, index.add)
  return problems.length === 0 ? { ok: true, value: index, warnings: read.warnings } : { ok: false, problems }
}

/** Parses the bytes of a file. Problems are lines, `line:column: path message`. */
export function parse(bytes: Uint8Array): Loaded<readonly Credential[]> {
  return parseFile(bytes, fileSchema)
}

const secretHash = text((value) => {
  const parsed = parseSecretHash(value)
  return typeof parsed === 'string' ? parsed : undefined
})

/** A list of maps. A repeated value of `member` is reported together with all other problems. */
const listOf = <T extends z.ZodType>(item: T, member: string, repeated: string) =>
  z.array(item, must('must be a list')).superRefine(
    (list, context) => {
      const seen = new Set<unknown>()
      for (const [index, map] of list.entries()) {
        const name: unknown = map instanceof Object ? Reflect.get(map, member) : undefined
        if (typeof name !== 'string' || name === '') continue
        if (seen.has(name)) context.addIssue({ code: 'custom', path: [index, member], message: repeated })
        seen.add(name)
      }
    },
    { when: ({ value }) => Array.isArray(value) },
  )

const credentialSchema = z.strictObject(
  {
    accessKey: text(nameProblem),
    secretHash,
    expiresAt: time.default(Number.POSITIVE_INFINITY),
    disabled: boolean.default(false),
  },
  must('must be a map with accessKey and secretHash'),
)

const accountSchema = z
  .strictObject(
    {
      accountId: text(nameProblem),
      credentials: listOf(credentialSchema, 'accessKey', 'repeats an access key of this account'),
    },
    must('must be a map with accountId and credentials'),
  )
  .superRefine(({ accountId, credentials }, context) => {
    for (const [index, { accessKey }] of credentials.entries()) {
      const message = namesProblem(accountId, accessKey)
      const path = ['credentials', index, 'accessKey']
      if (message !== undefined) context.addIssue({ code: 'custom', path, message })
    }
  })

const EMPTY = 'is empty; without accounts, write `accounts: []`'
const fileSchema = z
  .strictObject(
    { accounts: listOf(accountSchema, 'accountId', 'repeats an account') },
    { error: ({ input }) => (input === null ? EMPTY : 'must be a map with the one member accounts') },
  )
  .transform(({ accounts }) =>
    accounts.flatMap(({ accountId, credentials }) =>
      credentials.map((credential) => ({ accountId, ...credential })),
    ),
  )
