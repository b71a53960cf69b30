/**
 * Changes the text of a credentials file: adds, disables, enables, removes one credential.
 *
 * In: the text of a valid file, and what it holds. Out: the new text, or why there is nothing to change. Comments
 * and order stay; white space may be made uniform.
 *
 * @module
 */
import { type Document, isCollection, parseDocument } from 'yaml'
import type { Account } from './accounts.ts'
import { NAME_TAKEN, NO_SUCH_NAME } from './credential-editor.ts'

/** What names one credential. */
export interface CredentialName {
  readonly accountId: string
  readonly accessKey: string
}

/** A credential to be added. */
export interface NewCredential extends CredentialName {
  /** As `hashSecret` makes it. */
  readonly secretHash: string
  /** RFC 3339. */
  readonly expiresAt?: string
}

/** The outcome of an edit; the problem fits behind the file's name. */
export type Edited =
  | { readonly ok: true; readonly text: string }
  | { readonly ok: false; readonly problem: string }

/** A change of a valid file. */
export type Edit = (text: string, accounts: readonly Account[]) => Edited

/** Adds a credential, and its account when that is new. A credential of that name must not be there. */
export function addCredential({ accountId, ...credential }: NewCredential): Edit {
  return (text, accounts) => {
    const document = parseDocument(text)
    const account = accounts.findIndex((one) => one.accountId === accountId)
    const taken = accounts[account]?.credentials.some(({ accessKey }) => accessKey === credential.accessKey)
    if (taken === true) return { ok: false, problem: NAME_TAKEN }
    if (account === -1) append(document, ['accounts'], { accountId, credentials: [credential] })
    else append(document, ['accounts', account, 'credentials'], credential)
    return written(document)
  }
}

/** Disables a credential, or enables it again. One that is so already stays as it is. */
export function setDisabled(name: CredentialName, disabled: boolean): Edit {
  return changeOne(name, (document, credential) => {
    if (disabled) document.setIn([...credential, 'disabled'], true)
    else document.deleteIn([...credential, 'disabled'])
  })
}

/** Removes a credential, and its account when that was its last one. */
export function removeCredential(name: CredentialName): Edit {
  return changeOne(name, (document, credential, { credentials }) => {
    document.deleteIn(credentials.length > 1 ? credential : credential.slice(0, 2))
  })
}

type NodePath = readonly (string | number)[]

function changeOne(
  { accountId, accessKey }: CredentialName,
  change: (document: Document, credential: NodePath, account: Account) => void,
): Edit {
  return (text, accounts) => {
    const account = accounts.findIndex((one) => one.accountId === accountId)
    const found = accounts[account]
    const index = found?.credentials.findIndex((one) => one.accessKey === accessKey) ?? -1
    if (found === undefined || index === -1) return { ok: false, problem: NO_SUCH_NAME }
    const document = parseDocument(text)
    change(document, ['accounts', account, 'credentials', index], found)
    return written(document)
  }
}

function append(document: Document, list: NodePath, item: object): void {
  const node = document.getIn(list, true)
  // What was `[]` becomes a block: a flow list would squeeze everything into one line.
  if (isCollection(node) && node.items.length === 0) node.flow = false
  document.addIn(list, document.createNode(item))
}

function written(document: Document): Edited {
  return { ok: true, text: document.toString({ lineWidth: 0 }) }
}
