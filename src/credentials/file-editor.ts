/**
 * Changing credentials in a file.
 *
 * @module
 */
import { addCredential, type Edit, removeCredential, setDisabled } from './accounts-edit.ts'
import { readAccountsFile } from './accounts-file.ts'
import type { CredentialEditor } from './credential-editor.ts'

const INITIAL_TEXT = `# Who may log in. Change it with \`storage-auth-sidecar credentials\`; by hand is fine, too.
accounts: []
`

/** Makes an editor; adding makes the file when it is missing. */
export function createFileEditor(file: string): CredentialEditor {
  const change = async (edit: Edit, options: { readonly initialText?: string } = {}) => {
    // Loaded when needed: its lock installs exit handlers, which a serving process should not have.
    const { editAccountsFile } = await import('./accounts-file-edit.ts')
    return editAccountsFile(file, edit, options)
  }
  return {
    async list() {
      const read = await readAccountsFile(file)
      return read.ok ? read : { ok: false, unusable: true, problems: read.problems }
    },
    add: (credential) => change(addCredential(credential), { initialText: INITIAL_TEXT }),
    setDisabled: (name, disabled) => change(setDisabled(name, disabled)),
    remove: (name) => change(removeCredential(name)),
  }
}
