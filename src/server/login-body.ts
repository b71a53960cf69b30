/**
 * Reads the body of a login.
 * In: a POST to the token endpoint. Out: the login, or a refusal that names the invalid field, never its value.
 */
import { nameProblem, secretProblem } from '../credentials/names.ts'
import type { Login } from '../credentials/store.ts'
import type { SidecarRequest, SidecarResponse } from './context.ts'
import { invalid, type Refusal, readJson } from './json-body.ts'

type Reading = { readonly ok: true; readonly login: Login; readonly scope: string | undefined } | Refusal

const FIELDS = [
  ['accountId', nameProblem],
  ['accessKey', nameProblem],
  ['secret', secretProblem],
] as const

/** As {@link readJson}. Ignores unknown fields; names every invalid one. */
export async function readLogin(req: SidecarRequest, res: SidecarResponse): Promise<Reading> {
  const read = await readJson(req, res)
  if (!read.ok) return read
  const { members } = read
  const fields: Record<string, string> = {}
  const problems: string[] = []
  for (const [field, problemOf] of FIELDS) {
    const text = members.get(field)
    const problem =
      text === undefined ? 'is missing' : typeof text === 'string' ? problemOf(text) : 'must be a string'
    if (problem !== undefined) problems.push(`${field} ${problem}.`)
    else fields[field] = String(text)
  }
  // Its text is checked once the secret has been: what a login asks for must not change how it fails.
  const scope = members.get('scope')
  if (scope !== undefined && typeof scope !== 'string') problems.push('scope must be a string.')
  const { accountId, accessKey, secret } = fields
  return problems.length > 0 || accountId === undefined || accessKey === undefined || secret === undefined
    ? invalid(problems.join(' '))
    : { ok: true, login: { accountId, accessKey, secret }, scope: scope?.toString() }
}
