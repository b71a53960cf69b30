/** Request heads as Node's parser hands them to admission. */
import { type AdmittedRequest, admit } from '../../src/gate/admission.ts'

/** A header line. */
export type Line = readonly [name: string, value: string]

export interface HeadParts {
  readonly method?: string
  readonly url?: string
  readonly version?: '0.9' | '1.0' | '1.1' | '2.0'
  /** All header lines; default: `Host` and `more`. */
  readonly lines?: readonly Line[]
  readonly more?: readonly Line[]
}

export const HOST: Line = ['Host', 'storage.example']

/** Builds a head; by default a plain GET. */
export function requestHead({
  method = 'GET',
  url = '/',
  version = '1.1',
  more = [],
  lines = [HOST, ...more],
}: HeadParts = {}) {
  const [httpVersionMajor = 0, httpVersionMinor = 0] = version.split('.').map(Number)
  return { method, url, httpVersionMajor, httpVersionMinor, rawHeaders: lines.flat() }
}

const LIMITS = { headerLines: 200 }

export function admission(parts: HeadParts) {
  return admit(requestHead(parts), LIMITS)
}

/** The facts of a head that has to be admitted. */
export function admitted(parts: HeadParts): AdmittedRequest {
  const result = admission(parts)
  if (!result.ok) throw new Error(`refused: ${JSON.stringify(parts)}`)
  return result.value
}
