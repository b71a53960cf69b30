/**
 * Changes a YAML file of credentials or revocations: keeps comments and order, and replaces the file atomically under
 * the lock `<file>.lock`; a symbolic link stays.
 */
import { lstat, realpath } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { type Document, isCollection, parseDocument, visit } from 'yaml'
import { fileErrorReason, type NotDone, readRegularFile, replaceFile, withLock } from '../reload/files.ts'
import { MAX_FILE_BYTES, type Parse } from '../reload/parse-thread.ts'

export type Changed = { readonly ok: true } | NotDone

/** Changes the document of a valid file, or returns the problem. */
export type Edit = (document: Document) => string | undefined

/** Never rejects. @param initialText - the content to begin with where the file is missing; without it, a problem */
export async function changeYamlFile(
  file: string,
  parse: Parse<unknown>,
  edit: Edit,
  initialText?: string,
): Promise<Changed> {
  try {
    // Two names of one file share one lock.
    const target = await realTarget(file)
    return await withLock(`${target}.lock`, async () => {
      const failed = (what: string) => notDone(false, `${file}: ${what}`)
      const found = await readRegularFile(target, MAX_FILE_BYTES)
      if (!found.ok && (!found.missing || initialText === undefined)) return notDone(true, ...found.problems)
      const before = found.ok ? found.bytes : Buffer.from(initialText ?? '')
      const valid = parse(before)
      if (!valid.ok) return notDone(true, ...valid.problems.map((problem) => `${target}:${problem}`))
      const document = parseDocument(before.toString())
      if (hasAlias(document)) return failed('uses YAML aliases, which commands cannot change')
      const problem = edit(document)
      if (problem !== undefined) return failed(problem)
      const after = document.toString({ lineWidth: 0 })
      if (!parse(Buffer.from(after)).ok) return failed('the change would leave it invalid')
      await replaceFile(target, after)
      return { ok: true }
    })
  } catch (error) {
    return notDone(false, `${file}: ${fileErrorReason(error)}`)
  }
}

function notDone(unusable: boolean, ...problems: readonly string[]): NotDone {
  return { ok: false, unusable, problems }
}

/** As `realpath`, but the file itself may be missing. A link to a missing file is not followed: it stays. */
async function realTarget(file: string): Promise<string> {
  const isLink = (await lstat(file).catch(() => undefined))?.isSymbolicLink()
  return isLink ? realpath(file) : join(await realpath(dirname(file)), basename(file))
}

/** Editing an aliased node would change every place that uses it. */
function hasAlias(document: Document): boolean {
  let aliases = 0
  visit(document, { Alias: () => void aliases++ })
  return aliases > 0
}

/** Finds no problem. */
export function append(document: Document, list: readonly (string | number)[], item: object): undefined {
  const node = document.getIn(list, true)
  // An empty `[]` becomes a block: a flow list would put everything on one line.
  if (isCollection(node) && node.items.length === 0) node.flow = false
  document.addIn(list, document.createNode(item))
}
