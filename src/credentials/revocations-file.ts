/**
 * Loads the revocations file.
 * In: a path. Out: the revocations, or every problem with its line and column. No problem repeats a value of the file.
 */
import { z } from 'zod'
import { readRegularFile } from '../reload/files.ts'
import type { Load, Loaded } from '../reload/loaded.ts'
import { parseRows } from '../reload/parse-thread.ts'
import { parseFile } from '../reload/yaml-text.ts'
import { nameProblem } from './names.ts'
import { createRevocations, type Revocation, type Revocations } from './revocations.ts'

export interface RevocationsFile {
  readonly file: string
  /** False for the default path: the file may be missing until it has been there once. */
  readonly required: boolean
}

/** About half a million revocations. */
const MAX_BYTES = 33_554_432

const EMPTY = 'without entries, write `revocations: []`'
const TIME = 'must be an RFC 3339 time with its zone, such as 2027-01-31T08:00:00Z'
const SUBJECTS = ['jti', 'accountId', 'accessKey'] as const

const name = z.string('must be a string: quote it').superRefine((text, context) => {
  const problem = nameProblem(text)
  if (problem !== undefined) context.addIssue(problem)
})
const revocation = z
  .strictObject(
    {
      jti: name.optional(),
      accountId: name.optional(),
      accessKey: name.optional(),
      issuedBefore: z.iso.datetime({ offset: true, error: TIME }).transform(Date.parse).optional(),
    },
    'must be a map with one of jti, accountId and accessKey',
  )
  .transform((entry, context): Revocation => {
    const { jti, accountId, accessKey, issuedBefore } = entry
    const given = SUBJECTS.filter((subject) => entry[subject] !== undefined)
    if (given.length !== 1) context.addIssue('must have exactly one of jti, accountId and accessKey')
    if (jti === undefined) {
      return accountId === undefined
        ? { accessKey: accessKey ?? '', issuedBefore }
        : { accountId, issuedBefore }
    }
    if (issuedBefore !== undefined) {
      context.addIssue({ code: 'custom', path: ['issuedBefore'], message: 'must not stand beside jti' })
    }
    return { jti }
  })
const schema = z
  .strictObject(
    { revocations: z.array(revocation, `must be a list; ${EMPTY}`) },
    `must be a map with the one member revocations; ${EMPTY}`,
  )
  .transform(({ revocations }) => revocations)

/** Creates a loader. It never rejects. */
export function createRevocationsLoader({ file, required }: RevocationsFile): Load<Revocations> {
  let mayBeMissing = !required
  return async () => {
    const read = await readRegularFile(file, MAX_BYTES)
    if (!read.ok) {
      if (read.missing && mayBeMissing) return { ok: true, value: createRevocations([]), warnings: [] }
      return { ok: false, problems: [`${file}: ${read.problem}`] }
    }
    mayBeMissing = false
    const list: Revocation[] = []
    const source = { path: file, bytes: read.bytes, parse, moduleUrl: import.meta.url }
    const problems = await parseRows(source, (revocation) => list.push(revocation))
    return problems.length === 0
      ? { ok: true, value: createRevocations(list), warnings: [] }
      : { ok: false, problems }
  }
}

/** Parses the bytes of a revocations file. Problems are lines, `line:column: path message`. */
export function parse(bytes: Uint8Array): Loaded<readonly Revocation[]> {
  return parseFile(bytes, schema)
}
