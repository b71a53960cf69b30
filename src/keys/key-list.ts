/**
 * Describes the keys of a directory for their rotation, and decides from when on a key file may be removed.
 */
import { type KeyDirectory, type KeyFile, signingFile } from './key-directory.ts'
import { type Algorithm, NEVER_SIGNED, tokensEndAt } from './key-ring.ts'

/** One key, without any part of it. Times are RFC 3339 in UTC. */
export interface KeyListEntry {
  readonly kid: string
  readonly alg: Algorithm
  readonly active: boolean
  readonly private: boolean
  readonly created: string
  /** When it stopped signing; null when it signs, never has, or may sign elsewhere. */
  readonly signedUntil: string | null
  /** From when on it can be retired; null when it signs or that is not known. In the past: now. */
  readonly removableFrom: string | null
}

/**
 * From when on a key that does not sign may be removed, in epoch seconds (0: at once): when its last token has
 * expired. Undefined when it is not known when it stopped signing.
 *
 * @param longestSeconds - the longest lifetime of a token plus the clock tolerance
 */
export function removableFrom({ verification }: KeyFile, longestSeconds: number): number | undefined {
  const { signedUntil } = verification
  return signedUntil === undefined ? undefined : tokensEndAt(signedUntil, longestSeconds)
}

/**
 * Lists the keys of a directory, oldest first.
 *
 * @param longestSeconds - the longest lifetime of a token plus the clock tolerance
 */
export function listKeys(keys: KeyDirectory, longestSeconds: number): readonly KeyListEntry[] {
  const signing = signingFile(keys).file
  return [...keys.files.values()]
    .sort((a, b) => a.verification.createdAt - b.verification.createdAt)
    .map((file) => {
      const { kid, alg, createdAt, signedUntil } = file.verification
      const active = file === signing
      const from = removableFrom(file, longestSeconds)
      return {
        kid,
        alg,
        active,
        private: file.signing !== undefined,
        created: time(createdAt),
        signedUntil:
          active || signedUntil === undefined || signedUntil === NEVER_SIGNED ? null : time(signedUntil),
        removableFrom: active || from === undefined ? null : time(Math.max(from, createdAt)),
      }
    })
}

function time(epochSeconds: number): string {
  return new Date(epochSeconds * 1000).toISOString()
}
