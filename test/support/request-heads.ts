/** Request heads as Node's parser hands them to admission. */
import { type AdmittedRequest, admit } from '../../src/gate/admission.ts'

/** A header line. */
export type Line = readonly [name: string, value: string]

export interface HeadParts {
  readonly method?: string
  readonly version?: '1.0' | '1.1'
  /** Beside `Host`. */
  readonly more?: readonly Line[]
}

const LIMITS = { headerLines: 200 }

/** Admits a head; by default a plain GET. */
export function admission({ method = 'GET', version = '1.1', more = [] }: HeadParts) {
  const [httpVersionMajor = 0, httpVersionMinor = 0] = version.split('.').map(Number)
  const rawHeaders = ['Host', 'storage.example', ...more.flat()]
  return admit({ method, url: '/', httpVersionMajor, httpVersionMinor, rawHeaders }, LIMITS)
}

/** The facts of a head that has to be admitted. */
export function admitted(parts: HeadParts): AdmittedRequest {
  const result = admission(parts)
  if (!result.ok) {
    throw new Error(`refused: ${JSON.stringify(parts)}`)
  }
  return result.value
}
