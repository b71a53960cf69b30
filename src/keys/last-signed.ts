/**
 * Tells when a key can last have signed: what its tokens' end is counted from, for the gauge and for `keys retire`.
 *
 * In: a key file that does not sign, the one that does, and when the file `active` was last changed. Out: a time after
 * which the key has not signed in any sidecar that follows this directory, or nothing where nobody can know.
 *
 * The commands note in each private key's file when it stopped signing, or that it never has, and write the file of the
 * key that signs right before `active`. Where `active` is much younger than that file, somebody else has changed
 * it, perhaps back and forth: then no note is trusted, and every other private key may have signed until
 * that change. (Copied together, as into a Kubernetes volume, the files are of one age.)
 *
 * @module
 */
import type { KeyFile } from './jwk-file.ts'

/** A note in place of a time: the key has never signed. */
export const NEVER_SIGNED = 0

/** How much later than the file of the key that signs the commands write `active`, at most, in seconds. */
const SAME_CHANGE_SECONDS = 2

/** For how long a sidecar goes on signing with a key after the directory says otherwise, in seconds. */
const RELOAD_SECONDS = 1

/** When a key last signed, at the latest. */
export interface LastSigned {
  /** Epoch seconds; {@link NEVER_SIGNED}. */
  readonly at: number
  /** Whether it is the key's note that says so; otherwise it is the last change of `active`. */
  readonly isNoted: boolean
}

/** What a key directory says of signing. */
export interface SigningState {
  /** The key that signs. */
  readonly signing: KeyFile | undefined
  /** When the file `active` was last changed, in epoch seconds; absent without that file. */
  readonly activeModifiedAt?: number
}

/**
 * When a key that does not sign has last done so. Nothing for a public half without a note: the private one may
 * sign elsewhere.
 */
export function lastSigned(
  file: KeyFile,
  { signing, activeModifiedAt }: SigningState,
): LastSigned | undefined {
  const { signedUntil } = file.verification
  if (file.signing === undefined || activeModifiedAt === undefined) {
    return signedUntil === undefined ? undefined : { at: signedUntil, isNoted: true }
  }
  const byHand = signing === undefined || activeModifiedAt > signing.modifiedAt + SAME_CHANGE_SECONDS
  if (signedUntil !== undefined && (!byHand || signedUntil > activeModifiedAt)) {
    return { at: signedUntil, isNoted: true }
  }
  return { at: activeModifiedAt, isNoted: false }
}

/**
 * From when on no token that a key has signed is accepted any more, in epoch seconds.
 *
 * @param signedUntil - when it last signed, in epoch seconds
 * @param longestSeconds - for how long after it was issued a token may be accepted: its lifetime and the clock tolerance
 */
export function tokensEndAt(signedUntil: number, longestSeconds: number): number {
  return signedUntil + RELOAD_SECONDS + longestSeconds
}
