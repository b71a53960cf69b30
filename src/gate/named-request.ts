/**
 * Forward auth of a restricted token: the request to allow, as a trusted proxy names it.
 * In: the proxy's request. Out: method, path and host of the request it asks for, or undefined where they are missing or
 * have several values: a proxy that sets one pair of headers may pass the client's spelling of the other.
 */
import { headerValues } from '../http/headers.ts'
import { originForm, pathOf } from '../http/request-target.ts'
import { COPY_SOURCES, type ScopedRequest } from '../token/scopes.ts'
import type { Admitted } from './admission.ts'

export interface NamedRequest extends ScopedRequest {
  readonly target: string
}

const PAIRS = [
  ['x-forwarded-method', 'x-forwarded-uri'],
  ['x-original-method', 'x-original-uri'],
] as const

/** One that Node's parser accepts: services may read others without regard to case, or as a list. */
const METHOD = /^[A-Z][A-Z-]*$/

const SECOND_PATHS = ['destination', ...COPY_SOURCES]

export function namedRequest(asking: Admitted): NamedRequest | undefined {
  const { rawHeaders, connectionOptions } = asking
  const valuesOf = (name: string) => headerValues(rawHeaders, name)
  const named = PAIRS.map(([method, target]) => [valuesOf(method), valuesOf(target)] as const).filter(
    ([methods, targets]) => methods.length + targets.length > 0,
  )
  const [[[method = ''] = [], [target] = []] = []] = named
  const isUnambiguous = named.every(
    ([methods, targets]) =>
      methods.length === 1 && targets.length === 1 && methods[0] === method && targets[0] === target,
  )
  // Proxies may join repeated lines. Whether a line that `Connection` names reaches the service is up to the proxy.
  const isUnclear = SECOND_PATHS.some((name) =>
    valuesOf(name).some((value) => value.includes(',') || connectionOptions?.has(name)),
  )
  const origin = isUnambiguous && !isUnclear ? originForm(target ?? '', undefined) : undefined
  if (origin === undefined || !METHOD.test(method)) return undefined
  const hosts = valuesOf('x-forwarded-host')
  const host = hosts.length === 0 ? asking.host : hosts.length === 1 ? hosts[0] : undefined
  return { method, target: origin, path: pathOf(origin), host, rawHeaders, connectionOptions }
}
