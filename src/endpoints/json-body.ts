/**
 * Reads the body of a login or link: a JSON object of at most 16 KiB, in UTF-8 without a BOM.
 * In: a request. Out: the members of the object, or a documented error that quotes nothing of the body.
 */
import { ERRORS, type PublicError } from '../base/errors.ts'
import { isJsonObject, type JsonObject } from '../base/json.ts'
import { failed, ok, type Result } from '../base/result.ts'
import type { SidecarRequest } from '../client/request.ts'
import type { SidecarResponse } from '../client/response.ts'

export const badArgument = (message: string): PublicError => ({ ...ERRORS.invalidArgument, message })

const MAX_BYTES = 16 * 1024
const TOO_LARGE = badArgument(`The body is larger than ${MAX_BYTES / 1024} KiB.`)

export interface BodyLimits {
  /** For the whole body. */
  readonly idleSeconds: number
  /** Of the trailers. */
  readonly headerLines: number
}

/**
 * Checks the head before `100 Continue`.
 * Never rejects. Stays pending if the connection closes.
 */
export async function readJson(
  res: SidecarResponse,
  limits: BodyLimits,
): Promise<Result<JsonObject, PublicError>> {
  const { req } = res
  const error = headError(req)
  if (error !== undefined) {
    return failed(error)
  }
  res.continueIfExpected()
  const body = await readBody(req, limits)
  return body.ok ? parseMembers(body.value) : body
}

function headError({ headers, headersDistinct }: SidecarRequest): PublicError | undefined {
  const { 'content-encoding': encodings, 'content-type': types = [] } = headersDistinct
  if (encodings !== undefined) {
    return badArgument('Content-Encoding is not accepted here.')
  }
  if (types.length > 1 || !types.every(isJsonInUtf8)) {
    return badArgument('Content-Type must be application/json, in UTF-8.')
  }
  return Number(headers['content-length'] ?? 0) > MAX_BYTES ? TOO_LARGE : undefined
}

function isJsonInUtf8(contentType: string): boolean {
  // One pattern with optional white space around optional parts would backtrack without end.
  const [type, ...parameters] = contentType.split(';').map((part) => part.trim().toLowerCase())
  const [charset = 'charset=utf-8', ...others] = parameters.filter((parameter) => parameter !== '')
  const isUtf8 = charset === 'charset=utf-8' || charset === 'charset="utf-8"'
  return type === 'application/json' && isUtf8 && others.length === 0
}

function readBody(
  req: SidecarRequest,
  { idleSeconds, headerLines }: BodyLimits,
): Promise<Result<Buffer, PublicError>> {
  const { context } = req
  return new Promise((resolve) => {
    // A list of chunks takes much more.
    const body = Buffer.allocUnsafe(Number(req.headers['content-length'] ?? MAX_BYTES))
    let length = 0
    const end = (result: Result<Buffer, PublicError>) => {
      clearTimeout(deadline)
      req.removeListener('data', onData)
      resolve(result)
    }
    const onData = (chunk: Buffer) => {
      chunk.copy(body, length)
      length += chunk.length
      context.count('in', chunk.length)
      if (length > MAX_BYTES) {
        end(failed(TOO_LARGE))
      }
    }
    // The deadline limits the whole body: a client that sends a byte a minute must not hold a connection.
    // The additional millisecond keeps it off the socket's timeout: of three timers of one duration,
    // Node 26 may fire one too early.
    const deadline = setTimeout(() => end(failed(ERRORS.requestTimeout)), idleSeconds * 1000 + 1)
    context.changeOwner({
      onMalformedBody: () => end(failed(ERRORS.malformedRequest)),
      onClosed: () => clearTimeout(deadline),
    })
    req.on('data', onData)
    req.once('end', () => {
      const hasTooManyTrailers = req.rawTrailers.length > 2 * headerLines
      end(hasTooManyTrailers ? failed(ERRORS.headersTooLarge) : ok(body.subarray(0, length)))
    })
  })
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** Throws for a value that has no exact form, in any field: a number beyond a double, or a lone surrogate. */
function refuseInexact(_key: string, value: unknown): unknown {
  const isIllFormed = typeof value === 'string' && !value.isWellFormed()
  const isTooLarge = typeof value === 'number' && !Number.isFinite(value)
  if (isIllFormed || isTooLarge) {
    throw new RangeError('a value that cannot be represented')
  }
  return value
}

function parseMembers(body: Buffer): Result<JsonObject, PublicError> {
  let value: unknown
  try {
    value = JSON.parse(utf8.decode(body), refuseInexact)
  } catch {
    return failed(badArgument('The body must be JSON, in UTF-8.'))
  }
  return isJsonObject(value) ? ok(value) : failed(badArgument('The body must be a JSON object.'))
}
