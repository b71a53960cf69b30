/**
 * Decides from when on a key file may be removed without refusing a token that is still alive.
 *
 * @module
 */
import type { KeyFile } from './jwk-file.ts'
import { type KeyDirectory, signingFile } from './key-directory.ts'
import { lastSigned, NEVER_SIGNED, tokensEndAt } from './last-signed.ts'

/** From when on a key may go, in epoch seconds (0: at once) and, where no note says so, why; or why nobody can say. */
export type Retirement =
  | { readonly known: true; readonly from: number; readonly why?: string }
  | { readonly known: false; readonly why: string }

/**
 * When a key that does not sign may be removed: as long after it stopped signing as a token may be accepted. One that
 * never signed may go at once.
 *
 * @param longestSeconds - the longest lifetime a token signed by the key can have been given, and the clock tolerance
 */
export function retirementOf(file: KeyFile, keys: KeyDirectory, longestSeconds: number): Retirement {
  const last = lastSigned(file, { ...keys, signing: signingFile(keys).file })
  if (last === undefined) {
    return { known: false, why: 'only its public half is here, so it may still sign elsewhere' }
  }
  if (last.at === NEVER_SIGNED) return { known: true, from: 0 }
  const from = tokensEndAt(last.at, longestSeconds)
  if (last.isNoted) return { known: true, from }
  const changed = new Date(last.at * 1000).toISOString()
  return {
    known: true,
    from,
    why: `no note can be trusted to say when it stopped signing, and the file active was last changed at ${changed}`,
  }
}
