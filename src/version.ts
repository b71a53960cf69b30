/**
 * The version of this program, from its package file.
 *
 * @module
 */
import { readFileSync } from 'node:fs'

/** The version that the text of a package file tells. */
export function versionOf(packageJson: string): string {
  const manifest: { version?: unknown } = JSON.parse(packageJson)
  return String(manifest.version)
}

/** The version, as in `package.json`. */
export const VERSION: string = versionOf(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
