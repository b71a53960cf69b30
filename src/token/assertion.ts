/**
 * Signs assertions: an identity as a JWS that an upstream can verify.
 * In: the identity of an access token. Out: the value of `X-Authenticated-Assertion` and its times of renewal and expiry.
 */
import type { KeyRing } from '../keys/key-ring.ts'
import { signIdentity } from './issue.ts'
import type { Identity } from './verdict.ts'

export interface AssertionOptions {
  readonly keys: () => KeyRing
  /** Claim `iss`. */
  readonly issuer: string
  /** Claim `aud`: differs from that of access tokens. */
  readonly audience: string
  /** An assertion ends after this time, or with its token. */
  readonly lifetimeSeconds: number
  /** The clock, in epoch milliseconds. */
  readonly now: () => number
}

export interface Assertion {
  /** A compact JWS; absent when there is no signing key, and in the clock tolerance after the end of the token. */
  readonly assertion: string | undefined
  /** Epoch milliseconds: at half of its lifetime, or at its end when it ends with the token. */
  readonly renewAt: number
  /** Epoch milliseconds. */
  readonly endsAt: number
}

export const NO_ASSERTION: Assertion = {
  assertion: undefined,
  renewAt: Number.POSITIVE_INFINITY,
  endsAt: Number.POSITIVE_INFINITY,
}

export type SignAssertion = (identity: Identity) => Promise<Assertion>

/** Creates the function that signs with the active key. */
export function createAssertionSigner(options: AssertionOptions): SignAssertion {
  const { keys, issuer, audience, lifetimeSeconds, now } = options
  return async (identity) => {
    const { signing } = keys()
    const time = now()
    const issuedAt = Math.floor(time / 1000)
    const expiresAt = Math.min(issuedAt + lifetimeSeconds, identity.expiresAt)
    const endsAt = expiresAt * 1000
    if (signing === undefined || endsAt <= time) {
      return NO_ASSERTION
    }
    const form = { signing, typ: 'upstream-assertion+jwt', issuer, audience, issuedAt, expiresAt }
    return {
      assertion: await signIdentity(identity, form),
      renewAt: expiresAt === identity.expiresAt ? endsAt : (time + endsAt) / 2,
      endsAt,
    }
  }
}
