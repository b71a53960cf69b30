/** Changes credentials by name, in a file or in PostgreSQL. */
import type { Credential, CredentialName } from './credential.ts'

export interface NewCredential extends CredentialName {
  /** As `hashSecret` writes it. */
  readonly secretHash: string
  /** RFC 3339. */
  readonly expiresAt?: string
}

/**
 * Why nothing was done, one line each, free of secrets. `unusable`: the file or database is missing, unreachable or
 * invalid; otherwise only this change is impossible.
 */
export interface NotDone {
  readonly ok: false
  readonly unusable: boolean
  readonly problems: readonly string[]
}

export type Changed = { readonly ok: true } | NotDone

export type Listed =
  | { readonly ok: true; readonly credentials: readonly Credential[]; readonly warnings: readonly string[] }
  | NotDone

/** Never rejects. */
export interface CredentialEditor {
  list(): Promise<Listed>
  add(credential: NewCredential): Promise<Changed>
  /** Disables or enables; without effect where it is so already. */
  setDisabled(name: CredentialName, disabled: boolean): Promise<Changed>
  remove(name: CredentialName): Promise<Changed>
}

export const NAME_TAKEN = 'the account already has a credential of that access key'
export const NO_SUCH_NAME = 'there is no credential of that account and access key'
