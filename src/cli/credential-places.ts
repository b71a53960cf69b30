/**
 * Where the commands find credentials: a file or a database.
 *
 * @module
 */
import type { CredentialEditor } from '../credentials/editor.ts'
import { UsageFailure } from './command-io.ts'

/** The options that name a place; exactly one of them is to be given. */
export interface PlaceOptions {
  readonly file?: string
  readonly postgresUrlFile?: string
}

/** Opens the place that the options name. */
export async function openEditor({ file, postgresUrlFile }: PlaceOptions): Promise<CredentialEditor> {
  if (file !== undefined && postgresUrlFile !== undefined) {
    throw new UsageFailure('--file and --postgres-url-file name two places: give one of them')
  }
  if (postgresUrlFile !== undefined) {
    // Loaded when needed: a program that never talks to a database starts sooner without it.
    const { createPostgresEditor } = await import('../credentials/postgres/editor.ts')
    return createPostgresEditor(postgresUrlFile)
  }
  if (file === undefined) throw new UsageFailure('--file or --postgres-url-file is required')
  const { createFileEditor } = await import('../credentials/file-editor.ts')
  return createFileEditor(file)
}
