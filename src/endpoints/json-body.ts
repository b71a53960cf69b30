/**
 * Reads the body of a login or link: a JSON object without a BOM.
 * In: a request. Out: the members of the object, or a documented error that quotes nothing of the body.
 */
import type { PublicError } from '../base/errors.ts'
import { isJsonObject, type JsonObject } from '../base/json.ts'
import { failed, ok, type Result } from '../base/result.ts'
import type { SidecarResponse } from '../client/response.ts'
import { type BodyLimits, type BodyType, badArgument, readBody } from './request-body.ts'

const JSON_BODY: BodyType = { mediaType: 'application/json', mayBeMissing: true }
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** Never rejects. Stays pending if the connection closes. */
export async function readJson(
  res: SidecarResponse,
  limits: BodyLimits,
): Promise<Result<JsonObject, PublicError>> {
  const body = await readBody(res, limits, JSON_BODY)
  return body.ok ? parseMembers(body.value) : body
}

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
