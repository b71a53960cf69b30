/**
 * Reads the body of a login: UTF-8 JSON without a BOM.
 * In: a POST to the token endpoint. Out: the login, or a refusal that names the invalid field, never its value.
 */
import { nameProblem, secretProblem } from '../credentials/names.ts'
import type { Login } from '../credentials/store.ts'
import { ERRORS, type PublicError } from '../errors.ts'
import type { SidecarRequest, SidecarResponse } from './context.ts'

const MAX_BYTES = 16 * 1024

type Refusal = { readonly ok: false; readonly error: PublicError }
type Reading = { readonly ok: true; readonly login: Login; readonly scope: string | undefined } | Refusal

export const invalid = (message: string): Refusal => ({
  ok: false,
  error: { ...ERRORS.invalidArgument, message },
})
const TOO_LARGE = invalid(`The body is larger than ${MAX_BYTES / 1024} KiB.`)

/** Refuses a login by its head, before `100 Continue`. */
export function refuseLoginHead({ rawHeaders, context }: SidecarRequest): Refusal | undefined {
  const types: string[] = []
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = (rawHeaders[at] as string).toLowerCase()
    if (name === 'content-encoding') return invalid('Content-Encoding is not accepted here.')
    if (name === 'content-type') types.push(rawHeaders[at + 1] as string)
  }
  if (types.length > 1 || !types.every(isJsonInUtf8))
    return invalid('Content-Type must be application/json, in UTF-8.')
  return (context.admitted?.contentLength ?? 0) > MAX_BYTES ? TOO_LARGE : undefined
}

function isJsonInUtf8(contentType: string): boolean {
  // Split, not matched by one pattern: optional white space around optional parts backtracks without end.
  const [type, ...parameters] = contentType
    .toLowerCase()
    .split(';')
    .map((part) => part.trim())
    .filter((part, at) => at === 0 || part !== '')
  return (
    type === 'application/json' &&
    parameters.length <= 1 &&
    parameters.every((parameter) => parameter === 'charset=utf-8' || parameter === 'charset="utf-8"')
  )
}

/** Never rejects; stays pending when the client closes. */
export async function readLogin(req: SidecarRequest, res: SidecarResponse): Promise<Reading> {
  res.continueIfExpected()
  const body = await readBody(req)
  req.context.release()
  return 'ok' in body ? body : parseLogin(body)
}

function readBody(req: SidecarRequest): Promise<Buffer | Refusal> {
  const { context } = req
  return new Promise((resolve) => {
    const chunks: Buffer[] = []
    const stop = (refusal: Refusal) => {
      req.removeListener('data', onData)
      resolve(refusal)
    }
    const onData = (chunk: Buffer) => {
      context.countIn(chunk.length)
      chunks.push(chunk)
      if (context.bytesIn > MAX_BYTES) stop(TOO_LARGE)
    }
    context.handOver({
      onIdle: () => stop({ ok: false, error: ERRORS.requestTimeout }),
      onMalformedBody: () => stop({ ok: false, error: ERRORS.malformedRequest }),
    })
    req.on('data', onData)
    req.once('end', () => resolve(Buffer.concat(chunks)))
  })
}

const FIELDS = [
  ['accountId', nameProblem],
  ['accessKey', nameProblem],
  ['secret', secretProblem],
] as const

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** Throws for values without an exact form (a number beyond a double, a lone surrogate), also in ignored fields. */
function refuseInexact(_key: string, value: unknown): unknown {
  const isExact =
    typeof value === 'string' ? value.isWellFormed() : typeof value !== 'number' || Number.isFinite(value)
  if (!isExact) throw new RangeError('a value that cannot be represented')
  return value
}

/** Ignores unknown fields; names every invalid one. */
function parseLogin(body: Buffer): Reading {
  let value: unknown
  try {
    value = JSON.parse(utf8.decode(body), refuseInexact)
  } catch {
    return invalid('The body must be JSON, in UTF-8.')
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return invalid('The body must be a JSON object.')
  const sent = new Map<string, unknown>(Object.entries(value))
  const fields: Record<string, string> = {}
  const problems: string[] = []
  for (const [field, problemOf] of FIELDS) {
    const text = sent.get(field)
    const problem =
      text === undefined ? 'is missing' : typeof text === 'string' ? problemOf(text) : 'must be a string'
    if (problem !== undefined) problems.push(`${field} ${problem}.`)
    else fields[field] = String(text)
  }
  // Its text is checked once the secret has been: what a login asks for must not change how it fails.
  const scope = sent.get('scope')
  if (scope !== undefined && typeof scope !== 'string') problems.push('scope must be a string.')
  const { accountId, accessKey, secret } = fields
  return problems.length > 0 || accountId === undefined || accessKey === undefined || secret === undefined
    ? invalid(problems.join(' '))
    : { ok: true, login: { accountId, accessKey, secret }, scope: scope?.toString() }
}
