/**
 * What is thrown where a sidecar cannot be started because nobody could say who gets in.
 *
 * @module
 */

/** Keys, credentials, revocations or certificates that cannot be used. The message has a line for each problem. */
export class UnusableTrust extends Error {
  override readonly name = 'UnusableTrust'
}
