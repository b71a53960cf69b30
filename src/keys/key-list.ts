/**
 * Describes the keys of a directory to the people who rotate them.
 *
 * In: what stands in the directory. Out: one plain entry per key, oldest first, with nothing private in it.
 *
 * @module
 */
import { type KeyDirectory, signingFile } from './key-directory.ts'
import type { Algorithm } from './key-ring.ts'
import { NEVER_SIGNED } from './last-signed.ts'
import { retirementOf } from './retirement.ts'

/** One key. Times are RFC 3339 in UTC. */
export interface KeyListEntry {
  readonly kid: string
  readonly alg: Algorithm
  /** Whether it signs new tokens. */
  readonly active: boolean
  /** Whether the private half is here. */
  readonly private: boolean
  readonly created: string
  /** When it stopped signing; null when it signs or never has. */
  readonly signedUntil: string | null
  /** From when on it can be retired; null when it signs, or may sign elsewhere. In the past: now. */
  readonly removableFrom: string | null
}

/**
 * Lists the keys of a directory.
 *
 * @param maxLifetimeSeconds - the longest lifetime that tokens are given
 */
export function listKeys(keys: KeyDirectory, maxLifetimeSeconds: number): readonly KeyListEntry[] {
  const signing = signingFile(keys).file
  return [...keys.files.values()]
    .sort((a, b) => a.verification.createdAt - b.verification.createdAt)
    .map((file) => {
      const { createdAt, signedUntil } = file.verification
      const active = file === signing
      const retirement = retirementOf(file, keys, maxLifetimeSeconds)
      return {
        kid: file.kid,
        alg: file.alg,
        active,
        private: file.signing !== undefined,
        created: time(createdAt),
        signedUntil:
          active || signedUntil === undefined || signedUntil === NEVER_SIGNED ? null : time(signedUntil),
        removableFrom: active || !retirement.known ? null : time(Math.max(retirement.from, createdAt)),
      }
    })
}

function time(epochSeconds: number): string {
  return new Date(epochSeconds * 1000).toISOString()
}
