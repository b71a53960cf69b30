/**
 * Lists and changes credentials and revocations, in YAML files or in PostgreSQL (`postgres/tables.ts`).
 * A change keeps the comments and the order of a file. The functions reject only with `NotDone`.
 */
import { lstat, realpath } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { type Document, isAlias, isCollection, isScalar, type Node, parseDocument, visit } from 'yaml'
import { type Loaded, loaded, NotDone, notLoaded } from '../base/result.ts'
import { FileError, fileErrorText, readRegularFile, replaceFile, withLock } from '../files/files.ts'
import type { Parse } from '../files/yaml-list.ts'
import { YAML_RULES } from '../files/yaml-text.ts'
import { type Credential, type CredentialName, parseCredentials } from './credential-list.ts'
import { MAX_FILE_BYTES } from './list-files.ts'
import { parseRevocations, type Revocation } from './revocation-list.ts'

export type Editors = Readonly<{ credentials: CredentialEditor; revocations: RevocationEditor }>

export interface CredentialEditor {
  /** Grouped by account, the oldest first. */
  list(): Promise<Loaded<readonly Credential[]>>
  add(credential: NewCredential): Promise<Loaded>
  update(name: CredentialName, update: CredentialUpdate): Promise<Loaded>
  /** Resolves with the access keys of the account, all of which are disabled now. */
  disableAccount(accountId: string): Promise<Loaded<readonly string[]>>
  /** Replaces the secret, and the previous one. */
  rotate(name: CredentialName, rotation: SecretRotation): Promise<Loaded>
  remove(name: CredentialName): Promise<Loaded>
}

export interface RevocationEditor {
  list(): Promise<Loaded<readonly Revocation[]>>
  add(revocation: Revocation): Promise<Loaded>
  /** Removes all revocations of the name. */
  remove(name: RevocationName): Promise<Loaded>
}

interface NewCredential extends CredentialName {
  readonly secretHash: string
  /** RFC 3339. */
  readonly expiresAt?: string | undefined
  readonly scope?: string | undefined
}

/**
 * `previousSecretExpiresAt`: until when the secret that is replaced logs in (RFC 3339). Undefined: no more.
 */
export interface SecretRotation {
  readonly secretHash: string
  readonly previousSecretExpiresAt: string | undefined
}

/** A scope of null removes the restriction. */
export type CredentialUpdate = { readonly disabled: boolean } | { readonly scope: string | null }

/** A name has exactly one of these members. */
export type RevocationName = Pick<Revocation, 'jti' | 'accountId' | 'accessKey'>

export const NAME_TAKEN = 'the account already has a credential of that access key'
export const NO_SUCH_ACCOUNT = 'there is no credential of that account'
export const NO_SUCH_NAME = 'there is no credential of that account and access key'
export const NO_SUCH_REVOCATION = 'there is no such revocation'

/** A revocation as JSON and files hold it. */
interface RevocationEntry {
  jti?: string
  issuer?: string
  accountId?: string
  accessKey?: string
  /** RFC 3339. */
  issuedBefore?: string
}

export function revocationEntry(revocation: Revocation): Readonly<RevocationEntry> {
  const { issuedBeforeMs } = revocation
  const entry: RevocationEntry = {}
  for (const name of ['jti', 'issuer', 'accountId', 'accessKey'] as const) {
    const value = revocation[name]
    if (value) {
      entry[name] = value
    }
  }
  if (typeof issuedBeforeMs === 'number') {
    entry.issuedBefore = new Date(issuedBeforeMs).toISOString()
  }
  return entry
}

const NEW_CREDENTIALS = `# Accounts and their credentials. Change them with \`storage-auth-sidecar credentials\` or by hand.
accounts: []
`
const NEW_REVOCATIONS = `# Tokens that end before they expire. Change them with \`storage-auth-sidecar revocations\` or by hand.
revocations: []
`

/**
 * A file has credentials or revocations, and is invalid for the other editor. `add` creates a missing file.
 */
export function fileEditors(file: string): Editors {
  return { credentials: credentialEditor(file), revocations: revocationEditor(file) }
}

function credentialEditor(file: string): CredentialEditor {
  const { list, change } = yamlRecords(file, parseCredentials)
  return {
    list,
    add: ({ accountId, ...credential }) =>
      change((document) => {
        const { account, path } = locate(document, { accountId, ...credential })
        if (path !== undefined) {
          return NAME_TAKEN
        }
        if (account === undefined) {
          append(document, ['accounts'], { accountId, credentials: [credential] })
        } else {
          append(document, [...account, 'credentials'], credential)
        }
        return undefined
      }, NEW_CREDENTIALS),
    update: (name, update) =>
      change((document) => {
        const { path } = locate(document, name)
        if (path === undefined) {
          return NO_SUCH_NAME
        }
        setMembers(document, path, update)
        return undefined
      }),
    async disableAccount(accountId) {
      const accessKeys: string[] = []
      const changed = await change((document) => {
        const { account, credentials } = locateAccount(document, accountId)
        if (account === undefined) {
          return NO_SUCH_ACCOUNT
        }
        for (const [index, { accessKey }] of credentials.entries()) {
          setMembers(document, [...account, 'credentials', index], { disabled: true })
          accessKeys.push(accessKey)
        }
        return undefined
      })
      return changed.ok ? loaded(accessKeys) : changed
    },
    rotate: (name, { secretHash, previousSecretExpiresAt }) =>
      change((document) => {
        const { path } = locate(document, name)
        if (path === undefined) {
          return NO_SUCH_NAME
        }
        const keepsPrevious = previousSecretExpiresAt !== undefined
        const previousSecretHash = keepsPrevious ? document.getIn([...path, 'secretHash']) : undefined
        setMembers(document, path, { secretHash, previousSecretHash, previousSecretExpiresAt })
        return undefined
      }),
    remove: (name) =>
      change((document) => {
        const { removed } = locate(document, name)
        if (removed === undefined) {
          return NO_SUCH_NAME
        }
        document.deleteIn(removed)
        return undefined
      }),
  }
}

function revocationEditor(file: string): RevocationEditor {
  const { list, change } = yamlRecords(file, parseRevocations)
  return {
    list,
    add: (revocation) =>
      change((document) => {
        append(document, ['revocations'], revocationEntry(revocation))
        return undefined
      }, NEW_REVOCATIONS),
    remove: (name) =>
      change((document) => {
        const found = locateRevocations(document, name)
        // From the end, because each removal moves the entries after it.
        for (const index of found.reverse()) {
          document.deleteIn(['revocations', index])
        }
        return found.length === 0 ? NO_SUCH_REVOCATION : undefined
      }),
  }
}

/** Returns the indexes of all revocations of the name. */
function locateRevocations(document: Document, name: RevocationName): number[] {
  const { revocations }: { revocations: RevocationEntry[] } = document.toJS()
  const found: number[] = []
  for (const [index, { jti, accountId, accessKey }] of revocations.entries()) {
    if (jti === name.jti && accountId === name.accountId && accessKey === name.accessKey) {
      found.push(index)
    }
  }
  return found
}

/** Sets members of a map. An empty value removes its member. */
function setMembers(document: Document, path: readonly (string | number)[], members: object): void {
  for (const [member, value] of Object.entries(members)) {
    if (value) {
      document.setIn([...path, member], value)
    } else {
      document.deleteIn([...path, member])
    }
  }
}

/** Returns the path of an account, undefined if there is none, and its credentials. */
function locateAccount(document: Document, accountId: string) {
  const { accounts }: { accounts: { accountId: string; credentials: CredentialName[] }[] } = document.toJS()
  const at = accounts.findIndex((account) => account.accountId === accountId)
  const account = at === -1 ? undefined : ['accounts', at]
  return { account, credentials: accounts[at]?.credentials ?? [] }
}

/**
 * Returns the paths of nodes.
 * `removed`: the node to delete, which is the account if it has no other credential.
 */
function locate(document: Document, { accountId, accessKey }: CredentialName) {
  const { account, credentials } = locateAccount(document, accountId)
  if (account === undefined) {
    return {}
  }
  const index = credentials.findIndex((credential) => credential.accessKey === accessKey)
  if (index === -1) {
    return { account }
  }
  const path = [...account, 'credentials', index]
  return { account, path, removed: credentials.length === 1 ? account : path }
}

function yamlRecords<T>(file: string, parse: Parse<T>) {
  const invalidAt = (path: string, problems: readonly string[]) =>
    notLoaded(problems.map((problem) => `${path}:${problem}`))
  const unusable = (problem: string) => notLoaded([`${file}: ${problem}`])

  async function list(): Promise<Loaded<readonly T[]>> {
    const read = await readRegularFile(file, MAX_FILE_BYTES)
    if (!read.ok) {
      return read
    }
    const parsed = parse(read.value.bytes)
    return parsed.ok ? parsed : invalidAt(file, parsed.problems)
  }

  /** Reads a valid file that commands can change. */
  async function readDocument(target: string, initialText: string | undefined): Promise<Loaded<Document>> {
    const read = await readRegularFile(target, MAX_FILE_BYTES)
    if (!read.ok && (read.kind !== 'missing' || initialText === undefined)) {
      return read
    }
    const bytes = read.ok ? read.value.bytes : Buffer.from(initialText ?? '')
    const valid = parse(bytes)
    if (!valid.ok) {
      return invalidAt(target, valid.problems)
    }
    const document = parseDocument(bytes.toString(), YAML_RULES)
    if (hasSharedNodes(document)) {
      return unusable('uses YAML aliases or merges (`<<`), which commands cannot change')
    }
    return loaded(document)
  }

  /**
   * `edit` changes the document, or returns a problem. Without `initialText`, a missing file is a problem.
   */
  async function change(edit: (document: Document) => string | undefined, initialText?: string) {
    try {
      // Two names of one file share one lock.
      const target = await realTarget(file)
      return await withLock(`${target}.lock`, async () => {
        const found = await readDocument(target, initialText)
        if (!found.ok) {
          return found
        }
        const document = found.value
        const problem = edit(document)
        if (problem !== undefined) {
          throw new FileError(problem)
        }
        const after = Buffer.from(document.toString({ lineWidth: 0 }))
        if (after.length > MAX_FILE_BYTES) {
          return unusable(`would be larger than ${MAX_FILE_BYTES} bytes`)
        }
        if (!parse(after).ok) {
          throw new FileError('the change would leave it invalid')
        }
        await replaceFile(target, after)
        return loaded(undefined)
      })
    } catch (error) {
      throw new NotDone(`${file}: ${fileErrorText(error)}`)
    }
  }
  return { list, change }
}

/** To edit a shared node would change every place that uses it, or none. */
function hasSharedNodes(document: Document): boolean {
  let isFound = false
  visit(document, {
    Node(_key, node) {
      if (isAlias(node) || isMergeKey(node)) {
        isFound = true
        return visit.BREAK
      }
      return undefined
    },
  })
  return isFound
}

const isMergeKey = (node: Node) => isScalar(node) && typeof node.value === 'symbol'

/** Like `realpath`, but the file may be missing. A link to a missing file is an error: the link must stay. */
async function realTarget(file: string): Promise<string> {
  const isLink = (await lstat(file).catch(() => undefined))?.isSymbolicLink()
  return isLink ? realpath(file) : join(await realpath(dirname(file)), basename(file))
}

function append(document: Document, list: readonly (string | number)[], item: object): void {
  const node = document.getIn(list, true)
  // An empty `[]` is a flow list, which would put all items on one line.
  if (isCollection(node) && node.items.length === 0) {
    node.flow = false
  }
  document.addIn(list, document.createNode(item))
}
