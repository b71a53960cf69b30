/**
 * Decides from when on a key file may be removed without refusing a token that is still alive.
 *
 * @module
 */
import type { KeyFile } from './jwk-file.ts'

/** From when on a key may go, in epoch seconds (0: at once), or why nobody can say. */
export type Retirement =
  | { readonly known: true; readonly from: number }
  | { readonly known: false; readonly why: string }

/**
 * When a key that does not sign may be removed: a token's longest lifetime after it stopped signing.
 *
 * @param maxLifetimeSeconds - the longest lifetime a token signed by the key can have been given
 */
export function retirementOf(file: KeyFile, maxLifetimeSeconds: number): Retirement {
  const { signedUntil } = file.verification
  if (signedUntil !== undefined) return { known: true, from: signedUntil + maxLifetimeSeconds }
  if (file.signing !== undefined) return { known: true, from: 0 }
  return { known: false, why: 'only its public half is here, so it may still sign elsewhere' }
}
