/**
 * Reads the body of a login or link: at most 16 KiB, uncompressed, of one media type, in UTF-8.
 * In: a request. Out: the bytes, or a documented error that quotes nothing of the body.
 */
import { ERRORS, type PublicError } from '../base/errors.ts'
import { failed, ok, type Result } from '../base/result.ts'
import type { SidecarRequest } from '../client/request.ts'
import type { SidecarResponse } from '../client/response.ts'
import type { Config } from '../config/config.ts'

export const badArgument = (message: string): PublicError => ({ ...ERRORS.invalidArgument, message })

const MAX_BYTES = 16 * 1024
const TOO_LARGE = badArgument(`The body is larger than ${MAX_BYTES / 1024} KiB.`)

export interface BodyLimits {
  readonly wholeBodySeconds: number
  /** Of the trailers. */
  readonly headerLines: number
}

export const bodyLimitsOf = ({ limits, timeouts }: Pick<Config, 'limits' | 'timeouts'>): BodyLimits => ({
  // It is small, like a head, and any stranger can begin one.
  wholeBodySeconds: Math.min(timeouts.headersSeconds, timeouts.idleSeconds),
  headerLines: limits.headerLines,
})

/** What `Content-Type` must say. */
export interface BodyType {
  readonly mediaType: string
  readonly mayBeMissing: boolean
}

/**
 * Checks the head before `100 Continue`.
 * Never rejects. Stays pending if the connection closes.
 */
export async function readBody(
  res: SidecarResponse,
  limits: BodyLimits,
  type: BodyType,
): Promise<Result<Buffer, PublicError>> {
  const { req } = res
  const error = headError(req, type)
  if (error !== undefined) {
    return failed(error)
  }
  res.continueIfExpected()
  return receiveBody(req, limits)
}

function headError({ headers, headersDistinct }: SidecarRequest, type: BodyType): PublicError | undefined {
  const { 'content-encoding': encodings, 'content-type': types = [] } = headersDistinct
  if (encodings !== undefined) {
    return badArgument('Content-Encoding is not accepted here.')
  }
  const isMissing = types.length === 0 && !type.mayBeMissing
  if (isMissing || types.length > 1 || !types.every((value) => isTypeInUtf8(value, type.mediaType))) {
    return badArgument(`Content-Type must be ${type.mediaType}, in UTF-8.`)
  }
  return Number(headers['content-length'] ?? 0) > MAX_BYTES ? TOO_LARGE : undefined
}

function isTypeInUtf8(contentType: string, mediaType: string): boolean {
  // One pattern with optional white space around optional parts would backtrack without end.
  const [type, ...parameters] = contentType.split(';').map((part) => part.trim().toLowerCase())
  const [charset = 'charset=utf-8', ...others] = parameters.filter((parameter) => parameter !== '')
  const isUtf8 = charset === 'charset=utf-8' || charset === 'charset="utf-8"'
  return type === mediaType && isUtf8 && others.length === 0
}

function receiveBody(
  req: SidecarRequest,
  { wholeBodySeconds, headerLines }: BodyLimits,
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
    const deadline = setTimeout(() => end(failed(ERRORS.requestTimeout)), wholeBodySeconds * 1000 + 1)
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
