/** Credentials and revocations as commands list and change them, in files or in PostgreSQL. Nothing rejects. */
import type { Attempt } from '../values/result.ts'
import type { Revocation } from './revocation-list.ts'
import type { Credential, CredentialName } from './store.ts'

export interface Records {
  readonly credentials: CredentialRecords
  readonly revocations: RevocationRecords
}

export interface CredentialRecords {
  /** In the order in which they were added, those of an account together. */
  list(): Promise<Attempt<readonly Credential[]>>
  add(credential: NewCredential): Promise<Attempt>
  update(name: CredentialName, update: CredentialUpdate): Promise<Attempt>
  remove(name: CredentialName): Promise<Attempt>
}

export interface RevocationRecords {
  list(): Promise<Attempt<readonly Revocation[]>>
  add(revocation: Revocation): Promise<Attempt>
  /** Removes all of the name. */
  remove(name: RevocationName): Promise<Attempt>
}

/** `expiresAt`: RFC 3339. */
export type NewCredential = CredentialName &
  Pick<Credential, 'secretHash'> & { readonly expiresAt?: string; readonly scope?: string }

/** A scope of null lifts the restriction. */
export type CredentialUpdate = { readonly disabled: boolean } | { readonly scope: string | null }

/** Has exactly one of them. */
export type RevocationName = Pick<Revocation, 'jti' | 'accountId' | 'accessKey'>

export const NAME_TAKEN = 'the account already has a credential of that access key'
export const NO_SUCH_NAME = 'there is no credential of that account and access key'
export const NO_SUCH_REVOCATION = 'there is no such revocation'

/** A revocation as JSON and files hold it, with its time in RFC 3339. */
export function revocationEntry({ jti, accountId, accessKey, issuedBeforeMs }: Revocation) {
  return {
    ...(jti && { jti }),
    ...(accountId && { accountId }),
    ...(accessKey && { accessKey }),
    ...(typeof issuedBeforeMs === 'number' && { issuedBefore: new Date(issuedBeforeMs).toISOString() }),
  }
}
