/**
 * Installs the peers that come from npm, on demand and from a lockfile of their own: they are no part of the product.
 *
 * @module
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const directory = join(import.meta.dirname, '..')
const installed = join(directory, 'node_modules/.package-lock.json')

/** Installs what is missing; returns why that failed, or nothing. */
export function installNpmPeers(): string | undefined {
  if (upToDate()) return undefined
  console.error('installing the peers of bench/package.json …')
  const args = ['ci', '--no-audit', '--no-fund', '--ignore-scripts']
  const { status, error } = spawnSync('npm', args, { cwd: directory, stdio: ['ignore', 'ignore', 'ignore'] })
  return status === 0 ? undefined : `npm ci in bench/ failed (${error?.message ?? `exit code ${status}`})`
}

/** Whether each locked package is there in its version. */
function upToDate(): boolean {
  if (!existsSync(installed)) return false
  const there = packagesOf(installed)
  return Object.entries(packagesOf(join(directory, 'package-lock.json'))).every(
    ([path, { version }]) => path === '' || there[path]?.version === version,
  )
}

function packagesOf(file: string): Readonly<Record<string, { readonly version?: string }>> {
  return JSON.parse(readFileSync(file, 'utf8')).packages
}
