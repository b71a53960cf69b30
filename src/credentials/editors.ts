/**
 * Changes credentials and revocations by name: the interfaces, and the implementation for files.
 * `postgres/editors.ts` has the other one. Problems are free of secrets, and nothing rejects.
 */
import { isDeepStrictEqual } from 'node:util'
import type { Document } from 'yaml'
import type { Loaded, NotDone } from '../reload/files.ts'
import { loadCredentialsFile, parse as parseCredentials } from './credentials-file.ts'
import { listRevocationsFile, parse as parseRevocations, type Revocation } from './revocations.ts'
import type { Credential, CredentialName } from './store.ts'
import { append, type Changed, changeYamlFile, type Edit } from './yaml-editor.ts'

interface NewCredential extends CredentialName {
  readonly secretHash: string
  /** RFC 3339. */
  readonly expiresAt?: string
  readonly scope?: string | undefined
}

/** A scope of null lifts the restriction. */
export type CredentialUpdate = { readonly disabled: boolean } | { readonly scope: string | null }

export interface CredentialEditor {
  list(): Promise<Loaded<readonly Credential[]> | NotDone>
  add(credential: NewCredential): Promise<Changed>
  update(name: CredentialName, update: CredentialUpdate): Promise<Changed>
  remove(name: CredentialName): Promise<Changed>
}

/** Exactly one of them. */
export type RevocationName = Pick<Revocation, 'jti' | 'accountId' | 'accessKey'>

export interface RevocationEditor {
  list(): Promise<Loaded<readonly Revocation[]> | NotDone>
  add(revocation: Revocation): Promise<Changed>
  /** Removes every revocation of the name. */
  remove(name: RevocationName): Promise<Changed>
}

export interface Editors {
  readonly credentials: CredentialEditor
  readonly revocations: RevocationEditor
}

export const NAME_TAKEN = 'the account already has a credential of that access key'
export const NO_SUCH_NAME = 'there is no credential of that account and access key'
export const NO_SUCH_REVOCATION = 'there is no such revocation'

const NEW_CREDENTIALS = `# Accounts and their credentials. Change them with \`storage-auth-sidecar credentials\` or by hand.
accounts: []
`
const NEW_REVOCATIONS = `# Tokens that end before they expire. Change them with \`storage-auth-sidecar revocations\` or by hand.
revocations: []
`

/** Of the two, the one that fits the file. `add` creates a missing file. */
export function openFileEditors(file: string): Editors {
  const changeCredentials = (edit: Edit, initialText?: string) =>
    changeYamlFile(file, parseCredentials, edit, initialText)
  const credentials: CredentialEditor = {
    async list() {
      const loaded = await loadCredentialsFile(file)
      return loaded.ok ? { ...loaded, value: loaded.value.list() } : loaded
    },
    add: ({ accountId, ...credential }) =>
      changeCredentials((document) => {
        const { account, path } = locate(document, { accountId, ...credential })
        if (path !== undefined) return NAME_TAKEN
        return account === undefined
          ? append(document, ['accounts'], { accountId, credentials: [credential] })
          : append(document, [...account, 'credentials'], credential)
      }, NEW_CREDENTIALS),
    update: (name, update) =>
      changeCredentials((document) => {
        const { path } = locate(document, name)
        if (path === undefined) return NO_SUCH_NAME
        for (const [member, value] of Object.entries(update)) {
          if (value) document.setIn([...path, member], value)
          else document.deleteIn([...path, member])
        }
        return undefined
      }),
    remove: (name) =>
      changeCredentials((document) => {
        const { removed } = locate(document, name)
        if (removed === undefined) return NO_SUCH_NAME
        document.deleteIn(removed)
        return undefined
      }),
  }
  const revocations: RevocationEditor = {
    list: () => listRevocationsFile(file),
    add(revocation) {
      const edit: Edit = (document) => append(document, ['revocations'], revocationEntry(revocation))
      return changeYamlFile(file, parseRevocations, edit, NEW_REVOCATIONS)
    },
    remove: (name) =>
      changeYamlFile(file, parseRevocations, (document) => {
        const { revocations }: { revocations: Revocation[] } = document.toJS()
        const at = revocations.flatMap(({ issuedBefore: _, ...named }, index) =>
          isDeepStrictEqual(named, name) ? [index] : [],
        )
        for (const index of at.reverse()) document.deleteIn(['revocations', index])
        return at.length === 0 ? NO_SUCH_REVOCATION : undefined
      }),
  }
  return { credentials, revocations }
}

/** The paths of a credential, of its account, and of what is removed with it: an account without others goes, too. */
function locate(document: Document, { accountId, accessKey }: CredentialName) {
  const { accounts }: { accounts: { accountId: string; credentials: CredentialName[] }[] } = document.toJS()
  const at = accounts.findIndex((account) => account.accountId === accountId)
  if (at === -1) return {}
  const account = ['accounts', at]
  const credentials = accounts[at]?.credentials ?? []
  const index = credentials.findIndex((credential) => credential.accessKey === accessKey)
  if (index === -1) return { account }
  const path = [...account, 'credentials', index]
  return { account, path, removed: credentials.length === 1 ? account : path }
}

/** As JSON and files hold it: the time in RFC 3339. */
export function revocationEntry({ issuedBefore, ...name }: Revocation) {
  const { jti, accountId, accessKey } = name
  return {
    ...(jti && { jti }),
    ...(accountId && { accountId }),
    ...(accessKey && { accessKey }),
    ...(typeof issuedBefore === 'number' && { issuedBefore: new Date(issuedBefore).toISOString() }),
  }
}
