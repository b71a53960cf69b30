/** Loads the credentials file (YAML 1.2, core schema). Problems repeat no value: it may be a secret. */
import { z } from 'zod'
import { type Parse, readRows } from '../files/parse-thread.ts'
import { parseFile } from '../files/yaml-text.ts'
import { scopeProblem } from '../token/scopes.ts'
import { claimsProblem } from '../values/names.ts'
import { type Loaded, loaded, notLoaded } from '../values/result.ts'
import { boolean, checkedText, must, nameSchema, timeSchema } from '../values/schemas.ts'
import { secretHashProblem } from './secret-hash.ts'
import { type Credential, CredentialIndex } from './store.ts'

export async function loadCredentialsFile(path: string): Promise<Loaded<CredentialIndex>> {
  const index = new CredentialIndex()
  const read = await readRows(path, parse, import.meta.url, (row) => index.add(row))
  if (read.ok) return loaded(index, read.warnings)
  if (!read.isMissing) return read
  const hint = `storage-auth-sidecar credentials add --file ${path} --account ACCOUNT creates it`
  return notLoaded(read.problems.map((problem) => `${problem}; ${hint}`))
}

export const parse: Parse<Credential> = (bytes) => parseFile(bytes, fileSchema)

/** A list of maps with distinct values of `member`. A repetition is reported together with all other problems. */
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
    accessKey: nameSchema,
    secretHash: checkedText(secretHashProblem),
    expiresAt: timeSchema.default(Number.POSITIVE_INFINITY),
    disabled: boolean.default(false),
    scope: checkedText(scopeProblem).optional(),
  },
  must('must be a map with accessKey and secretHash'),
)

const accountSchema = z
  .strictObject(
    {
      accountId: nameSchema,
      credentials: listOf(credentialSchema, 'accessKey', 'repeats an access key of this account'),
    },
    must('must be a map with accountId and credentials'),
  )
  .superRefine(({ accountId, credentials }, context) => {
    for (const [index, { accessKey, scope }] of credentials.entries()) {
      const message = claimsProblem(accountId, accessKey, scope)
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
      credentials.map(({ expiresAt, ...rest }) => ({ accountId, ...rest, expiresAtMs: expiresAt })),
    ),
  )
