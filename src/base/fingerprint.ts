/**
 * Fingerprints: numbers that tell whether replicas have the same content. A set has the sum of the
 * fingerprints of its members: their order does not count, and a member can be added or removed alone.
 */
import { hash } from 'node:crypto'

/** A number of Prometheus holds 53 bits. */
const HEX_DIGITS = 12
const MODULUS = 16 ** HEX_DIGITS

/** @param values - undefined counts as null */
export const fingerprintOf = (...values: readonly unknown[]): number =>
  Number.parseInt(hash('sha256', JSON.stringify(values)).slice(0, HEX_DIGITS), 16)

export const addFingerprint = (sum: number, member: number): number => (sum + member) % MODULUS

export const subtractFingerprint = (sum: number, member: number): number => (sum - member + MODULUS) % MODULUS
