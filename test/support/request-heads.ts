/**
 * Request heads for tests, as the reader of requests tells them.
 *
 * @module
 */
import { type Admission, type Admitted, admit, type HeadLimits } from '../../src/gate/admission.ts'

/** The limits of the default settings. */
export const LIMITS: HeadLimits = { headerLines: 200, headerBytes: 16384 }

/** One header line. */
export type Line = readonly [name: string, value: string]

/** How a request differs from `GET / HTTP/1.1` with `Host: storage.example`. */
export interface Wanted {
  readonly method?: string
  readonly url?: string
  readonly httpVersion?: '1.0' | '1.1'
  /** All lines, `Host` included; default that alone. */
  readonly lines?: readonly Line[]
  /** Lines behind `Host: storage.example`. */
  readonly more?: readonly Line[]
  readonly limits?: HeadLimits
}

/** Asks for admission. */
export function ask(wanted: Wanted): Admission {
  const { method = 'GET', url = '/', httpVersion = '1.1' } = wanted
  return admit({ method, url, httpVersion, rawHeaders: rawHeaders(wanted) }, wanted.limits ?? LIMITS)
}

/** The header lines of a request, names and values alternating. */
export function rawHeaders({ lines, more = [] }: Wanted): string[] {
  return (lines ?? [['Host', 'storage.example'], ...more]).flat()
}

/** A request that must be admitted. */
export function admitted(wanted: Wanted): Admitted {
  const admission = ask(wanted)
  if (!admission.ok) throw new Error(`the request was refused: ${admission.error.message}`)
  return admission.request
}
