/**
 * Changes credentials by name: the interface, and the implementation for a file (`postgres/editor.ts` has the other).
 * A file keeps comments and order, and is replaced atomically under the lock `<file>.lock`; a symbolic link stays.
 */
import { readlink, realpath } from 'node:fs/promises'
import { basename, dirname, isAbsolute, join } from 'node:path'
import { type Document, isCollection, parseDocument, visit } from 'yaml'
import {
  errorCode,
  fileErrorReason,
  type Loaded,
  type NotDone,
  replaceFile,
  withLock,
} from '../reload/files.ts'
import { listCredentialsFile, parse, readCredentialsFile } from './credentials-file.ts'
import type { Credential, CredentialName } from './store.ts'

interface NewCredential extends CredentialName {
  readonly secretHash: string
  /** RFC 3339. */
  readonly expiresAt?: string
}

export type Changed = { readonly ok: true } | NotDone

/** Never rejects. Problems are free of secrets. */
export interface CredentialEditor {
  list(): Promise<Loaded<readonly Credential[]> | NotDone>
  add(credential: NewCredential): Promise<Changed>
  setDisabled(name: CredentialName, disabled: boolean): Promise<Changed>
  remove(name: CredentialName): Promise<Changed>
}

export const NAME_TAKEN = 'the account already has a credential of that access key'
export const NO_SUCH_NAME = 'there is no credential of that account and access key'

const INITIAL_TEXT = `# Accounts and their credentials. Change them with \`storage-auth-sidecar credentials\` or by hand.
accounts: []
`

/** `add` creates a missing file. `lockRetries`: as for {@link withLock}. */
export function createFileEditor(file: string, lockRetries?: number): CredentialEditor {
  const notDone = (unusable: boolean, ...problems: readonly string[]): NotDone => ({
    ok: false,
    unusable,
    problems,
  })
  const failed = (what: string) => notDone(false, `${file}: ${what}`)

  async function change(name: CredentialName, edit: Edit, initialText?: string): Promise<Changed> {
    try {
      // Two names of one file share one lock.
      const target = await realTarget(file)
      return await withLock(
        `${target}.lock`,
        () => changeLocked(target, name, edit, initialText),
        lockRetries,
      )
    } catch (error) {
      return failed(fileErrorReason(error))
    }
  }

  async function changeLocked(
    target: string,
    name: CredentialName,
    edit: Edit,
    initialText?: string,
  ): Promise<Changed> {
    const read = await readCredentialsFile(target)
    if (!read.ok && (!read.missing || initialText === undefined)) return notDone(true, ...read.problems)
    const before = read.ok ? read.bytes : Buffer.from(initialText ?? '')
    const valid = parse(before)
    if (!valid.ok) return notDone(true, ...valid.problems.map((problem) => `${target}:${problem}`))
    const document = parseDocument(before.toString())
    if (hasAlias(document)) return failed('uses YAML aliases, which commands cannot change')
    const problem = edit(document, locate(document, name))
    if (problem !== undefined) return failed(problem)
    const after = document.toString({ lineWidth: 0 })
    if (!parse(Buffer.from(after)).ok) return failed('the change would leave it invalid')
    try {
      await replaceFile(target, after)
      return { ok: true }
    } catch (error) {
      return failed(`cannot be written: ${fileErrorReason(error)}`)
    }
  }

  return {
    list: () => listCredentialsFile(file),
    add: ({ accountId, ...credential }) =>
      change(
        { accountId, accessKey: credential.accessKey },
        (document, { account, path }) => {
          if (path !== undefined) return NAME_TAKEN
          if (account === undefined) append(document, ['accounts'], { accountId, credentials: [credential] })
          else append(document, [...account, 'credentials'], credential)
          return undefined
        },
        INITIAL_TEXT,
      ),
    setDisabled: (name, disabled) =>
      change(name, (document, { path }) => {
        if (path === undefined) return NO_SUCH_NAME
        if (disabled) document.setIn([...path, 'disabled'], true)
        else document.deleteIn([...path, 'disabled'])
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

/** As in Linux. */
const MAX_LINKS = 40

/** As `realpath`, but the file itself may be missing, behind symbolic links too. */
async function realTarget(file: string, links = MAX_LINKS): Promise<string> {
  try {
    return await realpath(file)
  } catch (error) {
    if (errorCode(error) !== 'ENOENT' || links === 0) throw error
    const link = await readlink(file).catch(() => undefined)
    const directory = await realpath(dirname(file))
    if (link === undefined) return join(directory, basename(file))
    // Not normalized: the system resolves `..` after the links before it.
    return realTarget(isAbsolute(link) ? link : `${directory}/${link}`, links - 1)
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

/** Editing an aliased node would change every place that uses it. */
function hasAlias(document: Document): boolean {
  let found = false
  visit(document, {
    Alias() {
      found = true
    },
  })
  return found
}

function append(document: Document, list: readonly (string | number)[], item: object): void {
  const node = document.getIn(list, true)
  // An empty `[]` becomes a block: a flow list would put everything on one line.
  if (isCollection(node) && node.items.length === 0) node.flow = false
  document.addIn(list, document.createNode(item))
}
