/**
 * Credentials, and their index for logins and token checks.
 */
import { z } from 'zod'

export interface CredentialName {
  readonly accountId: string
  readonly accessKey: string
}

export interface Credential extends CredentialName {
  /** As `hashSecret` writes it; `parseSecretHash` accepts it. */
  readonly secretHash: string
  /** Epoch milliseconds; `Infinity` when it never expires. */
  readonly expiresAt: number
  readonly disabled: boolean
}

/** Credentials by name. A reload replaces the index, so a login sees one version of all credentials. */
export type CredentialIndex = ReturnType<typeof createCredentialIndex>

export function createCredentialIndex(credentials: Iterable<Credential> = []) {
  const accounts = new Set<string>()
  const byName = new Map<string, Credential>()
  const scryptParameters = new Set<string>()
  function add(credential: Credential): void {
    const { accountId, secretHash } = credential
    accounts.add(accountId)
    byName.set(keyOf(credential), credential)
    if (secretHash.startsWith('$scrypt$')) {
      scryptParameters.add(secretHash.slice(0, secretHash.indexOf('$', '$scrypt$'.length)))
    }
  }
  for (const credential of credentials) add(credential)
  return {
    add,
    size: () => byName.size,
    hasAccount: (accountId: string) => accounts.has(accountId),
    find: (name: CredentialName) => byName.get(keyOf(name)),
    /** The distinct scrypt parameters of all credentials, such as `$scrypt$ln=14,r=8,p=5`; empty without scrypt. */
    scryptParameters: () => [...scryptParameters],
  }
}

/** Names hold no control characters, so U+0001 between them keeps pairs apart. */
function keyOf({ accountId, accessKey }: CredentialName): string {
  return `${accountId}\u0001${accessKey}`
}

/** @param now - epoch milliseconds */
export function isActive({ disabled, expiresAt }: Credential, now: number): boolean {
  return !disabled && now < expiresAt
}

const time = z.iso.datetime({ offset: true })

/** Parses an RFC 3339 time with its zone and, in UTC, a year of four digits: epoch milliseconds, or undefined. */
export function parseTime(text: string): number | undefined {
  const milliseconds = time.safeParse(text).success ? Date.parse(text) : Number.NaN
  return new Date(milliseconds).toJSON()?.length === 24 ? milliseconds : undefined
}
