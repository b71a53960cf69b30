/**
 * Changing credentials by name, wherever they are kept.
 *
 * @module
 */
import type { Account } from './accounts.ts'
import type { CredentialName, NewCredential } from './accounts-edit.ts'

/**
 * Something could not be done. `unusable`: where the credentials are kept is missing, unreachable by what was given or
 * not valid; otherwise this one change could not be made. Problems are lines for a person, free of secrets.
 */
export interface NotDone {
  readonly ok: false
  readonly unusable: boolean
  readonly problems: readonly string[]
}

/** The outcome of a change. */
export type Changed = { readonly ok: true } | NotDone

/** Every credential, and what is worth a warning. */
export type Listed =
  | { readonly ok: true; readonly accounts: readonly Account[]; readonly warnings: readonly string[] }
  | NotDone

/** Changes credentials. A name that is not there, or is there when it should not be, is a problem. Never rejects. */
export interface CredentialEditor {
  list(): Promise<Listed>
  /** Adds a credential, and its account when that is new. */
  add(credential: NewCredential): Promise<Changed>
  /** Disables a credential, or enables it again. One that is so already stays as it is. */
  setDisabled(name: CredentialName, disabled: boolean): Promise<Changed>
  remove(name: CredentialName): Promise<Changed>
}

/** The problem of adding what is there. */
export const NAME_TAKEN = 'the account already has a credential of that access key'
/** The problem of changing what is not there. */
export const NO_SUCH_NAME = 'there is no credential of that account and access key'
