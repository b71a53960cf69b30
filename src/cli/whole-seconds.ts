/**
 * Reads a number of seconds from the command line.
 *
 * @module
 */
import { InvalidArgumentError } from 'commander'

/** A whole number of seconds in plain decimals; anything else is wrong usage. For commander's `argParser`. */
export function wholeSeconds(text: string): number {
  if (!/^\d{1,10}$/.test(text)) throw new InvalidArgumentError('It must be a whole number of seconds.')
  return Number(text)
}
