/** Adds and removes revocations: the interface, and the implementation for a file (`postgres/editor.ts` has the other). */
import type { Document } from 'yaml'
import type { Loaded, NotDone } from '../reload/files.ts'
import { listRevocationsFile, parse, type Revocation } from './revocations.ts'
import { append, type Changed, changeYamlFile } from './yaml-editor.ts'

/** Exactly one of them. */
export type RevocationName = Pick<Revocation, 'jti' | 'accountId' | 'accessKey'>

/** Never rejects. */
export interface RevocationEditor {
  list(): Promise<Loaded<readonly Revocation[]> | NotDone>
  add(revocation: Revocation): Promise<Changed>
  /** Removes every revocation of the name. */
  remove(name: RevocationName): Promise<Changed>
}

export const NO_SUCH_REVOCATION = 'there is no such revocation'

const INITIAL_TEXT = `# Tokens that end before they expire. Change them with \`storage-auth-sidecar revocations\` or by hand.
revocations: []
`
const LIST = 'revocations'

/** `add` creates a missing file. */
export function createRevocationFileEditor(file: string): RevocationEditor {
  const source = { file, parse }
  return {
    list: () => listRevocationsFile(file),
    add: (revocation) =>
      changeYamlFile(source, (document) => append(document, [LIST], inFile(revocation)), INITIAL_TEXT),
    remove: (name) =>
      changeYamlFile(source, (document) => {
        const at = positions(document, name)
        for (const index of at.reverse()) document.deleteIn([LIST, index])
        return at.length === 0 ? NO_SUCH_REVOCATION : undefined
      }),
  }
}

/** As JSON and files hold it: the time in RFC 3339. */
export function inFile({ issuedBefore, ...name }: Revocation) {
  const { jti, accountId, accessKey } = name
  return {
    ...(jti && { jti }),
    ...(accountId && { accountId }),
    ...(accessKey && { accessKey }),
    ...(typeof issuedBefore === 'number' && { issuedBefore: new Date(issuedBefore).toISOString() }),
  }
}

function positions(document: Document, { jti, accountId, accessKey }: RevocationName): number[] {
  const { revocations }: { revocations: RevocationName[] } = document.toJS()
  return revocations.flatMap((one, index) =>
    (jti && one.jti === jti) ||
    (accountId && one.accountId === accountId) ||
    (accessKey && one.accessKey === accessKey)
      ? [index]
      : [],
  )
}
