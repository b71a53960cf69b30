/**
 * Changes a credentials file: comments and order stay, the file is valid before and after, replaced atomically, and locked
 * against a second writer by the directory `<file>.lock`. A symbolic link stays a link.
 */
import { realpath } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { lock } from 'proper-lockfile'
import { type Document, isCollection, parseDocument, visit } from 'yaml'
import { fileErrorCode, fileErrorReason, LOCK_HELD, LOCK_STALE_MS, replaceFile } from '../reload/files.ts'
import type { CredentialName } from './credential.ts'
import { listCredentialsFile, parse, readCredentialsFile } from './credentials-file.ts'
import {
  type Changed,
  type CredentialEditor,
  NAME_TAKEN,
  type NewCredential,
  NO_SUCH_NAME,
} from './editor.ts'

const INITIAL_TEXT = `# Who may log in. Change it with \`storage-auth-sidecar credentials\`; by hand is fine, too.
accounts: []
`

export interface FileEditorOptions {
  /** How often a lock of another writer is tried again, 100 ms apart. */
  readonly lockRetries?: number
}

/** Creates an editor; `add` creates a missing file. */
export function createFileEditor(
  file: string,
  { lockRetries = 50 }: FileEditorOptions = {},
): CredentialEditor {
  const failed = (what: string): Changed => ({ ok: false, unusable: false, problems: [`${file}: ${what}`] })

  async function change(edit: Edit, initialText?: string): Promise<Changed> {
    let compromised = false
    let unlock: () => Promise<void>
    let target: string
    try {
      target = await realTarget(file)
      unlock = await lock(target, {
        stale: LOCK_STALE_MS,
        realpath: false, // the file may not exist yet
        retries: { retries: lockRetries, factor: 1, minTimeout: 100, maxTimeout: 100 },
        // Happens to a process that was stopped for ten seconds; the default throws from a timer.
        onCompromised: () => {
          compromised = true
        },
      })
    } catch (error) {
      return failed(fileErrorCode(error) === 'ELOCKED' ? LOCK_HELD : fileErrorReason(error))
    }
    try {
      const read = await readCredentialsFile(target)
      if (!read.ok && (!read.missing || initialText === undefined)) return { ...read, unusable: true }
      const before = read.ok ? read.bytes : Buffer.from(initialText ?? '')
      const valid = parse(before)
      if (!valid.ok) {
        return {
          ok: false,
          unusable: true,
          problems: valid.problems.map((problem) => `${target}:${problem}`),
        }
      }
      const document = parseDocument(before.toString())
      const problem = aliasProblem(document) ?? edit(document)
      if (problem !== undefined) return failed(problem)
      const after = document.toString({ lineWidth: 0 })
      if (!parse(Buffer.from(after)).ok) return failed('the change would leave it invalid')
      if (compromised) return failed('the lock was lost, so nothing was changed')
      await replaceFile(target, after)
      return { ok: true }
    } catch (error) {
      return failed(`cannot be written: ${fileErrorReason(error)}`)
    } finally {
      if (!compromised) await unlock()
    }
  }

  return {
    async list() {
      const listed = await listCredentialsFile(file)
      if (!listed.ok) return { ...listed, unusable: true }
      return { ok: true, credentials: listed.value, warnings: listed.warnings }
    },
    add: (credential) => change(addCredential(credential), INITIAL_TEXT),
    setDisabled: (name, disabled) =>
      change(
        changeOne(name, (document, path) => {
          if (disabled) document.setIn([...path, 'disabled'], true)
          else document.deleteIn([...path, 'disabled'])
        }),
      ),
    remove: (name) =>
      change(
        changeOne(name, (document, path, isLast) => {
          document.deleteIn(isLast ? path.slice(0, 2) : path)
        }),
      ),
  }
}

/** Changes the document of a valid file, or returns the problem. */
type Edit = (document: Document) => string | undefined
type NodePath = readonly (string | number)[]

/** A change of what two places share would change both. */
function aliasProblem(document: Document): string | undefined {
  let problem: string | undefined
  visit(document, {
    Alias() {
      problem = 'uses YAML aliases, which commands cannot change'
      return visit.BREAK
    },
  })
  return problem
}

function addCredential({ accountId, ...credential }: NewCredential): Edit {
  return (document) => {
    const { accountIndex, credentialIndex } = locate(document, { accountId, ...credential })
    if (credentialIndex !== -1) return NAME_TAKEN
    if (accountIndex === -1) append(document, ['accounts'], { accountId, credentials: [credential] })
    else append(document, ['accounts', accountIndex, 'credentials'], credential)
    return undefined
  }
}

function changeOne(
  name: CredentialName,
  change: (document: Document, path: NodePath, isLast: boolean) => void,
): Edit {
  return (document) => {
    const { accountIndex, credentialIndex, count } = locate(document, name)
    if (credentialIndex === -1) return NO_SUCH_NAME
    change(document, ['accounts', accountIndex, 'credentials', credentialIndex], count === 1)
    return undefined
  }
}

/** Where a credential stands; -1 where it does not. `count`: the credentials of its account. */
function locate(document: Document, { accountId, accessKey }: CredentialName) {
  const { accounts }: { accounts: { accountId: string; credentials: CredentialName[] }[] } = document.toJS()
  const accountIndex = accounts.findIndex((account) => account.accountId === accountId)
  const credentials = accounts[accountIndex]?.credentials ?? []
  const credentialIndex = credentials.findIndex((credential) => credential.accessKey === accessKey)
  return { accountIndex, credentialIndex, count: credentials.length }
}

function append(document: Document, list: NodePath, item: object): void {
  const node = document.getIn(list, true)
  // An empty `[]` becomes a block: a flow list would put everything on one line.
  if (isCollection(node) && node.items.length === 0) node.flow = false
  document.addIn(list, document.createNode(item))
}

/** The file behind symbolic links, so that two names of one file share one lock. */
async function realTarget(file: string): Promise<string> {
  try {
    return await realpath(file)
  } catch {
    return join(await realpath(dirname(file)), basename(file))
  }
}
