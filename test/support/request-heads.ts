/**
 * Request heads for tests, as Node's parser would give them.
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
  readonly method?: string | undefined
  readonly url?: string | undefined
  readonly httpVersion?: string
  /** All lines, `Host` included; default that alone. */
  readonly lines?: readonly Line[]
  /** Lines behind `Host: storage.example`. */
  readonly more?: readonly Line[]
  readonly limits?: HeadLimits
}

/** Asks for admission. */
export function ask(wanted: Wanted): Admission {
  const head = { method: 'GET', url: '/', httpVersion: '1.1', ...wanted, rawHeaders: rawHeaders(wanted) }
  return admit(head, wanted.limits ?? LIMITS)
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
