/** Changes credentials by name: the interface, and the implementation for a file (`postgres/editor.ts` has the other). */
import type { Document } from 'yaml'
import type { Loaded, NotDone } from '../reload/files.ts'
import { listCredentialsFile, parse } from './credentials-file.ts'
import type { Credential, CredentialName } from './store.ts'
import { append, type Changed, changeYamlFile } from './yaml-editor.ts'

interface NewCredential extends CredentialName {
  readonly secretHash: string
  /** RFC 3339. */
  readonly expiresAt?: string
  readonly scope?: string | undefined
}

/** A scope of null lifts the restriction. */
export type CredentialUpdate = { readonly disabled: boolean } | { readonly scope: string | null }

/** Never rejects. Problems are free of secrets. */
export interface CredentialEditor {
  list(): Promise<Loaded<readonly Credential[]> | NotDone>
  add(credential: NewCredential): Promise<Changed>
  update(name: CredentialName, update: CredentialUpdate): Promise<Changed>
  remove(name: CredentialName): Promise<Changed>
}

export const NAME_TAKEN = 'the account already has a credential of that access key'
export const NO_SUCH_NAME = 'there is no credential of that account and access key'

const INITIAL_TEXT = `# Accounts and their credentials. Change them with \`storage-auth-sidecar credentials\` or by hand.
accounts: []
`

/** `add` creates a missing file. `lockRetries`: as for `withLock`. */
export function createFileEditor(file: string, lockRetries?: number): CredentialEditor {
  const source = { file, parse, lockRetries }
  const change = (name: CredentialName, edit: Edit, initialText?: string) =>
    changeYamlFile(source, (document) => edit(document, locate(document, name)), initialText)

  return {
    list: () => listCredentialsFile(file),
    add: ({ accountId, ...credential }) =>
      change(
        { accountId, accessKey: credential.accessKey },
        (document, { account, path }) => {
          if (path !== undefined) return NAME_TAKEN
          return account === undefined
            ? append(document, ['accounts'], { accountId, credentials: [credential] })
            : append(document, [...account, 'credentials'], credential)
        },
        INITIAL_TEXT,
      ),
    update: (name, update) =>
      change(name, (document, { path }) => {
        if (path === undefined) return NO_SUCH_NAME
        for (const [member, value] of Object.entries(update)) {
          if (value) document.setIn([...path, member], value)
          else document.deleteIn([...path, member])
        }
        return undefined
      }),
    remove: (name) =>
      change(name, (document, { path, isOnly }) => {
        if (path === undefined) return NO_SUCH_NAME
        document.deleteIn(isOnly ? path.slice(0, 2) : path)
        return undefined
      }),
  }
}

/** Changes the document of a valid file, or returns the problem. */
type Edit = (document: Document, location: ReturnType<typeof locate>) => string | undefined

/** The paths of a credential and of its account, undefined where there is none. `isOnly`: the account has no other. */
function locate(document: Document, { accountId, accessKey }: CredentialName) {
  const { accounts }: { accounts: { accountId: string; credentials: CredentialName[] }[] } = document.toJS()
  const at = accounts.findIndex((account) => account.accountId === accountId)
  const credentials = accounts[at]?.credentials ?? []
  const index = credentials.findIndex((credential) => credential.accessKey === accessKey)
  const account = at === -1 ? undefined : ['accounts', at]
  const path = account && index !== -1 ? [...account, 'credentials', index] : undefined
  return { account, path, isOnly: credentials.length === 1 }
}
