/**
 * Parses the bytes of a credentials file (YAML 1.2, core schema).
 * Out: credentials, or every problem as `line:column: path what`. No problem repeats a value: a hash or a misplaced secret
 * must not reach a log. Takes about 1 ms for each KiB, synchronously.
 */
import { isUtf8 } from 'node:buffer'
import { z } from 'zod'
import { type Step, writePath } from '../config/problem.ts'
import { nameProblem, namesProblem } from '../names.ts'
import { parseYaml } from '../yaml/yaml-text.ts'
import { type Credential, parseTime } from './credential.ts'
import { parseSecretHash } from './secret-hash.ts'

export type ParsedCredentials =
  | { readonly ok: true; readonly credentials: readonly Credential[] }
  | { readonly ok: false; readonly problems: readonly string[] }

/** Parses a whole file. */
export function parseCredentials(bytes: Uint8Array): ParsedCredentials {
  if (!isUtf8(bytes)) return refused(['1:1: is not UTF-8 text'])
  const yaml = parseYaml(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString())
  if (!yaml.ok) {
    const lines = yaml.mistakes.map(
      ({ message, position: { line, column } }) => `${line}:${column}: is not valid YAML: ${message}`,
    )
    return refused(lines)
  }
  if (yaml.value === null) return refused(['1:1: is empty; without accounts, write `accounts: []`'])
  const parsed = fileSchema.safeParse(yaml.value)
  const problems = [...(parsed.error?.issues.flatMap(problemsOf) ?? []), ...repeatedNames(yaml.value)]
  if (parsed.success && problems.length === 0) return { ok: true, credentials: parsed.data.accounts.flat() }
  const located = problems.map((problem) => {
    const { path, unknownMember } = problem
    const { line, column } = unknownMember
      ? yaml.position([...path, unknownMember], 'key')
      : yaml.position(path)
    return { line, column, text: sentence(problem) }
  })
  located.sort((a, b) => a.line - b.line || a.column - b.column)
  return refused(located.map(({ line, column, text }) => `${line}:${column}: ${text}`))
}

function refused(problems: readonly string[]): ParsedCredentials {
  return { ok: false, problems }
}

/** What was expected, that it is missing, or that YAML reads an unquoted text as something else. */
function expected(what: string) {
  return ({ input }: { readonly input?: unknown }) => {
    if (input === undefined) return 'is missing'
    const misread = what === 'a string' && (typeof input === 'number' || typeof input === 'boolean')
    return misread ? `must be a string: quote it (YAML reads it as a ${typeof input})` : `must be ${what}`
  }
}

const text = z.string({ error: expected('a string') })

/** A text without a problem. */
const checked = (problemOf: (value: string) => string | undefined) =>
  text.superRefine((value, context) => {
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
  .superRefine(({ accountId, credentials }, context) => {
    for (const [index, { accessKey }] of credentials.entries()) {
      const message = namesProblem(accountId, accessKey)
      const path = ['credentials', index, 'accessKey']
      if (message !== undefined) context.addIssue({ code: 'custom', path, message })
    }
  })
  .transform(({ accountId, credentials }): Credential[] =>
    credentials.map(({ expiresAt, ...credential }) => ({
      accountId,
      ...credential,
      expiresAt: parseTime(expiresAt ?? '') ?? Number.POSITIVE_INFINITY,
    })),
  )

const fileSchema = z.strictObject(
  { accounts: z.array(accountSchema, { error: expected('a list') }) },
  { error: expected('a map with the one member accounts') },
)

/** `unknownMember` names a member that the schema does not have. */
interface Problem {
  readonly path: readonly Step[]
  readonly message: string
  readonly unknownMember?: string
}

function problemsOf(issue: z.core.$ZodIssue): Problem[] {
  const { message } = issue
  const path = issue.path.map((step) => (typeof step === 'number' ? step : String(step)))
  if (issue.code !== 'unrecognized_keys') return [{ path, message }]
  const unknown = 'has a member that is not known here'
  return issue.keys.map((unknownMember) => ({ path, message: unknown, unknownMember }))
}

/** The names in a value of any shape; `''` where there is none. */
const anyName = z.string().catch('')
const anyCredentials = z.array(z.object({ accessKey: anyName }).catch({ accessKey: '' })).catch([])
const anyAccount = z
  .object({ accountId: anyName, credentials: anyCredentials })
  .catch({ accountId: '', credentials: [] })
const anyFile = z.object({ accounts: z.array(anyAccount).catch([]) }).catch({ accounts: [] })

/** Reported beside any other problem, and so looked for in the raw value. */
function repeatedNames(value: unknown): Problem[] {
  const { accounts } = anyFile.parse(value)
  const repeated: Problem[] = repeats(accounts.map(({ accountId }) => accountId)).map((index) => ({
    path: ['accounts', index, 'accountId'],
    message: 'names an account that stands in the list before',
  }))
  for (const [index, { credentials }] of accounts.entries()) {
    for (const at of repeats(credentials.map(({ accessKey }) => accessKey))) {
      const path = ['accounts', index, 'credentials', at, 'accessKey']
      repeated.push({ path, message: 'names an access key that this account has before' })
    }
  }
  return repeated
}

/** The indexes of names that stand earlier in the list. */
function repeats(names: readonly string[]): number[] {
  const seen = new Set<string>()
  return names.flatMap((name, index) => {
    const isRepeated = name !== '' && seen.has(name)
    seen.add(name)
    return isRepeated ? [index] : []
  })
}

function sentence({ path, message, unknownMember = '' }: Problem): string {
  // A member's name is repeated only if it looks like one: a hash may have lost its indent or its key.
  const name = /^[A-Za-z_-]{1,32}$/.test(unknownMember) ? `: ${unknownMember}` : ''
  return `${writePath(path)} ${message}${name}`.trimStart()
}
