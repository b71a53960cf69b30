/**
 * What one entry of a revocations file may hold, once it is read as YAML.
 *
 * In: any value. Out: a revocation, or every problem with the way to it. No message repeats a value. An entry
 * that could be read in two ways is refused rather than guessed at: it would revoke too much or too little.
 *
 * @module
 */
import { nameProblem } from '../names.ts'
import { parseRfc3339 } from '../rfc3339.ts'
import { isJsonObject } from '../strict-json.ts'
import type { Revocation } from './revocations.ts'

/** One thing that is wrong; `member` is where, absent for the entry as a whole. */
export interface EntryProblem {
  readonly member?: string
  /** Whether the member's name is at fault, not its value. */
  readonly unknown?: true
  readonly message: string
}

/** The outcome of a check. */
export type CheckedEntry =
  | { readonly ok: true; readonly revocation: Revocation }
  | { readonly ok: false; readonly problems: readonly EntryProblem[] }

const SUBJECTS = ['jti', 'accountId', 'accessKey'] as const

const WANTED = 'one of jti, accountId and accessKey'

/** Checks one entry, and finds every problem in it. */
export function checkRevocation(entry: unknown): CheckedEntry {
  if (!isJsonObject(entry)) return { ok: false, problems: [{ message: `must be a map with ${WANTED}` }] }
  const problems: EntryProblem[] = []
  for (const member of Object.keys(entry)) {
    if (member !== 'issuedBefore' && !isSubject(member)) {
      problems.push({ member, unknown: true, message: 'has a member that is not known here' })
    }
  }
  const [subject, ...others] = SUBJECTS.filter((name) => Object.hasOwn(entry, name))
  if (subject === undefined) problems.push({ message: `must have ${WANTED}` })
  for (const member of others) problems.push({ member, message: `must not stand beside ${subject}` })
  for (const member of subject === undefined ? [] : [subject, ...others]) {
    const problem = textProblem(entry[member])
    if (problem !== undefined) problems.push({ member, message: problem })
  }
  const given = entry['issuedBefore']
  // Up: whatever was issued before that moment is revoked, and the rest of a millisecond must not be lost.
  const issuedBefore = typeof given === 'string' ? parseRfc3339(given, 'up') : undefined
  if (Object.hasOwn(entry, 'issuedBefore')) {
    if (subject === 'jti') problems.push({ member: 'issuedBefore', message: 'must not stand beside jti' })
    if (issuedBefore === undefined) {
      const message = 'must be an RFC 3339 time with its zone, such as 2027-01-31T08:00:00Z'
      problems.push({ member: 'issuedBefore', message })
    }
  }
  if (subject === undefined || problems.length > 0) return { ok: false, problems }
  const name = String(entry[subject])
  if (subject === 'jti') return { ok: true, revocation: { jti: name } }
  const bound = issuedBefore === undefined ? {} : { issuedBefore }
  const revocation = subject === 'accountId' ? { accountId: name, ...bound } : { accessKey: name, ...bound }
  return { ok: true, revocation }
}

function isSubject(member: string): member is (typeof SUBJECTS)[number] {
  return (SUBJECTS as readonly string[]).includes(member)
}

function textProblem(value: unknown): string | undefined {
  if (typeof value === 'string') return nameProblem(value)
  const misread = typeof value === 'number' || typeof value === 'boolean'
  return misread ? `must be a string: quote it (YAML reads it as a ${typeof value})` : 'must be a string'
}
