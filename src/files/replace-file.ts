/**
 * Replaces a file by a new version of it, whole or not at all.
 *
 * In: a path and a text. Out: the file holds the text, is on the disk, has mode 0600 and its former owner; or the call
 * rejects and the former version is untouched. A reader sees one version or the other, never a part.
 *
 * Not write-file-atomic: its version 7.0.1 does not look at how much a write wrote, and on a disk that fills up it
 * puts a cut file in place and reports success.
 *
 * @module
 */
import { randomUUID } from 'node:crypto'
import { open, rename, rm, stat } from 'node:fs/promises'
import { dirname } from 'node:path'

/** Replaces or creates a file. The path must not be a symbolic link, or the link is what is replaced. */
export async function replaceFile(file: string, text: string): Promise<void> {
  const temporary = `${file}.${randomUUID()}.tmp` // beside it, since a rename cannot cross file systems
  try {
    const handle = await open(temporary, 'wx', 0o600)
    try {
      await handle.writeFile(text)
      const former = await stat(file).catch(() => undefined)
      // Only root may give a file away; for anybody else it was his own file, or becomes it.
      if (former !== undefined) await handle.chown(former.uid, former.gid).catch(() => {})
      await handle.sync()
    } finally {
      await handle.close()
    }
    await rename(temporary, file)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
  await syncDirectory(dirname(file))
}

/** Makes the rename itself last. The new version is in force already, so a file system that cannot is no failure. */
async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, 'r')
  await handle.sync().catch(() => {})
  await handle.close()
}
