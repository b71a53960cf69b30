/**
 * Loads the revocations file.
 * In: a path. Out: the revocations, or every problem with its line and column. No problem repeats a value of the file.
 */
import { isUtf8 } from 'node:buffer'
import { once } from 'node:events'
import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import { z } from 'zod'
import { writePath } from '../config/problem.ts'
import { nameProblem } from '../names.ts'
import { readRegularFile } from '../reload/files.ts'
import type { Load, Loaded } from '../reload/loaded.ts'
import { parseYaml } from '../yaml/yaml-text.ts'
import { createRevocations, type Revocation, type Revocations } from './revocations.ts'

export interface RevocationsFile {
  readonly file: string
  /** False for the default path: the file may be missing until it has been there once. */
  readonly required: boolean
}

/** About half a million revocations. */
const MAX_BYTES = 33_554_432
/** YAML takes 20 ms for each thousand entries: a larger file is parsed in a worker thread. */
const MAX_BYTES_ON_MAIN_THREAD = 65_536

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
    { error: objectProblem('must be a map with one of jti, accountId and accessKey') },
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
const schema = z.strictObject(
  { revocations: z.array(revocation, `must be a list; ${EMPTY}`) },
  { error: objectProblem(`must be a map with the one member revocations; ${EMPTY}`) },
)

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
    if (!isUtf8(read.bytes)) return { ok: false, problems: [`${file}: is not UTF-8 text`] }
    const text = read.bytes.toString()
    const parsed =
      read.bytes.length > MAX_BYTES_ON_MAIN_THREAD ? await parseInWorker(text) : parseRevocations(text)
    return parsed.ok
      ? { ...parsed, value: createRevocations(parsed.value) }
      : { ok: false, problems: parsed.problems.map((problem) => `${file}:${problem}`) }
  }
}

/** Parses the text of a revocations file. Each problem is one line, `line:column: path message`. */
export function parseRevocations(text: string): Loaded<readonly Revocation[]> {
  const yaml = parseYaml(text)
  if (!yaml.ok) {
    const lines = yaml.mistakes.map(
      ({ message, position: { line, column } }) => `${line}:${column}: is not valid YAML: ${message}`,
    )
    return { ok: false, problems: lines }
  }
  const parsed = schema.safeParse(yaml.value)
  if (parsed.success) return { ok: true, value: parsed.data.revocations, warnings: [] }
  const problems = parsed.error.issues.flatMap((issue) => {
    const path = issue.path.map((step) => (typeof step === 'number' ? step : String(step)))
    const at = (...member: string[]) =>
      yaml.position([...path, ...member], member.length > 0 ? 'key' : undefined)
    const places = issue.code === 'unrecognized_keys' ? issue.keys.map((key) => at(key)) : [at()]
    return places.map(({ line, column }) => ({
      line,
      column,
      text: `${writePath(path)} ${issue.message}`.trim(),
    }))
  })
  problems.sort((a, b) => a.line - b.line || a.column - b.column)
  return { ok: false, problems: problems.map(({ line, column, text }) => `${line}:${column}: ${text}`) }
}

/** The name of an unknown member is not repeated: a token may stand in its place. */
function objectProblem(expected: string): (issue: { readonly code: string }) => string {
  return ({ code }) => (code === 'unrecognized_keys' ? 'has an unknown member' : expected)
}

async function parseInWorker(text: string): Promise<Loaded<readonly Revocation[]>> {
  const script = new URL(`./revocations-worker${extname(import.meta.url)}`, import.meta.url)
  try {
    const [parsed] = await once(new Worker(script, { workerData: text }), 'message')
    return parsed
  } catch {
    return { ok: false, problems: ['1:1: cannot be parsed in the memory that is left'] }
  }
}
