/**
 * The request that the caller wants to make. It is the admitted one, but with forward auth (`auth_request` of nginx, Traefik,
 * Envoy) the admitted request is a question about another one, which a proxy has received and names in headers.
 */
import { headerValues } from '../http/headers.ts'
import { originForm, pathOf } from '../http/request-target.ts'
import type { ScopedRequest } from '../token/scopes.ts'
import type { Admitted } from './admission.ts'

export interface OriginalRequest extends ScopedRequest {
  readonly target: string
}

const PAIRS = [
  ['x-forwarded-method', 'x-forwarded-uri'],
  ['x-original-method', 'x-original-uri'],
] as const

/** One that Node's parser accepts: services may read others without regard to case, or as a list. */
const METHOD = /^[A-Z][A-Z-]*$/

/**
 * The request that a proxy names. Undefined unless the proxy is trusted and names one method and one target: a proxy that sets
 * one pair of headers may pass the client's spelling of the other.
 */
export function originalRequest(question: Admitted, isTrusted: boolean): OriginalRequest | undefined {
  if (!isTrusted) return undefined
  const { rawHeaders, kinds, connectionOptions } = question
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
  const isUnclear = kinds.some((kind, line) => {
    const [name = '', value = ''] = rawHeaders.slice(2 * line, 2 * line + 2)
    return kind === 'secondPath' && (value.includes(',') || connectionOptions?.has(name.toLowerCase()))
  })
  if (named === undefined || isUnclear || !METHOD.test(named.method)) return undefined
  const target = originForm(named.target, undefined)
  if (target === undefined) return undefined
  const hosts = valuesOf('x-forwarded-host')
  const host = hosts.length === 0 ? question.host : hosts.length === 1 ? hosts[0] : undefined
  return { method: named.method, target, path: pathOf(target), host, rawHeaders, connectionOptions }
}
