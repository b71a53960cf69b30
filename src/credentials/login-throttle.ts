/**
 * Bounds failed logins for each pair of account and client address: a client that guesses secrets must wait.
 */
import { hash } from 'node:crypto'
import pLimit, { type LimitFunction } from 'p-limit'
import type { LoginVerdict } from './credential-checks.ts'
import type { CredentialName } from './credential-list.ts'
import { createFixedWindow, secondsLeft } from './fixed-window.ts'

export interface ThrottledLogin {
  readonly outcome: 'throttled'
  readonly retryAfterSeconds: number
}

/** Calls `authenticate` when the pair of account and client address may log in. */
export type LoginThrottle = (
  name: CredentialName,
  clientAddress: string,
  authenticate: () => Promise<LoginVerdict>,
) => Promise<LoginVerdict | ThrottledLogin>

/** Maximum logins of a pair that wait for others of the pair. Further logins are `busy`. */
const MAX_WAITING = 1000

/**
 * After `count` failures of a pair of account and client address in a window, refuses further logins
 * of the pair unchecked. Unknown accounts count, too. If the logins in flight could reach `count` failures,
 * a further login waits for them. A success removes only the failures of its own access key.
 * Otherwise a client could guess the secret of another key between logins with its own.
 * A pair is evicted only after failures of 50,000 other pairs.
 */
export function createLoginThrottle(
  { count, windowSeconds }: { readonly count: number; readonly windowSeconds: number },
  monotonicNow?: () => number,
): LoginThrottle {
  /** For each pair, the digest of the access key of each failure. */
  const failures = createFixedWindow<number[]>(windowSeconds, monotonicNow)
  const limits = new Map<string, LimitFunction>()

  function recordFailure(pair: string, key: number): void {
    failures.set(pair, [...(failures.get(pair) ?? []), key])
  }

  function takeBackFailures(pair: string, key: number): void {
    const others = failures.get(pair)?.filter((other) => other !== key) ?? []
    if (others.length === 0) {
      failures.delete(pair)
    } else {
      failures.set(pair, others)
    }
  }

  return async (name, clientAddress, authenticate) => {
    const pair = pairOf(name, clientAddress)
    const failureCount = () => failures.get(pair)?.length ?? 0
    // Each login in flight may fail, so 200 guesses at once get no more attempts than `count`.
    const attemptsLeft = () => Math.max(1, count - failureCount())
    const limit = limits.get(pair) ?? pLimit(attemptsLeft())
    if (limit.pendingCount >= MAX_WAITING) {
      return { outcome: 'busy' }
    }
    limits.set(pair, limit)
    try {
      return await limit(async (): Promise<LoginVerdict | ThrottledLogin> => {
        if (failureCount() >= count) {
          return { outcome: 'throttled', retryAfterSeconds: secondsLeft(failures, pair) }
        }
        const verdict = await authenticate()
        if (verdict.outcome === 'rejected') {
          recordFailure(pair, keyOf(name))
        } else if (verdict.outcome === 'accepted') {
          // A login with two readings may be that of another credential than the name.
          const { credential } = verdict
          takeBackFailures(pairOf(credential, clientAddress), keyOf(credential))
        }
        limit.concurrency = attemptsLeft()
        return verdict
      })
    } finally {
      if (limit.activeCount === 0 && limit.pendingCount === 0) {
        limits.delete(pair)
      }
    }
  }
}

/** The client chooses the account name, which may be long. The digest is short. */
const pairOf = ({ accountId }: CredentialName, clientAddress: string) =>
  `${hash('sha256', accountId, 'base64url')} ${clientAddress}`

const keyOf = ({ accessKey }: CredentialName) => hash('sha256', accessKey, 'buffer').readUIntBE(0, 6)
