/**
 * What a credentials file may hold, once it is read as YAML.
 *
 * In: any value. Out: accounts, or every problem with its path. No message repeats a value: one of them may be
 * a secret in the wrong place.
 *
 * @module
 */
import { z } from 'zod'
import { nameProblem, namesProblem } from '../names.ts'
import { parseRfc3339 } from '../rfc3339.ts'
import type { Account } from './accounts.ts'
import { parseSecretHash } from './secret-hash.ts'

/** Where a value stands: member names and indexes from the top. */
export type Path = readonly PropertyKey[]

/** One thing that is wrong. `unknownMember` names a member that should not be there, so that it can be found. */
export interface Problem {
  readonly path: Path
  readonly message: string
  readonly unknownMember?: string
}

/** The problem of an account that stands twice. */
export const ACCOUNT_TWICE = 'names an account that stands in the list before'

/** The outcome of a check. */
export type CheckedAccounts =
  | { readonly ok: true; readonly accounts: readonly Account[] }
  | { readonly ok: false; readonly problems: readonly Problem[] }

/** Says what was wanted, that it is missing, or that YAML took a text for something else. */
function wanted(what: string) {
  return ({ input }: { readonly input?: unknown }) => {
    if (input === undefined) return 'is missing'
    const misread = what === 'a string' && (typeof input === 'number' || typeof input === 'boolean')
    return misread ? `must be a string: quote it (YAML reads it as a ${typeof input})` : `must be ${what}`
  }
}

const text = z.string({ error: wanted('a string') })

const name = text.superRefine((value, context) => {
  const message = nameProblem(value)
  if (message !== undefined) context.addIssue(message)
})

const secretHash = text.transform((value, context) => {
  const parsed = parseSecretHash(value)
  if (parsed.ok) return parsed.hash
  context.addIssue(parsed.problem)
  return z.NEVER
})

const expiresAt = text.transform((value, context) => {
  const time = parseRfc3339(value)
  if (time !== undefined) return time
  context.addIssue('must be an RFC 3339 time with its zone, such as 2027-01-31T08:00:00Z')
  return z.NEVER
})

const credential = z
  .strictObject(
    {
      accessKey: name,
      secretHash,
      expiresAt: expiresAt.optional(),
      disabled: z.boolean({ error: wanted('true or false') }).optional(),
    },
    { error: wanted('a map with accessKey and secretHash') },
  )
  .transform(({ expiresAt = Number.POSITIVE_INFINITY, disabled = false, ...rest }) => ({
    ...rest,
    expiresAt,
    disabled,
  }))

const account = z
  .strictObject(
    { accountId: name, credentials: z.array(credential, { error: wanted('a list') }) },
    { error: wanted('a map with accountId and credentials') },
  )
  .superRefine(({ accountId, credentials }, context) => {
    for (const [index, { accessKey }] of credentials.entries()) {
      const message = namesProblem(accountId, accessKey)
      if (message !== undefined) {
        context.addIssue({ code: 'custom', path: ['credentials', index, 'accessKey'], message })
      }
    }
  })

const document = z.strictObject(
  { accounts: z.array(account, { error: wanted('a list') }) },
  { error: wanted('a map with the one member accounts') },
)

/** Checks a value read from YAML, and finds every problem in it. */
export function checkAccounts(value: unknown): CheckedAccounts {
  const parsed = document.safeParse(value)
  const repeated = repeatedNames(value)
  if (parsed.success && repeated.length === 0) return { ok: true, accounts: parsed.data.accounts }
  const malformed = parsed.error?.issues.flatMap(problemsOf) ?? []
  return { ok: false, problems: [...malformed, ...repeated] }
}

function problemsOf(issue: z.core.$ZodIssue): Problem[] {
  if (issue.code !== 'unrecognized_keys') return [{ path: issue.path, message: issue.message }]
  return issue.keys.map((unknownMember) => ({
    path: issue.path,
    message: 'has a member that is not known here',
    unknownMember,
  }))
}

// Repeated names are looked for in the raw value, so that they are reported beside whatever else is wrong.
const anyNames = z.object({ accounts: z.array(z.unknown()).catch([]) }).catch({ accounts: [] })
const anyAccount = z
  .object({ accountId: z.unknown(), credentials: z.array(z.unknown()).catch([]) })
  .catch({ accountId: undefined, credentials: [] })
const anyCredential = z.object({ accessKey: z.unknown() }).catch({ accessKey: undefined })

/** What stands where the names of accounts are to stand, in any value. */
export function namesIn(value: unknown): unknown[] {
  return anyNames.parse(value).accounts.map((item) => anyAccount.parse(item).accountId)
}

function repeatedNames(value: unknown): Problem[] {
  const accounts = anyNames.parse(value).accounts.map((item) => anyAccount.parse(item))
  return [
    ...repeats(accounts.map(({ accountId }) => accountId)).map((index) => ({
      path: ['accounts', index, 'accountId'],
      message: ACCOUNT_TWICE,
    })),
    ...accounts.flatMap(({ credentials }, index) =>
      repeats(credentials.map((item) => anyCredential.parse(item).accessKey)).map((at) => ({
        path: ['accounts', index, 'credentials', at, 'accessKey'],
        message: 'names an access key that this account has before',
      })),
    ),
  ]
}

/** The indexes of strings that stand earlier in the list. */
function repeats(names: readonly unknown[]): number[] {
  const seen = new Set<string>()
  return names.flatMap((name, index) => {
    if (typeof name !== 'string') return []
    const known = seen.has(name)
    seen.add(name)
    return known ? [index] : []
  })
}
