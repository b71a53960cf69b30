/**
 * What is said of bytes that are no HTTP message.
 *
 * @module
 */

/** The bytes cannot be understood, or are more than is allowed. The message names the rule, never the bytes. */
export class MessageFault extends Error {
  override readonly name = 'MessageFault'
  /** Whether it is only their number that is wrong. */
  readonly tooLarge: boolean

  constructor(rule: string, tooLarge = false) {
    super(rule)
    this.tooLarge = tooLarge
  }
}
