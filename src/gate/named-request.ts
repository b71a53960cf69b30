/**
 * Forward auth of a restricted token: the request to allow, as a trusted proxy names it.
 * In: the proxy's request. Out: method, path and host of the request it asks for, or undefined where they are missing or
 * have several values: a proxy that sets one pair of headers may pass the client's spelling of the other.
 */
import { HeaderKind, headerKind, headerValues } from '../http/headers.ts'
import { originForm, pathOf } from '../http/request-target.ts'
import type { ScopedRequest } from '../token/scopes.ts'
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

export function namedRequest(asking: Admitted): NamedRequest | undefined {
  const { rawHeaders, connectionOptions } = asking
  const valuesOf = (name: string) => headerValues(rawHeaders, name)
  let named: { readonly method: string; readonly target: string } | undefined
  for (const pair of PAIRS) {
    const values = pair.map(valuesOf)
    if (values.every(({ length }) => length === 0)) continue
    const [method = '', target = ''] = values.map(([first]) => first)
    const isOther = named !== undefined && (named.method !== method || named.target !== target)
    if (isOther || values.some(({ length }) => length !== 1)) return undefined
    named = { method, target }
  }
  // Proxies may join repeated lines. Whether a line that `Connection` names reaches the service is up to the proxy.
  const isUnclear = rawHeaders.some(
    (name, at) =>
      at % 2 === 0 &&
      headerKind(name) === HeaderKind.secondPath &&
      (rawHeaders[at + 1]?.includes(',') || connectionOptions?.has(name.toLowerCase())),
  )
  if (named === undefined || isUnclear || !METHOD.test(named.method)) return undefined
  const target = originForm(named.target, undefined)
  if (target === undefined) return undefined
  const hosts = valuesOf('x-forwarded-host')
  const host = hosts.length === 0 ? asking.host : hosts.length === 1 ? hosts[0] : undefined
  return { method: named.method, target, path: pathOf(target), host, rawHeaders, connectionOptions }
}
